"""Numbered releases on a real file system: a number is whole or is none, and comes back as it was."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from dsv4ctl.findings import Probing, Proof
from dsv4ctl.generations import Evidence, Generation, Kept, Outcome, PhaseTime, Verdict
from dsv4ctl.model import GpuView
from dsv4ctl.problems import Problem
from dsv4ctl.store.releases import Releases
from tests import releases as rendered

PROOF = Proof(
    instance="server",
    role="server",
    unit="dsv4-server.service",
    url="http://127.0.0.1:30001",
    pid=7,
    model="dsv4",
    context_length=524288,
)
PROVED = Verdict(
    outcome=Outcome.PROVED,
    at=2.0,
    took_s=700.5,
    proof=Probing(verdict="ok", words="", answer_s=0.2, proofs=(PROOF,)),
    phases=(PhaseTime(instance="server", phase="weights", seconds=600.0),),
    proved_at=2.0,
)
EVIDENCE = Evidence(at=3.0, words="é", units=(), states=(), gpus=GpuView(), journal=("12:00:00 x[1]: died",))


@pytest.fixture
def kept(tmp_path: Path) -> Releases:
    return Releases(tmp_path / "releases")


def generation(number: int = 1) -> Generation:
    return Generation(
        number=number,
        release=rendered.render(rendered.SPECS["nasty"]),
        spec=rendered.SPECS["nasty"],
        engine_version="0.5.23",
        engine_stamp="/opt 1",
        model_revision="sha256:1",
        driver="580",
        at=1.0,
        who="alice",
        reason="first",
        command="dsv4ctl deploy",
    )


def test_a_release_its_verdict_and_its_evidence_come_back_as_they_were(kept: Releases) -> None:
    assert (kept.numbers(), kept.all(), kept.next()) == ((), (), 1)

    kept.keep(generation())
    assert kept.read(1) == Kept(generation())
    kept.judge(1, PROVED)
    kept.testify(1, EVIDENCE)

    assert kept.all() == (Kept(generation(), PROVED),)
    assert kept.evidence(1) == EVIDENCE
    assert kept.next() == 2


def test_nobody_but_root_reads_the_units_that_are_kept(kept: Releases) -> None:
    kept.keep(generation())

    assert (kept.folder / "0001/release.json").stat().st_mode & 0o777 == 0o600


def test_a_folder_that_a_killed_writer_left_is_no_release_and_its_number_is_spent(kept: Releases) -> None:
    kept.keep(generation())
    (kept.folder / "0002").mkdir()

    assert kept.numbers() == (1,)
    assert kept.next() == 3


def test_an_unreadable_release_stops_nobody_and_is_told_to_whoever_asks_for_it(kept: Releases) -> None:
    kept.keep(generation(1))
    kept.keep(generation(2))
    (kept.folder / "0001/release.json").write_text('{"half')

    assert [one.number for one in kept.all()] == [2]
    assert kept.numbers() == (1, 2)
    with pytest.raises(Problem, match=r"cannot use .*/0001/release\.json"):
        kept.read(1)
    with pytest.raises(Problem, match=r"cannot find release 9 \(there is: 1, 2\)"):
        kept.read(9)


@pytest.mark.parametrize("text", ["", "{", '{"outcome": "fine"}'])
def test_a_verdict_that_cannot_be_read_is_none(kept: Releases, text: str) -> None:
    kept.keep(generation())
    (kept.folder / "0001/verdict.json").write_text(text)

    assert kept.read(1).verdict is None


def test_releases_sort_by_number_beyond_four_digits(kept: Releases) -> None:
    for number in (9999, 10000, 2):
        kept.keep(generation(number))

    assert kept.numbers() == (2, 9999, 10000)


def test_what_is_forgotten_is_no_release_from_the_first_moment_on(
    kept: Releases, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in (1, 2, 3):
        kept.keep(generation(number))
    kept.forget((1,))
    assert [path.name for path in sorted(kept.folder.iterdir())] == ["0002", "0003"]

    def cut(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(shutil, "rmtree", cut)
    with pytest.raises(KeyboardInterrupt):
        kept.forget((2,))

    assert kept.numbers() == (3,)
    monkeypatch.undo()
    kept.forget(())
    assert [path.name for path in kept.folder.iterdir()] == ["0003"], "the rest goes the next time"


def test_the_highest_number_stays_spent_also_when_it_is_no_release(kept: Releases) -> None:
    kept.keep(generation(1))
    (kept.folder / "0002").mkdir()

    kept.forget(())

    assert kept.next() == 3


def test_a_release_without_its_words_is_still_one(kept: Releases) -> None:
    kept.keep(replace(generation(), reason="", model_revision=""))

    assert kept.read(1).generation.reason == ""
