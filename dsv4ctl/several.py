"""The probe of whole servers behind a router: each is asked itself, then all through the router. Decides nothing."""

from dataclasses import dataclass, replace

from dsv4ctl import pair, pairing
from dsv4ctl.clock import Clock
from dsv4ctl.model import Instance
from dsv4ctl.pair import Generation
from dsv4ctl.servers import Asked

# A router that sends by what it has in its cache, or by chance, may leave one out a while. Of ten rounds with two
# requests at once, chance leaves one of two servers out once in half a million.
ROUNDS = 10


@dataclass(frozen=True, slots=True)
class Probed:
    """What each server answered and counted, and what came of the generations through the router."""

    servers: tuple[Asked, ...]
    through: tuple[Generation, ...] = ()


def look(router: Instance, servers: tuple[Instance, ...], key: str, clock: Clock, *, limit_s: float) -> Probed:
    """Probe them; each generation gets `limit_s`. The router is asked nothing while a server does not answer itself.

    Through the router as many are sent at once as there are servers, or it may send all to the same; and again, until
    each has counted one. Never raises for what the others do.
    """
    seen = tuple(replace(one, before=pairing.counts(one.server, key)) for one in _each(servers, key, clock, limit_s))
    if not all(one.first.came for one in seen):
        return Probed(seen)
    through: tuple[Generation, ...] = ()
    for _ in range(ROUNDS):
        asked = tuple((router, pairing.nonce()) for _ in servers)
        came = at_once(asked, key, clock, limit_s)
        through += came
        seen = tuple(replace(one, after=pairing.counts(one.server, key)) for one in seen)
        if not all(one.came for one in came) or not any(one.is_passed_over for one in seen):
            break
    return Probed(seen, through)


def _each(servers: tuple[Instance, ...], key: str, clock: Clock, limit_s: float) -> tuple[Asked, ...]:
    """What each server answers itself, all of them side by side."""
    asked = tuple((one, pairing.nonce()) for one in servers)
    firsts = at_once(asked, key, clock, limit_s)
    return tuple(
        Asked(
            server=server,
            nonce=nonce,
            first=first,
            second=pairing.generate(server, nonce, key, limit_s) if pair.wants_second(first, nonce) else None,
        )
        for (server, nonce), first in zip(asked, firsts, strict=True)
    )


def at_once(asked: tuple[tuple[Instance, str], ...], key: str, clock: Clock, limit_s: float) -> tuple[Generation, ...]:
    """One generation of each instance with its nonce, side by side; what does not come within the limit is given up."""
    end = clock.now() + limit_s
    pending = [pairing.begun(front, nonce, key, limit_s) for front, nonce in asked]
    try:
        return tuple(pairing.generation(one.answer(end - clock.now()), limit_s) for one in pending)
    finally:
        for one in pending:
            one.give_up()
