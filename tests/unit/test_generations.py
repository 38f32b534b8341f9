"""Which number a deploy gets, which release is the good one, what is gone back to and what is forgotten."""

import itertools
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsv4ctl import generations, screen_history
from dsv4ctl.generations import Generation, Kept, Outcome, Verdict
from dsv4ctl.model import Instance, Release
from dsv4ctl.problems import Problem
from tests import releases as rendered

INSTANCE = rendered.render(rendered.spec()).instances[0]


def release(digest: str) -> Release:
    instance: Instance = replace(INSTANCE, digest=f"i-{digest}")
    return Release(digest=digest, mode="single-tp4", instances=(instance,), files=())


def kept(number: int, digest: str, verdict: Verdict | None = None) -> Kept:
    generation = Generation(
        number=number,
        release=release(digest),
        spec=rendered.spec(),
        engine_version="0.5.23",
        engine_stamp="",
        model_revision="",
        driver="",
        at=0.0,
        who="alice",
        reason="",
        command="",
    )
    return Kept(generation, verdict)


PROVED = Verdict(outcome=Outcome.PROVED, at=1.0, took_s=1.0, proved_at=1.0)
FAILED = Verdict(outcome=Outcome.FAILED, at=1.0, took_s=1.0)


@dataclass
class Box:
    """A host as far as generations go: what is kept, what is installed, what serves; and how often it went back."""

    kept: dict[int, Kept] = field(default_factory=dict)
    files: str = ""
    serves: str = ""
    reverts: int = 0

    def here(self) -> Kept | None:
        return generations.installed(self.kept.values(), frozenset({f"i-{self.files}"} if self.files else ()))

    def deploy(self, digest: str, good: frozenset[str], keep: int = 100) -> None:
        known = generations.number_of(release(digest), self.kept.values(), self.here())
        number = known or max(self.kept, default=0) + 1
        if not known:
            self.kept[number] = kept(number, digest)
        self.files = digest
        self.serves = digest if digest in good else ""
        self._judge(number, PROVED if digest in good else FAILED)
        if digest in good:
            for old in generations.forgotten(self.kept.values(), self.kept[number], keep):
                del self.kept[old]
            return
        back = generations.returns_to(self.kept[number].generation, self.kept.values())
        if back is not None:
            self.files = back.digest
            self.serves = back.digest if back.digest in good else ""
            self.reverts += 1

    def _judge(self, number: int, now: Verdict) -> None:
        before = self.kept[number]
        self.kept[number] = Kept(before.generation, generations.after(before.verdict, now))


GOOD = frozenset("abc")
digests = st.sampled_from("abcxyz")


@given(st.lists(digests, min_size=1, max_size=30), st.integers(1, 4))
def test_any_sequence_of_deploys_ends_on_the_last_good_one(asked: list[str], keep: int) -> None:
    box, last_good = Box(), ""
    for digest in asked:
        before = box.reverts
        box.deploy(digest, GOOD, keep)

        last_good = digest if digest in GOOD else last_good
        assert box.serves == last_good
        assert box.reverts - before <= 1
        numbers = sorted(box.kept)
        assert all(box.kept[a].digest != box.kept[b].digest for a, b in itertools.pairwise(numbers))
        here, good = box.here(), generations.last_proved(box.kept.values())
        if last_good:
            assert here is not None
            assert good is not None
            assert (here.digest, good.digest) == (last_good, last_good)


@given(st.lists(st.tuples(digests, st.booleans()), max_size=20), st.integers(1, 5), st.integers(0, 20))
def test_what_runs_and_what_was_proved_last_is_never_forgotten(
    tried: list[tuple[str, bool]], most: int, place: int
) -> None:
    all_of = [kept(n, digest, PROVED if proved else FAILED) for n, (digest, proved) in enumerate(tried, start=1)]
    here = all_of[place] if place < len(all_of) else None

    gone = generations.forgotten(all_of, here, most)

    left = [one for one in all_of if one.number not in gone]
    assert len(left) <= most + 2
    assert len(left) >= min(most, len(all_of))
    assert here is None or here in left
    assert generations.last_proved(left) == generations.last_proved(all_of)


def test_the_same_again_gets_no_new_number_wherever_it_stands() -> None:
    all_of = (kept(1, "a", PROVED), kept(2, "b", FAILED))

    assert generations.number_of(release("a"), all_of, all_of[0]) == 1
    assert generations.number_of(release("b"), all_of, all_of[0]) == 2
    assert generations.number_of(release("a"), all_of, None) is None
    assert generations.number_of(release("a"), (), None) is None


def test_a_rollback_to_a_release_that_failed_is_a_new_attempt_and_the_failure_stays_in_the_history() -> None:
    all_of = (kept(1, "a", PROVED), kept(2, "b", FAILED))

    assert generations.number_of(release("b"), all_of, all_of[0], goes_back=True) is None
    assert generations.number_of(release("b"), all_of, all_of[1], goes_back=True) is None, (
        "left for a look, --no-revert"
    )
    cut = (*all_of, kept(3, "b"))
    assert generations.number_of(release("b"), cut, all_of[0], goes_back=True) == 3, "the rollback that was cut short"
    assert generations.number_of(release("a"), all_of, all_of[0], goes_back=True) == 1


def test_who_goes_back_to_a_release_that_failed_is_told_that_and_why() -> None:
    failed = replace(FAILED, words="the engine died\nsee its journal")

    assert generations.failed_before(kept(2, "b", failed)) == (
        "release 2 failed when it was tried last: the engine died",
    )
    assert generations.failed_before(kept(2, "b", PROVED)) == generations.failed_before(kept(2, "b")) == ()


def test_the_reason_of_a_new_number_names_what_is_installed_or_why_nothing_that_is_known_is() -> None:
    all_of = (kept(1, "a", PROVED), kept(2, "b", FAILED), kept(3, "c", PROVED))

    def why(digest: str, here: Kept | None, *, anything: bool = True) -> str:
        return generations.why_new(release(digest), all_of, here, anything=anything)

    assert generations.why_new(release("a"), (), None, anything=False) == "it is the first"
    assert why("x", all_of[2]) == "what is installed is release 3"
    assert why("b", all_of[1]) == "release 2 is the same and failed, which stays under its number"
    assert why("x", None, anything=False) == "nothing is installed"
    assert why("b", None) == (
        "what is installed is none of the kept releases: a change was cut short, or files were changed or removed; "
        "release 2 was the same"
    )


def test_a_release_that_fails_later_is_still_one_that_was_proved() -> None:
    verdict = generations.after(PROVED, replace(FAILED, at=9.0))

    assert (verdict.outcome, verdict.proved_at) == (Outcome.FAILED, 1.0)
    assert generations.after(None, FAILED).proved_at is None
    assert generations.after(PROVED, replace(PROVED, at=9.0)).proved_at == 9.0


def test_the_list_keeps_how_long_the_first_proof_took_whatever_comes_later() -> None:
    first = generations.after(replace(FAILED, took_s=3.0), replace(PROVED, took_s=22.6))
    again = generations.after(first, replace(PROVED, at=9.0, took_s=4.0))
    later = generations.after(generations.after(again, FAILED), replace(PROVED, at=20.0, took_s=5.0))

    assert [screen_history.words(one) for one in (first, again, later)] == ["proved in 22.6 s"] * 3
    assert (again.took_s, later.took_s) == (4.0, 5.0)


def test_nothing_is_gone_back_to_that_renders_the_same_or_was_never_proved() -> None:
    failed = kept(3, "a", FAILED)

    assert generations.returns_to(failed.generation, (kept(1, "b", FAILED), failed)) is None
    assert generations.returns_to(failed.generation, (kept(1, "b", PROVED), kept(2, "a", PROVED), failed)) is None
    assert generations.returns_to(failed.generation, (kept(1, "b", PROVED), kept(2, "c"), failed)) == kept(
        1, "b", PROVED
    )


def test_a_rollback_goes_to_the_last_proved_one_before_what_is_installed() -> None:
    all_of = (kept(1, "a", PROVED), kept(2, "b", PROVED), kept(3, "c", FAILED), kept(4, "a", PROVED))

    assert generations.earlier(all_of, all_of[3]) == all_of[1]
    assert generations.earlier(all_of, all_of[1]) == all_of[0]
    assert generations.earlier(all_of, all_of[0]) is None
    assert generations.earlier(all_of, None) == all_of[3], "nothing is installed any more: the last good one"


def test_of_two_releases_with_the_same_instances_the_younger_is_the_installed_one() -> None:
    all_of = (kept(1, "a", PROVED), kept(2, "b", PROVED), kept(3, "a", PROVED))

    assert generations.installed(all_of, frozenset({"i-a"})) == all_of[2]
    assert generations.installed(all_of, frozenset({"i-a", "i-b"})) is None
    assert generations.installed(all_of, frozenset()) is None


@pytest.mark.parametrize(
    ("asked", "found"), [((None, None), (4, 7)), ((2, None), (2, 7)), ((4, 2), (4, 2)), ((7, None), (7, 7))]
)
def test_releases_are_compared_as_named_with_the_newest_or_the_last_two(
    asked: tuple[int | None, int | None], found: tuple[int, int]
) -> None:
    assert generations.compared((2, 7, 4), *asked) == found


@pytest.mark.parametrize("numbers", [(), (1,)])
def test_one_release_alone_is_compared_with_nothing(numbers: tuple[int, ...]) -> None:
    with pytest.raises(Problem, match="not two of them"):
        generations.compared(numbers, None, None)
