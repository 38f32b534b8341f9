"""When a stopping engine is asked, told and forced. Pure: the clock is handed in."""

from dataclasses import dataclass, replace

from dsv4ctl.model import Limits

# How long a router may take to stop sending to an engine that drains; one that does not at all is not waited for.
OUT_S = 5.0
# What the router had sent by then has arrived, and is counted.
SETTLE_S = 1.0
# An engine lets go of aborted requests within this time, or it does not do so at all.
ABORTED_S = 5.0


@dataclass(frozen=True, slots=True)
class Load:
    """How many requests are carried; None: it did not say. `tells`: whether it ever will, for older builds cannot."""

    left: int | None
    tells: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Drain:
    """The moments of a stop, in monotonic seconds. `idle_since` is when the last request had gone, None before.

    `holds`: SIGTERM is not sent yet, for the engine is one behind a router, which must stop sending to it first, and a
    prefill must not be ended while a decode pulls from it. `out_at` is when the router was seen to have stopped.
    `tells`: the engine has the endpoint that counts its requests.
    """

    abort_at: float
    engine_stop_s: float
    began_at: float
    term_at: float
    idle_since: float | None = None
    forced: bool = False
    holds: bool = False
    out_at: float | None = None
    tells: bool = True

    @property
    def kill_at(self) -> float:
        """When the engine has had its time.

        It is counted from the drain limit, or from the last request's end where that came first: an idle engine that
        does not end has nothing left to wait for. Before SIGTERM it has no reason to end.
        """
        idle = self.idle_since is not None and not self.holds
        begin = min(self.abort_at, max(self.idle_since or 0.0, self.term_at)) if idle else self.abort_at
        return begin if self.forced else begin + self.engine_stop_s


def begun(limits: Limits, now: float, *, hurried: bool, holds: bool = False) -> Drain:
    """A drain from now on. `hurried`: requests are aborted at once."""
    abort_at = now if hurried else now + limits.drain_s
    return Drain(
        abort_at=abort_at,
        engine_stop_s=limits.engine_stop_s,
        began_at=now,
        term_at=now,
        holds=holds,
    )


def routed(drain: Drain, now: float, *, sends: bool) -> Drain:
    """The drain after a look at the router. `sends`: it may still send to this engine."""
    if sends:
        return replace(drain, out_at=None)
    return drain if drain.out_at is not None else replace(drain, out_at=now)


def is_due(drain: Drain, now: float) -> bool:
    """Whether SIGTERM is held back no longer: nothing is carried and nothing more comes, or the limit is over.

    At the limit requests are aborted first, so that also then nobody pulls from a prefill that is told to end.
    """
    if now >= drain.abort_at + min(ABORTED_S, drain.engine_stop_s / 2):
        return True
    out_at = drain.out_at if drain.out_at is not None else drain.began_at + OUT_S
    # A router that did not send when the drain began sends nothing that could still be on its way.
    settled_at = out_at if out_at <= drain.began_at else out_at + SETTLE_S
    if not drain.tells:
        return now >= settled_at
    return drain.idle_since is not None and now >= max(drain.idle_since + settled_at - out_at, settled_at)


def termed(drain: Drain, now: float) -> Drain:
    """The drain after SIGTERM."""
    return replace(drain, holds=False, term_at=now)


def carries(drain: Drain, load: Load, now: float) -> Drain:
    """The drain after the engine was asked how many requests it carries."""
    drain, left = replace(drain, tells=load.tells), load.left
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
