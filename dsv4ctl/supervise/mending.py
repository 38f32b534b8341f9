"""What is done about a pair of which a half was started again. Pure; the probe is asked for and judged elsewhere.

The half that stayed may hold on to the one that was there before: its address, its agents, its id (sgl-project/sglang
#16903 and #36029, smg-project/smg #2491). So nothing is called whole before a probe has come through; and where that
fails, the half that stayed is started again, too, once.
"""

from dataclasses import dataclass, replace
from typing import TypeAlias

from dsv4ctl.model import Ask, Identity, Phase, Role
from dsv4ctl.pair import Judged, PairVerdict
from dsv4ctl.supervise.peers import Seen, Stand

Halves: TypeAlias = tuple[Seen, Seen]


@dataclass(frozen=True, slots=True)
class Probe:
    """Have the pair probed."""


@dataclass(frozen=True, slots=True)
class Restart:
    """Have this half started again. `hurried`: nothing that it carries can finish any more."""

    half: Seen
    because: str
    hurried: bool = False


@dataclass(frozen=True, slots=True)
class Renew:
    """Start the router itself again: both halves are well, and it does not reach them."""

    because: str


@dataclass(frozen=True, slots=True)
class Parted:
    """A pair of which one half is `gone`, dead or replaced, while the one that knows it `stayed`."""

    gone: Seen
    stayed: Seen

    @property
    def words(self) -> str:
        """`dsv4-decode was started again`."""
        return f"{_name(self.gone)} {'died' if _is_dead(self.gone) else 'was started again'}"


@dataclass(frozen=True, slots=True)
class Mending:
    """What is known of a pair, by the supervisors of its halves.

    `met`: whose engines may know each other. `proved`: through whom a generation came last. `asked`: who was asked to
    start again since. `tried`: who did not answer, with nothing left to try, and in `trouble` why.
    """

    met: tuple[Identity, ...] = ()
    proved: tuple[Identity, ...] = ()
    asked: Identity | None = None
    tried: tuple[Identity, ...] = ()
    trouble: str = ""


def of(seen: tuple[Seen, ...]) -> Halves | None:
    """The prefill and the decode among the workers of a router; None where they are whole servers."""
    by_role = {one.peer.role: one for one in seen}
    prefill, decode = by_role.get(Role.PREFILL), by_role.get(Role.DECODE)
    return (prefill, decode) if prefill and decode else None


def supervisors(halves: Halves) -> tuple[Identity, ...]:
    """Whose states these are; fewer than two where nothing was heard yet."""
    return tuple(half.supervisor for half in halves if half.supervisor)


def request(restart: Restart) -> Ask | None:
    """What a router's supervisor asks for, as it stands in its state."""
    meant, unit = restart.half.supervisor, restart.half.peer.unit
    if meant is None:
        return None
    return Ask(
        unit=unit,
        pid=meant.pid,
        start_ticks=meant.start_ticks,
        because=restart.because,
        hurried=restart.hurried,
    )


def parted(mending: Mending, halves: Halves) -> Parted | None:
    """The half that knows one that is gone, and that one. Who was stopped in peace is gone when another one comes."""
    pairs = list(zip(halves, mending.met, strict=False))
    gone = [half for half, was in pairs if half.supervisor not in (None, was) or _is_dead(half)]
    stayed = [half for half, was in pairs if half.supervisor == was and not _is_dead(half)]
    return Parted(gone[0], stayed[0]) if gone and stayed else None


def due(mending: Mending, halves: Halves, together: str) -> Probe | Restart | None:
    """What is to be done now. `together`: why one half may not come back alone, '' where it may.

    Where it may not, the half that stayed is not probed but started again at once, and where the other one died, before
    that one is back: both load side by side then, and they never meet. A prefill whose decode is gone has nobody left
    to hand over to; a decode finishes what it has got.
    """
    if together and (apart := parted(mending, halves)):
        stayed = apart.stayed
        if stayed.stand is not Stand.READY or stayed.supervisor == mending.asked:
            return None
        return Restart(stayed, f"{apart.words}: {together}", hurried=stayed.peer.role is Role.PREFILL)
    return Probe() if _are_ready(halves) and (mending.trouble or not is_proved(mending, halves)) else None


def meet(mending: Mending, halves: Halves, together: str) -> Mending:
    """What is known once requests may reach both."""
    is_kept_apart = bool(together) and parted(mending, halves) is not None
    return replace(mending, met=supervisors(halves)) if _are_ready(halves) and not is_kept_apart else mending


def is_proved(mending: Mending, halves: Halves) -> bool:
    """Whether these are the halves that a generation came through."""
    return supervisors(halves) == mending.proved


def judged(mending: Mending, halves: Halves, found: Judged) -> tuple[Mending, Restart | Renew | None]:
    """What is known after a probe of these halves, and what is done about it."""
    now = supervisors(halves)
    if found.verdict is PairVerdict.OK:
        return Mending(met=now, proved=now), None
    if found.verdict is PairVerdict.ROUTER:
        return mending, Renew(f"the halves are ready and the router does not reach them: {found.words}")
    pairs = list(zip(halves, mending.tried or mending.proved, strict=False))
    changed = [half for half, was in pairs if half.supervisor != was]
    stayed = [half for half, was in pairs if half.supervisor == was]
    if changed and stayed and stayed[0].supervisor != mending.asked:
        why = f"the pair does not answer since {_name(changed[0])} was started again ({found.verdict}): {found.words}"
        return mending, Restart(stayed[0], why)
    return replace(mending, asked=None, tried=now, trouble=f"{found.verdict}: {found.words}"), None


def asked(mending: Mending, half: Seen) -> Mending:
    """What is known after a half was asked to start again."""
    return replace(mending, asked=half.supervisor)


def words(mending: Mending, halves: Halves, together: str) -> str:
    """What is not whole about a pair, '' when all is."""
    if mending.trouble:
        return f"the pair does not answer ({mending.trouble})"
    if together and (apart := parted(mending, halves)):
        return f"both halves are restarted together, for {apart.words}"
    return "the pair is being proved again" if _are_ready(halves) and not is_proved(mending, halves) else ""


def _are_ready(halves: Halves) -> bool:
    return all(half.stand is Stand.READY for half in halves)


def _is_dead(half: Seen) -> bool:
    """Whether its engine ended otherwise than by a stop."""
    return half.stand is Stand.DOWN and half.state is not None and half.state.phase is not Phase.STOPPED


def _name(half: Seen) -> str:
    return half.peer.unit.removesuffix(".service")
