"""The router's own list of workers (sglang-router 0.3.2, /workers): one that drains is taken out, and back in again.

Without it a router sends to a worker that drains until its health checks have failed twice; after a removal it sends
nothing new at once, and what runs may finish (seen with 0.3.2).
"""

from collections.abc import Container, Iterable
from dataclasses import dataclass

from dsv4ctl import probe
from dsv4ctl.clock import Clock, until
from dsv4ctl.engine import workers
from dsv4ctl.model import Peer, Role
from dsv4ctl.supervise.peers import Seen, Stand

PATH = "/workers"
ASK_TIMEOUT_S = 3.0
# Both are queued by the router; a removal took 0.01 s, an addition a second, in which it asks the worker what it is.
WITHIN_S = 10.0


@dataclass(frozen=True, slots=True)
class Turned:
    """A worker was taken out of the rotation, or back in; or why it could not be."""

    name: str
    out: bool
    trouble: str = ""


@dataclass(frozen=True, slots=True)
class Listing:
    """A router's list of workers: the router's URL, the key it wants, and a clock to wait by."""

    url: str
    key: str
    clock: Clock

    def read(self) -> dict[str, str] | None:
        """URL -> id of every worker that the router has; None: it does not say."""
        return workers.ids(probe.get(self.url + PATH, self.key, timeout_s=ASK_TIMEOUT_S).body)


def to_take_out(seen: Iterable[Seen], without: Container[str], kept_out: Seen | None) -> tuple[Peer, ...]:
    """Who is still sent to and drains, or is to be `kept_out`. `without`: the names of those that are out."""
    return tuple(
        one.peer for one in seen if one.peer.name not in without and (one.stand is Stand.GOING or one == kept_out)
    )


def to_take_in(seen: Iterable[Seen], without: Container[str], kept_out: Seen | None) -> tuple[Peer, ...]:
    """Who is out and serves, and may be sent to."""
    return tuple(one.peer for one in seen if one.peer.name in without and one.stand is Stand.READY and one != kept_out)


def take_out(listing: Listing, peer: Peer) -> Turned:
    """Have the router send nothing to this worker. Never raises for what the router does."""

    def gone() -> bool | None:
        listed = listing.read()
        return True if listed is not None and workers.url(peer) not in listed else None

    listed = listing.read()
    if listed is None:
        return Turned(peer.name, out=False, trouble="it does not list its workers")
    if found := listed.get(workers.url(peer)):
        probe.delete(f"{listing.url}{PATH}/{found}", listing.key, timeout_s=ASK_TIMEOUT_S)
    out = until(gone, listing.clock, WITHIN_S, 0.05) or False
    return Turned(peer.name, out=out, trouble="" if out else "it keeps it")


def take_in(listing: Listing, peer: Peer) -> Turned:
    """Have the router send to this worker again. Never raises for what the router does."""
    kind = "regular" if peer.role is Role.SERVER else str(peer.role)
    body: dict[str, object] = {"url": workers.url(peer), "worker_type": kind}
    body |= {"bootstrap_port": peer.bootstrap_port} if peer.bootstrap_port else {}
    body |= {"api_key": listing.key} if listing.key else {}
    probe.post(listing.url + PATH, body, listing.key, timeout_s=ASK_TIMEOUT_S)
    there = until(lambda: workers.url(peer) in (listing.read() or {}) or None, listing.clock, WITHIN_S, 0.25)
    return Turned(peer.name, out=not there, trouble="" if there else "it does not take it in")
