"""What is done about a pair of which a half was started again. Pure; the probe is asked for and judged elsewhere.

The half that stayed may hold on to the one that was there before: its address, its agents, its id (sgl-project/sglang
#16903 and #36029, smg-project/smg #2491). So nothing is called whole before a probe has come through; and where that
fails, the half that stayed is started again, too, once.
"""

from dataclasses import dataclass, replace
from typing import TypeAlias

from dsv4ctl.model import Ask, Identity, Role
from dsv4ctl.pair import Judged, PairVerdict
from dsv4ctl.supervise.peers import Seen, Stand

Halves: TypeAlias = tuple[Seen, Seen]


@dataclass(frozen=True, slots=True)
class Probe:
    """Have the pair probed."""


@dataclass(frozen=True, slots=True)
class Restart:
    """Have this half started again."""

    half: Seen
    because: str


@dataclass(frozen=True, slots=True)
class Renew:
    """Start the router itself again: both halves are well, and it does not reach them."""

    because: str


@dataclass(frozen=True, slots=True)
class Mending:
    """What is known of a pair. `proved`: the supervisors of the halves that a generation came through.

    `asked`: the half that was asked to start again since. `trouble`: why the pair does not answer, with both halves
    started again, so that there is nothing left to try.
    """

    proved: tuple[Identity, ...] = ()
    asked: Identity | None = None
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
    return Ask(unit=unit, pid=meant.pid, start_ticks=meant.start_ticks, because=restart.because)


def due(mending: Mending, halves: Halves, together: str) -> Probe | Restart | None:
    """What is to be done now. `together`: why one half may not come back alone, '' where it may.

    Where it may not, the half that stayed is not probed but started again at once: both load side by side then.
    """
    changed, stayed = _changed(mending, halves)
    if together and changed and stayed and stayed.stand is Stand.READY:
        if stayed.supervisor == mending.asked:
            return None
        return Restart(stayed, f"{_name(changed)} was started again: {together}")
    if (changed or mending.trouble) and all(half.stand is Stand.READY for half in halves):
        return Probe()
    return None


def judged(mending: Mending, halves: Halves, found: Judged) -> tuple[Mending, Restart | Renew | None]:
    """What is known after a probe of these halves, and what is done about it."""
    if found.verdict is PairVerdict.OK:
        return Mending(proved=supervisors(halves)), None
    if found.verdict is PairVerdict.ROUTER:
        return mending, Renew(f"the halves are ready and the router does not reach them: {found.words}")
    changed, stayed = _changed(mending, halves)
    if changed and stayed and stayed.supervisor != mending.asked:
        why = f"the pair does not answer since {_name(changed)} was started again ({found.verdict}): {found.words}"
        return mending, Restart(stayed, why)
    return Mending(proved=supervisors(halves), trouble=f"{found.verdict}: {found.words}"), None


def asked(mending: Mending, half: Seen) -> Mending:
    """What is known after a half was asked to start again."""
    return replace(mending, asked=half.supervisor)


def _changed(mending: Mending, halves: Halves) -> tuple[Seen | None, Seen | None]:
    """A half that is not the proved one any more, and, if only one has changed, the other."""
    pairs = list(zip(halves, mending.proved, strict=False))
    changed = [half for half, was in pairs if half.supervisor not in (None, was)]
    stayed = [half for half, was in pairs if half.supervisor == was]
    return (changed[0] if changed else None), (stayed[0] if stayed else None)


def _name(half: Seen) -> str:
    return half.peer.unit.removesuffix(".service")
