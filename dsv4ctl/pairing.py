"""The probe of a pair: one new generation through the router, and what both halves counted of it. Decides nothing."""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from dsv4ctl import pair, probe
from dsv4ctl.clock import Clock, until
from dsv4ctl.engine import bodies
from dsv4ctl.engine.counters import Counts, parse_counts, parse_queues
from dsv4ctl.engine.questions import Question
from dsv4ctl.model import Instance, Peer, Role
from dsv4ctl.pair import Generation, Half, PairVerdict, Probed

ASK_TIMEOUT_S = 5.0
# Both halves count a request when its answer has gone out, a moment after it is here.
COUNTED_WITHIN_S = 3.0
# A request is given up this long after it was looked for: so long it stands in the queues of whoever has it.
LINGER_S = 2 * ASK_TIMEOUT_S + 2
# So much of an answer that is no completion is shown.
SAID = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A prefill, a decode, and the router in front of them."""

    prefill: Peer
    decode: Peer
    router: Instance


def nonce() -> str:
    """A word that no generation was ever asked for. As `secrets` makes one, which would load 4 MB of OpenSSL for it."""
    return os.urandom(6).hex()


def of(instances: Iterable[Instance]) -> Pair | None:
    """The pair that the router among the instances knows; None where there is none."""
    router = next((instance for instance in instances if instance.role is Role.ROUTER), None)
    behind = {peer.role: peer for peer in router.peers} if router else {}
    if router is None or not {Role.PREFILL, Role.DECODE} <= behind.keys():
        return None
    return Pair(prefill=behind[Role.PREFILL], decode=behind[Role.DECODE], router=router)


def look(found: Pair, nonce: str, key: str, clock: Clock, *, limit_s: float) -> Probed:
    """Probe the pair; each generation, and there are two at most, gets `limit_s`. A bare one is never sent to a half.

    Of a pair that is not ready nothing is asked. Never raises for what the others do.
    """
    before = Probed(
        nonce=nonce,
        must_repeat=found.prefill.repeats,
        prefill=replace(_counted(found.prefill, key), trouble=_prefill_trouble(found.prefill)),
        decode=replace(_counted(found.decode, key), trouble=_trouble(found.decode, Question.READY)),
        router_trouble=_trouble(found.router, Question.READINESS),
    )
    if before.prefill.trouble or before.decode.trouble or before.router_trouble:
        return before
    with asking(found.router, nonce, key, limit_s) as first:
        second = generate(found.router, nonce, key, limit_s) if pair.wants_second(first, nonce) else None
        return _counted_by_both(found, replace(before, first=first, second=second), key, clock)


def _counted_by_both(found: Pair, asked: Probed, key: str, clock: Clock) -> Probed:
    """What was asked with what the halves count now; after an answer they get a moment to count it."""

    def now() -> Probed:
        return replace(
            asked,
            prefill=replace(_counted(found.prefill, key), before=asked.prefill.after),
            decode=replace(_counted(found.decode, key), before=asked.decode.after),
        )

    def settled() -> Probed | None:
        seen = now()
        return None if pair.judge(seen).verdict is PairVerdict.ROUTER else seen

    came = asked.first is not None and asked.first.came
    return (until(settled, clock, COUNTED_WITHIN_S, 0.05) if came else None) or now()


def generate(front: Instance, nonce: str, key: str, limit_s: float) -> Generation:
    """One generation through a router, or of a whole server; one that does not come within the limit is given up."""
    with asking(front, nonce, key, limit_s) as found:
        return found


@contextmanager
def asking(front: Instance, nonce: str, key: str, limit_s: float) -> Iterator[Generation]:
    """The same; one that does not come is still under way within the block, so that it can be looked for.

    After the block nothing of it is under way: the next probe would take it for its own.
    """
    pending = begun(front, nonce, key, limit_s)
    try:
        yield generation(pending.answer(limit_s), limit_s)
    finally:
        pending.give_up()


def begun(front: Instance, nonce: str, key: str, limit_s: float) -> probe.Pending:
    """A generation under way; it must be given up once it is not waited for any more."""
    url, body = f"{probe.base_url(front.host, front.port)}/v1/completions", pair.payload(front.served_model_name, nonce)
    return probe.Pending(url, body, key, timeout_s=limit_s + LINGER_S)


def generation(answer: probe.Answer | None, limit_s: float) -> Generation:
    """What an answer is as a generation; None: none came within the limit."""
    if answer is None:
        return Generation(status=None, seconds=limit_s)
    match answer.json():
        case {"choices": [{"text": str(text)}, *_]}:
            return Generation(status=answer.status, text=text, error=answer.error, seconds=answer.seconds)
    said = bodies.own_reason(answer.body) or " ".join(answer.body.decode(errors="replace").split())[:SAID]
    return Generation(status=answer.status, error=answer.error, said=said, seconds=answer.seconds)


def counts(engine: Instance | Peer, key: str) -> Counts | None:
    """What an engine has counted by now; None where it does not say."""
    metrics = probe.get(f"{probe.base_url(engine.host, engine.port)}/metrics", key, timeout_s=ASK_TIMEOUT_S)
    return parse_counts(metrics.body.decode(errors="replace"))


def _counted(half: Peer, key: str) -> Half:
    url, after = probe.base_url(half.host, half.port), counts(half, key)
    loads = probe.get(f"{url}/v1/loads?include=all", key, timeout_s=ASK_TIMEOUT_S)
    return Half(after=after, queues=parse_queues(loads.body))


def _prefill_trouble(prefill: Peer) -> str:
    return _trouble(prefill, Question.READY) or _trouble(prefill, Question.ROUTE, prefill.bootstrap_port)


def _trouble(instance: Instance | Peer, path: Question, port: int | None = None) -> str:
    """Why it is not ready by its own word; '' when it is. Engines of before /ready say 404 and mean nothing by it."""
    answer = probe.get(f"{probe.base_url(instance.host, port or instance.port)}{path}", timeout_s=ASK_TIMEOUT_S)
    if answer.status == 200 or (answer.status == 404 and path is Question.READY):
        return ""
    said = answer.error or f"status {answer.status}"
    return f"{path.partition('?')[0]} on port {port or instance.port} says {said}"
