"""What an instance answers now, for a table: ready or not, its load, a router's workers. Never waits long."""

from dataclasses import dataclass

from dsv4ctl import probe, proof
from dsv4ctl.engine import workers
from dsv4ctl.engine.questions import Question
from dsv4ctl.model import Instance, Role, Unit

# /ready and /v1/loads answer in milliseconds; an engine whose loop is blocked must not hold the whole table up.
TIMEOUT_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What an engine says of itself in /v1/loads; None where it says nothing."""

    kv_tokens: int | None = None
    running: int | None = None
    waiting: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What an instance answers: its health in words, whether it serves, and what it carries or sends to.

    `whole`: a router sends to all that it should send to; one that serves may lack a server.
    """

    health: str
    serves: bool = False
    whole: bool = True
    load: Load = Load()
    workers_healthy: int | None = None


def of(instance: Instance, unit: Unit) -> Asked:
    """Readiness and load of an active instance, if it is its own processes that answer."""
    if not proof.holders_of(instance, unit):
        return Asked(health=f"nothing of it listens on {instance.port}")
    return _router(instance) if instance.role is Role.ROUTER else _engine(instance)


def _engine(instance: Instance) -> Asked:
    base, key = probe.base_url(instance.host, instance.port), proof.api_key(instance)
    ready = probe.get(f"{base}{Question.READY}", timeout_s=TIMEOUT_S)
    if ready.status == 404:
        ready = probe.get(f"{base}{Question.MODELS}", key, timeout_s=TIMEOUT_S)
    loads = probe.get(f"{base}/v1/loads", key, timeout_s=TIMEOUT_S)
    if loads.status == 401:
        return Asked(health="key refused (401)")
    return Asked(health=said(ready), serves=ready.status == 200, load=parse_loads(loads.json()))


def _router(router: Instance) -> Asked:
    """A router serves with as few workers as it says itself, and is whole with every one that it should have."""
    ready = probe.get(f"{probe.base_url(router.host, router.port)}{Question.READINESS}", timeout_s=TIMEOUT_S)
    seen = proof.workers_of(router, timeout_s=TIMEOUT_S)
    if seen is None:
        return Asked(health=said(ready), serves=ready.status == 200)
    healthy = len(router.peers) - len(workers.missing(router.peers, seen))
    count = f"{healthy}/{len(router.peers)} workers"
    is_ready, is_whole = ready.status == 200, healthy == len(router.peers)
    words = count if is_ready else f"{said(ready)}, {count}"
    return Asked(health=words, serves=is_ready, whole=is_whole, workers_healthy=healthy)


def said(ready: probe.Answer) -> str:
    """An answer about readiness, in words for a column."""
    if ready.status == 200:
        return "ready"
    return f"not ready ({ready.status})" if ready.status else f"no answer ({ready.error})"


def parse_loads(body: object) -> Load:
    """Sum over the data-parallel ranks of /v1/loads."""
    ranks = body.get("loads") if isinstance(body, dict) else None
    if not isinstance(ranks, list) or not ranks:
        return Load()
    return Load(
        kv_tokens=_sum(ranks, "max_total_num_tokens"),
        running=_sum(ranks, "num_running_reqs"),
        waiting=_sum(ranks, "num_waiting_reqs"),
    )


def _sum(ranks: list[dict[str, object]], key: str) -> int | None:
    values = [v for rank in ranks if isinstance(v := rank.get(key), int)]
    return sum(values) if values else None
