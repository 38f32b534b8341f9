"""Numbered releases and what came of them: which number a deploy gets, which release is the good one, what to forget.

Pure: everything here is a decision over values.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from dsv4ctl.findings import Probing
from dsv4ctl.model import GpuView, HostSpec, Release, RunState, Unit
from dsv4ctl.problems import Problem

# So many are kept unless --keep says otherwise: with the unit texts one takes some 20 KiB.
KEPT = 30
# The commands, by their names in the audit trail, that make an attempt at a release.
ATTEMPTS = frozenset({"deploy", "rollback"})


class Outcome(StrEnum):
    """What came of the last attempt at a release."""

    PROVED = "proved"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """A release under its number: never changed once written. `spec`: as effective, its secrets hidden.

    `restores`: the release that a rollback went back to. `model_revision` is '' where the model has none to tell.
    """

    number: int
    release: Release
    spec: HostSpec
    engine_version: str
    engine_stamp: str
    model_revision: str
    driver: str
    at: float
    who: str
    reason: str
    command: str
    restores: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseTime:
    """How long an instance was seen in a phase of its start."""

    instance: str
    phase: str
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What came of the last attempt at a release. `words`: why it failed. `serves`: what served after that.

    `proved_at`: when it was proved last, whatever came of it later; None: never. `first_took_s`: how long its first
    proof took, for a later start over warm caches is no measure of the deploy that the list tells of.
    """

    outcome: Outcome
    at: float
    took_s: float
    words: str = ""
    serves: str = ""
    proof: Probing | None = None
    phases: tuple[PhaseTime, ...] = ()
    proved_at: float | None = None
    first_took_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What was seen of a release that failed: units and supervisors as last seen, GPUs and journal after that."""

    at: float
    words: str
    units: tuple[Unit, ...]
    states: tuple[RunState, ...]
    gpus: GpuView
    journal: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Kept:
    """A generation and its verdict; None: the attempt was cut short, or is under way."""

    generation: Generation
    verdict: Verdict | None = None

    @property
    def number(self) -> int:
        """Its number."""
        return self.generation.number

    @property
    def digest(self) -> str:
        """The digest of its release."""
        return self.generation.release.digest

    @property
    def proved(self) -> bool:
        """Whether it served once."""
        return self.verdict is not None and self.verdict.proved_at is not None

    @property
    def failed(self) -> bool:
        """Whether its last attempt failed."""
        return self.verdict is not None and self.verdict.outcome is Outcome.FAILED


def installed(kept: Iterable[Kept], instances: frozenset[str]) -> Kept | None:
    """The release that is installed, by the digests of the instances whose units are there: the youngest of several."""
    found = [one for one in kept if instances and _instances(one.generation.release) == instances]
    return max(found, key=lambda one: one.number, default=None)


def number_of(release: Release, kept: Iterable[Kept], here: Kept | None, *, goes_back: bool = False) -> int | None:
    """The number that a deploy of `release` goes under because nothing changes; None: it gets a new one.

    1. it is what is installed
    2. it is the last one: an attempt that was cut short or failed is made again under its number
    3. but a rollback (`goes_back`) to one that failed is a new attempt: the failure stays with the old number
    """
    last = max(kept, key=lambda one: one.number, default=None)
    same = next((one for one in (here, last) if one is not None and one.digest == release.digest), None)
    return None if same is None or (goes_back and same.failed) else same.number


def why_new(release: Release, kept: Iterable[Kept], here: Kept | None, *, anything: bool) -> str:
    """Why `release` is kept under a number of its own. `anything`: whether anything of ours is installed at all."""
    same = max((one.number for one in kept if one.digest == release.digest), default=None)
    if here is not None and here.digest == release.digest:
        return f"release {here.number} is the same and failed, which stays under its number"
    if here is not None:
        return f"what is installed is release {here.number}"
    if not any(True for _ in kept):
        return "it is the first"
    return f"{unmarked(anything=anything)}{f'; release {same} was the same' if same else ''}"


def unmarked(*, anything: bool) -> str:
    """Why none of the kept releases is the installed one."""
    cut = "what is installed is none of the kept releases: a change was cut short, or files were changed or removed"
    return cut if anything else "nothing is installed"


def failed_before(kept: Kept) -> tuple[str, ...]:
    """What to say before a release is deployed again that failed when it was tried last."""
    if kept.verdict is None or not kept.failed:
        return ()
    why = next(iter(kept.verdict.words.splitlines()), "")
    return (f"release {kept.number} failed when it was tried last{f': {why}' if why else ''}",)


def compared(numbers: Iterable[int], before: int | None, after: int | None) -> tuple[int, int]:
    """Which two releases are compared: those named, one with the newest, or the last two.

    Raises Problem when there are not so many.
    """
    *_, last, newest = (0, 0, *sorted(numbers))
    first = last if before is None else before
    second = newest if after is None else after
    if not first or not second:
        raise Problem("cannot compare releases: there are not two of them yet", hint="dsv4ctl history")
    return first, second


def returns_to(failed: Generation, kept: Iterable[Kept]) -> Kept | None:
    """The release to which a failed deploy returns: the last that was proved.

    None: there is none, or it would render the same as the one that has just failed.
    """
    last = last_proved(kept)
    return last if last is not None and last.digest != failed.release.digest else None


def last_proved(kept: Iterable[Kept]) -> Kept | None:
    """The last release that was proved."""
    return max((one for one in kept if one.proved), key=lambda one: one.number, default=None)


def earlier(kept: Iterable[Kept], here: Kept | None) -> Kept | None:
    """The release that a rollback without a number goes to: the last proved one before what is installed."""
    before = (one for one in kept if here is None or (one.number < here.number and one.digest != here.digest))
    return last_proved(before)


def forgotten(kept: Iterable[Kept], here: Kept | None, most: int) -> tuple[int, ...]:
    """The numbers that go when `most` are kept; never what is installed, the last proved one, or the last of all."""
    by_age = sorted(kept, key=lambda one: -one.number)
    good = last_proved(by_age)
    spared = {one.number for one in (here, good, *by_age[: max(most, 1)]) if one is not None}
    return tuple(sorted(one.number for one in by_age if one.number not in spared))


def after(before: Verdict | None, now: Verdict) -> Verdict:
    """The verdict to keep after another attempt: that it was proved once is not forgotten."""
    proved_at = now.at if now.outcome is Outcome.PROVED else before.proved_at if before is not None else None
    first_took_s = before.first_took_s if before is not None else None
    if first_took_s is None and now.outcome is Outcome.PROVED:
        first_took_s = before.took_s if before is not None and before.outcome is Outcome.PROVED else now.took_s
    return replace(now, proved_at=proved_at, first_took_s=first_took_s)


def has_acted(line: Mapping[str, object]) -> bool:
    """Whether a line of the audit trail tells of a deploy or a teardown that did something.

    One that was refused has begun no step; one that was killed has no status, and may have done anything.
    """
    return line.get("what") in {*ATTEMPTS, "teardown"} and bool(line.get("steps") or line.get("status") in (0, None))


def is_taken_down(newest: Generation, trail: Iterable[Mapping[str, object]]) -> bool:
    """Whether a teardown came after the last attempt at the newest release. `trail`: the audit trail, oldest first."""
    acts = [line for line in trail if has_acted(line)]
    at = acts[-1].get("at") if acts else None
    return isinstance(at, float) and acts[-1]["what"] == "teardown" and at >= newest.at


def _instances(release: Release) -> frozenset[str]:
    return frozenset(one.digest for one in release.instances)
