"""When a stopping engine is asked, told and forced. Pure: the clock is handed in."""

from dataclasses import dataclass, replace

from dsv4ctl.model import Limits


@dataclass(frozen=True, slots=True, kw_only=True)
class Drain:
    """The moments of a stop, in monotonic seconds. `idle_since` is when the last request had gone, None before."""

    abort_at: float
    engine_stop_s: float
    idle_since: float | None = None
    forced: bool = False

    @property
    def kill_at(self) -> float:
        """When the engine has had its time.

        It is counted from the drain limit, or from the last request's end where that came first: an idle engine that
        does not end has nothing left to wait for.
        """
        begin = self.abort_at if self.idle_since is None else min(self.abort_at, self.idle_since)
        return begin if self.forced else begin + self.engine_stop_s


def begun(limits: Limits, now: float, *, hurried: bool) -> Drain:
    """A drain from now on. `hurried`: requests are aborted at once."""
    return Drain(abort_at=now if hurried else now + limits.drain_s, engine_stop_s=limits.engine_stop_s)


def carries(drain: Drain, left: int | None, now: float) -> Drain:
    """The drain after the engine told how many requests it carries; None: it did not tell."""
    if left is None:
        return drain
    if left:
        return replace(drain, idle_since=None)
    return drain if drain.idle_since is not None else replace(drain, idle_since=now)


def hurry(drain: Drain, now: float) -> Drain:
    """The drain after another signal to stop: one ends the wait for requests, the next the wait for the engine."""
    if now < drain.abort_at:
        return replace(drain, abort_at=now)
    return replace(drain, forced=True)
