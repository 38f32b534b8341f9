"""Whole servers behind a router: who is at fault, from what each answers itself and counts of the router's. Pure."""

from dataclasses import dataclass

from dsv4ctl import pair
from dsv4ctl.engine.counters import Counts
from dsv4ctl.findings import Probing
from dsv4ctl.model import Instance
from dsv4ctl.pair import Generation, PairVerdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One server: its own answers to a prompt with the nonce, the second where `pair.wants_second` says so.

    `before` and `after` what went through the router; None: it did not say.
    """

    server: Instance
    nonce: str
    first: Generation
    second: Generation | None = None
    before: Counts | None = None
    after: Counts | None = None

    @property
    def is_passed_over(self) -> bool:
        """Whether nothing has come through the router, as far as it tells what it counts."""
        return self.before is not None and self.after is not None and self.before.arrived == self.after.arrived


def judge(router: Instance, servers: tuple[Asked, ...], through: tuple[Generation, ...]) -> Probing:
    """Who is at fault, by name. One that does not answer itself is named before the router, which only passes it on.

    A router hides a server that fails: it sends to another one. So each has to answer itself, and to have counted one
    of the generations that were sent `through` the router.
    """
    for one in servers:
        if fault := _own_fault(one):
            return fault
    if lost := next((one for one in through if not (one.came and one.text.strip())), None):
        said = pair.judge_servers(lost, None, "").words
        return _of_router(router, f"each server answers itself, and through the router there is this: {said}")
    if over := [one.server for one in servers if one.is_passed_over]:
        names = " and ".join(f"{one.unit} (port {one.port})" for one in over)
        return _of_router(router, f"none of {len(through)} generations through the router reached {names}")
    return Probing(verdict=PairVerdict.OK, words=_well(servers, through), answer_s=through[0].seconds)


def _own_fault(one: Asked) -> Probing | None:
    judged = pair.judge_servers(one.first, one.second, one.nonce)
    words, name, unit = f"{one.server.unit} itself: {judged.words}", one.server.name, one.server.unit
    match judged.verdict:
        case PairVerdict.OK:
            return None
        case PairVerdict.GARBAGE:
            advice = f"dsv4ctl logs {name}; else look at the model and at switches of kernels in [engine]"
            return Probing(verdict=PairVerdict.GARBAGE, words=words, advice=advice, answer_s=one.first.seconds)
    return Probing(verdict=name, words=words, advice=f"dsv4ctl logs {name}, then systemctl restart {unit}")


def _of_router(router: Instance, words: str) -> Probing:
    advice = f"dsv4ctl logs {router.name}, then systemctl restart {router.unit}"
    return Probing(verdict=router.name, words=words, advice=advice)


def _well(servers: tuple[Asked, ...], through: tuple[Generation, ...]) -> str:
    counted = all(one.before is not None and one.after is not None for one in servers)
    whose = "has counted one of" if counted else "may have got one of (metrics are off)"
    count = f"{len(through)} generations that came" if len(through) > 1 else "the generations"
    return (
        f"each of {len(servers)} servers answered itself and {whose} {count} through the router, "
        f"the first in {through[0].seconds:.1f} s"
    )
