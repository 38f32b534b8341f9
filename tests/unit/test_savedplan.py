"""What of the ground of a saved plan has moved is said, each thing by its name; nothing else is."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsv4ctl import record, savedplan
from dsv4ctl.problems import WrongOption
from dsv4ctl.savedplan import Ground, LoadedUnit, SavedPlan, loaded, moved

PATH = "/etc/systemd/system/dsv4-server.service"
EDIT = f"{PATH}.d/override.conf"
UNIT = LoadedUnit(name="dsv4-server.service", files=(loaded(PATH, "[Service]\nRestart=no\n"),), waits=False)
GROUND = Ground(
    digest="d1", current=3, driver="580.159.03", gpus=((0, "GPU-a"), (1, "GPU-b")), units=(UNIT,)
)  # fmt: skip


def with_unit(**parts: object) -> Ground:
    return replace(GROUND, units=(replace(UNIT, **parts),))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("now", "words"),
    [
        (replace(GROUND, digest="d2"), "the release would be d2, not d1"),
        (replace(GROUND, current=4), "installed is release 4, and was release 3"),
        (replace(GROUND, current=None), "installed is no known release, and was release 3"),
        (replace(GROUND, driver="590.1"), "the driver is 590.1, and was 580.159.03"),
        (replace(GROUND, gpus=((0, "GPU-a"), (1, "GPU-c"))), "GPU 1 is GPU-c, and was GPU-b"),
        (replace(GROUND, gpus=((0, "GPU-a"),)), "GPU 1 is gone, and was GPU-b"),
        (with_unit(files=(*UNIT.files, loaded(EDIT, "[Service]\n"))), f"dsv4-server.service: {EDIT} is new"),
        (with_unit(files=()), f"dsv4-server.service: {PATH} is gone"),
        (with_unit(files=(loaded(PATH, "[Service]\nRestart=always\n"),)), "-Restart=no\n+Restart=always"),
        (with_unit(waits=True), "dsv4-server.service: its files changed, and systemd has not read them yet"),
        (replace(GROUND, units=()), f"dsv4-server.service: {PATH} is gone"),
    ],
)
def test_each_thing_that_moved_is_named(now: Ground, words: str) -> None:
    (said,) = moved(GROUND, now)

    assert words in said


def test_a_secret_that_changed_is_noticed_and_not_told() -> None:
    one, other = (
        with_unit(files=(loaded(PATH, f"[Service]\nEnvironment=HF_TOKEN={value}\n"),)) for value in ("abc", "xyz")
    )

    (said,) = moved(one, other)

    assert "was changed, in values that are not shown" in said
    assert "xyz" not in said


texts = st.text(max_size=5)
grounds = st.builds(
    Ground,
    digest=texts,
    current=st.none() | st.integers(1, 3),
    driver=texts,
    gpus=st.dictionaries(st.integers(0, 2), texts, max_size=3).map(lambda found: tuple(sorted(found.items()))),
    units=st.lists(
        st.builds(LoadedUnit, name=texts, files=st.tuples(st.builds(loaded, texts, texts)), waits=st.booleans()),
        max_size=2,
        unique_by=lambda one: one.name,
    ).map(tuple),
)


@given(grounds)
def test_what_did_not_move_is_not_said_to_have_also_after_it_was_written_down(ground: Ground) -> None:
    saved = SavedPlan(at=1.0, who="alice", config=None, options=(), switches=(), ground=ground, steps=())

    assert moved(record.load(record.dump(saved), SavedPlan).ground, ground) == ()


@pytest.mark.parametrize(
    ("text", "why"), [("{}", "at is missing"), ('{"at": 1.', "it is no JSON"), ("[]", "must be an object")]
)
def test_what_is_no_plan_is_named_by_its_file_with_what_writes_one(text: str, why: str) -> None:
    with pytest.raises(WrongOption, match=why) as refused:
        savedplan.parse(text, "/root/plan.json")

    assert str(refused.value).startswith("cannot deploy /root/plan.json: it is no plan, or not all of one (")
    assert refused.value.hint == "dsv4ctl plan --out /root/plan.json"
