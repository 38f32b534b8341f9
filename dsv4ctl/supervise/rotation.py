"""The router's own list of workers (sglang-router 0.3.2, /workers): one that drains is taken out, and back in again.

Without it a router sends to a worker that drains until its health checks have failed twice; after a removal it sends
nothing new at once, and what runs may finish (seen with 0.3.2).
"""

from dataclasses import dataclass

from dsv4ctl import probe
from dsv4ctl.clock import until
from dsv4ctl.engine import workers
from dsv4ctl.model import Peer, Role
from dsv4ctl.supervise.run import Run

ASK_TIMEOUT_S = 3.0
# Both are queued by the router; a removal took 0.01 s, an addition a second, in which it asks the worker what it is.
WITHIN_S = 10.0


@dataclass(frozen=True, slots=True)
class Turned:
    """A worker was taken out of the rotation, or back in; or why it could not be."""

    name: str
    out: bool
    trouble: str = ""


def take_out(run: Run, peer: Peer) -> Turned:
    """Have the router send nothing to this worker. Never raises for what the router does."""

    def gone() -> bool | None:
        listed = _listed(run)
        return True if listed is not None and workers.url(peer) not in listed else None

    listed = _listed(run)
    if listed is None:
        return Turned(peer.name, out=False, trouble="it does not list its workers")
    if found := listed.get(workers.url(peer)):
        probe.delete(run.url(f"/workers/{found}"), run.key, timeout_s=ASK_TIMEOUT_S)
    out = until(gone, run.clock, WITHIN_S, 0.05) or False
    return Turned(peer.name, out=out, trouble="" if out else "it keeps it")


def take_in(run: Run, peer: Peer) -> Turned:
    """Have the router send to this worker again. Never raises for what the router does."""
    kind = "regular" if peer.role is Role.SERVER else str(peer.role)
    body: dict[str, object] = {"url": workers.url(peer), "worker_type": kind}
    body |= {"bootstrap_port": peer.bootstrap_port} if peer.bootstrap_port else {}
    body |= {"api_key": run.key} if run.key else {}
    probe.post(run.url("/workers"), body, run.key, timeout_s=ASK_TIMEOUT_S)
    there = until(lambda: workers.url(peer) in (_listed(run) or {}) or None, run.clock, WITHIN_S, 0.1)
    return Turned(peer.name, out=not there, trouble="" if there else "it does not take it in")


def _listed(run: Run) -> dict[str, str] | None:
    """URL -> id of every worker that the router has; None: it does not say."""
    return workers.ids(probe.get(run.url("/workers"), run.key, timeout_s=ASK_TIMEOUT_S).body)
