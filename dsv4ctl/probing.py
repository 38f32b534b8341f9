"""The proof of all that is deployed: each instance by its own sign, then one new generation through the whole of it."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TypeAlias

from dsv4ctl import installed, pair, pairing, proof, servers, several, standing, systemd
from dsv4ctl.findings import Probing
from dsv4ctl.host import Host
from dsv4ctl.model import ActiveState, Instance, Role
from dsv4ctl.pair import PairVerdict, Probed
from dsv4ctl.problems import NotReady
from dsv4ctl.store import Claim, lock

Says: TypeAlias = Callable[[str], None]


def prove(host: Host, instances: tuple[Instance, ...]) -> Probing:
    """What a deploy has to show: every instance proved, and behind a router one generation through all of it.

    An engine without a router was asked for one by its supervisor, before it said READY=1. Raises NotReady for whatever
    is at fault, with what to type.
    """
    began = host.clock.now()
    proofs = tuple(proof.soon(one, host.clock) for one in instances)
    router = next((one for one in instances if one.role is Role.ROUTER), None)
    found = _crossed(host, instances, router) if router else Probing(verdict=PairVerdict.OK, words="")
    return replace(found, proofs=proofs, seconds=host.clock.now() - began)


def _crossed(host: Host, instances: tuple[Instance, ...], router: Instance) -> Probing:
    limit_s = router.limits.proof_s
    with _one_at_a_time(host, instances, Claim(what="a proof", wait_s=limit_s)):
        found = _generated(host, instances, limit_s)
    require(found)
    return found


def run(host: Host, instances: tuple[Instance, ...], says: Says, *, limit_s: float) -> Probing:
    """Probe what is deployed as it is now; the generation gets `limit_s`. A verdict may be the name of an instance.

    Another probe, be it a supervisor's, is waited for as long, and `says` is told whose it is. Raises Busy then.
    """
    claim = Claim(what="a probe", wait_s=limit_s, says=says, advice="dsv4ctl probe --limit SECONDS   waits longer")
    with _one_at_a_time(host, instances, claim):
        began = host.clock.now()
        found = signs(host, instances)
        if found.verdict == PairVerdict.OK:
            found = replace(_generated(host, instances, limit_s), proofs=found.proofs)
        found = _still(instances, found, limit_s)
        return replace(found, seconds=host.clock.now() - began)


def signs(host: Host, instances: tuple[Instance, ...]) -> Probing:
    """Whether each answers and is ready by its own sign, engines before the router; no generation is asked for."""
    began, proofs = host.clock.now(), []
    words, verdict, advice = "ready by its own sign; no generation was asked for", str(PairVerdict.OK), ""
    for one in sorted(instances, key=lambda one: one.role is Role.ROUTER):
        try:
            proofs.append(proof.of(one))
        except NotReady as problem:
            verdict, (words, advice) = one.name, _whole(host, one, problem)
            break
    seconds = host.clock.now() - began
    return Probing(verdict=verdict, words=words, advice=advice, seconds=seconds, proofs=tuple(proofs))


def _whole(host: Host, one: Instance, problem: NotReady) -> tuple[str, str]:
    """What is wrong with an instance and what to type, with what systemd and its supervisor know of it."""
    unit = systemd.show((one.unit,))[one.unit]
    stands = standing.of(unit, standing.own(installed.run_state(host, one.name), one.digest, unit))
    if stands.state == ActiveState.INACTIVE:
        return f"{problem}; it is stopped", f"systemctl start {one.unit}   starts it as it is installed"
    if stands.state == ActiveState.ACTIVE:
        # Its supervisor has nothing to add, unless it has noticed as well.
        return f"{problem}; {stands.words}" if stands.words.startswith("failing") else str(problem), problem.hint
    advice = "dsv4ctl status --watch   shows how far it is" if stands.state == "starting" else stands.advice
    return f"{problem}; {stands.words}" if stands.words else str(problem), advice or problem.hint


def require(found: Probing) -> None:
    """Raise NotReady unless the verdict is ok."""
    if found.verdict != PairVerdict.OK:
        raise NotReady(f"cannot prove what is deployed: {found.verdict}: {found.words}", hint=found.advice)


def _one_at_a_time(host: Host, instances: tuple[Instance, ...], claim: Claim) -> AbstractContextManager[object]:
    """Two generations at once would count for each other; the supervisor of whom clients ask holds the same lock."""
    return lock.held(host.paths.probe_lock(_front(instances).name), claim, host.clock)


def _front(instances: tuple[Instance, ...]) -> Instance:
    """Whom clients ask: the router, or the only server."""
    return next((one for one in instances if one.role is Role.ROUTER), instances[0])


def _generated(host: Host, instances: tuple[Instance, ...], limit_s: float) -> Probing:
    """One new generation through everything, and what came of it."""
    front, found = _front(instances), pairing.of(instances)
    key = proof.api_key(front)
    if found is not None:
        return _through_pair(pairing.look(found, pairing.nonce(), key, host.clock, limit_s=limit_s))
    if front.role is not Role.ROUTER:
        return _alone(front, key, limit_s)
    probed = several.look(front, _behind(instances), key, host.clock, limit_s=limit_s)
    return servers.judge(front, probed.servers, probed.through)


def _behind(instances: tuple[Instance, ...]) -> tuple[Instance, ...]:
    return tuple(one for one in instances if one.role is Role.SERVER)


def _through_pair(probed: Probed) -> Probing:
    judged = pair.judge(probed)
    answer_s = probed.first.seconds if probed.first is not None and probed.first.came else None
    return Probing(verdict=judged.verdict, words=judged.words, advice=pair.ADVICE[judged.verdict], answer_s=answer_s)


def _alone(server: Instance, key: str, limit_s: float) -> Probing:
    """A generation of the only server itself."""
    nonce = pairing.nonce()
    asked = pairing.generate(server, nonce, key, limit_s)
    again = pairing.generate(server, nonce, key, limit_s) if pair.wants_second(asked, nonce) else None
    judged = pair.judge_servers(asked, again, nonce)
    is_ok = judged.verdict is PairVerdict.OK
    return Probing(
        verdict=server.name if judged.verdict is PairVerdict.ROUTER else judged.verdict,
        words=judged.words,
        advice="" if is_ok else f"dsv4ctl logs {server.name}",
        answer_s=asked.seconds if asked.came else None,
    )


def _still(instances: tuple[Instance, ...], found: Probing, limit_s: float) -> Probing:
    """With a server down, what clients of the router get meanwhile."""
    front, names = _front(instances), {one.name for one in _behind(instances)}
    if front.role is not Role.ROUTER or found.verdict not in names:
        return found
    asked = pairing.generate(front, pairing.nonce(), proof.api_key(front), limit_s)
    answers = "answers all the same" if asked.came and asked.text.strip() else "does not answer either"
    return replace(found, words=f"{found.words}; port {front.port} {answers}")
