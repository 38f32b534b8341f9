"""How far a start has come, and how long is left by earlier starts. Pure: the clock is handed in."""

import statistics
from collections.abc import Iterable
from dataclasses import dataclass, replace

from dsv4ctl.model import Phase
from dsv4ctl.starts import PastStart, alike

ORDER = tuple(Phase)


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """A start at one moment. `since` and `moved_at` are monotonic seconds; `spent` holds the phases that are over."""

    phase: Phase
    since: float
    moved_at: float
    done: int = 0
    total: int = 0
    spent: tuple[tuple[Phase, float], ...] = ()


def begun(now: float) -> Progress:
    """The first moment of a start."""
    return Progress(phase=Phase.STARTING, since=now, moved_at=now)


def entered(progress: Progress, phase: Phase, now: float) -> Progress:
    """The start after a sign of `phase`. Ranks lag behind each other: a sign of an earlier phase changes nothing."""
    if ORDER.index(phase) <= ORDER.index(progress.phase):
        return progress
    spent = (*progress.spent, (progress.phase, now - progress.since))
    return Progress(phase=phase, since=now, moved_at=now, spent=spent)


def counted(progress: Progress, phase: Phase, count: tuple[int, int], now: float) -> Progress:
    """The start after `done of total` in a phase.

    Only a count that changed is progress: bars are redrawn. A smaller one is the next bar of its kind (the draft
    model's graphs after the target's), and progress too.
    """
    progress = entered(progress, phase, now)
    if phase is not progress.phase or count == (progress.done, progress.total):
        return progress
    return replace(progress, done=count[0], total=count[1], moved_at=now)


def held_up(progress: Progress, now: float) -> Progress:
    """The start while somebody else is waited for, who makes progress."""
    return replace(progress, moved_at=now)


def stalled_for(progress: Progress, now: float) -> float:
    """Seconds since the last progress."""
    return now - progress.moved_at


def finished(progress: Progress, now: float) -> tuple[tuple[Phase, float], ...]:
    """Every phase of a start that is over, with its seconds."""
    return (*progress.spent, (progress.phase, now - progress.since))


def left_s(progress: Progress, past: Iterable[PastStart], digest: str, now: float) -> int | None:
    """Seconds until ready, as the median of what earlier starts needed from here; None without any.

    Starts of the same instance digest are compared where there are some: another context length takes other times.
    """
    estimates = [_left_of(start, progress, now) for start in alike(past, digest)]
    known = [estimate for estimate in estimates if estimate is not None]
    return round(statistics.median(known)) or None if known else None


def _left_of(start: PastStart, progress: Progress, now: float) -> float | None:
    """What `start` needed from here; None once this phase takes much longer than then, for it may take any time."""
    later = sum(start.seconds.get(phase, 0.0) for phase in ORDER[ORDER.index(progress.phase) + 1 :])
    here, spent = start.seconds.get(progress.phase, 0.0), now - progress.since
    if progress.total and progress.done * 10 >= progress.total:
        # A tenth is enough to know how fast it goes today.
        return spent * (progress.total - progress.done) / progress.done + later
    return None if spent > 2 * here + 5 else max(0.0, here - spent) + later
