"""The proof of one instance from outside: what answers is what was asked for, by the sign of its own role."""

from pathlib import Path

from dsv4ctl import probe, procs, sockets, systemd
from dsv4ctl.clock import Clock
from dsv4ctl.engine import bodies, workers
from dsv4ctl.engine.questions import Question
from dsv4ctl.findings import Proof
from dsv4ctl.model import Holder, Instance, Peer, Role, Unit
from dsv4ctl.problems import NotReady

ASK_TIMEOUT_S = 5.0
# A router looks at its workers every second, or every 10 where they have no /ready.
LOOK_AGAIN_S = 0.2


def api_key(instance: Instance) -> str:
    """The key clients must send; '' when there is none or it cannot be read. Never shown."""
    if instance.api_key_file is None:
        return ""
    try:
        return Path(instance.api_key_file).read_text().strip()
    except OSError:
        return ""


def of(instance: Instance, unit: Unit | None = None) -> Proof:
    """Prove one instance: the unit is active, its own processes listen, and it says itself that it is ready.

    server: /ready, and it serves the model asked for. prefill: that, and all its ranks are registered on its bootstrap
    port. decode: as a server. router: /readiness, and it sends to its workers, all of them and nobody else.
    A half of a pair is never sent a generation, which ends some; a server's was asked for by its supervisor before it
    said READY=1. `unit`: as systemd showed it just now. Raises NotReady with what is wrong.
    """
    unit = unit or systemd.show((instance.unit,))[instance.unit]
    url = probe.base_url(instance.host, instance.port)
    pid = _listener_pid(instance, unit, instance.port)
    _supervised(instance, unit)
    if instance.role is Role.ROUTER:
        _sends(instance, url)
        model, context = instance.served_model_name, None
    else:
        _says(instance, Question.READY, instance.port, also=404)
        model, context = _served(instance, url)
    if instance.bootstrap_port is not None:
        _listener_pid(instance, unit, instance.bootstrap_port)
        _says(instance, Question.ROUTE, instance.bootstrap_port)
    return Proof(
        instance=instance.name,
        role=instance.role,
        unit=instance.unit,
        url=url,
        pid=pid,
        model=model,
        context_length=context,
        workers=tuple(peer.unit for peer in instance.peers) if instance.role is Role.ROUTER else (),
    )


def soon(instance: Instance, clock: Clock, unit: Unit | None = None) -> Proof:
    """The same; a router gets the time of its proof to find its workers, which it looks for now and then."""
    end = clock.now() + (instance.limits.proof_s if instance.role is Role.ROUTER else 0)
    while True:
        try:
            return of(instance, unit)
        except NotReady:
            if clock.now() >= end:
                raise
        unit = None
        clock.sleep(LOOK_AGAIN_S)


def holders_of(instance: Instance, unit: Unit) -> tuple[Holder, ...]:
    """The listeners on the instance's port that belong to the unit's own processes."""
    return tuple(h for h in sockets.holders(instance.port) if _is_of(unit, h))


def _is_of(unit: Unit, holder: Holder) -> bool:
    return procs.within(holder.listener.cgroup, unit.cgroup)


def _listener_pid(instance: Instance, unit: Unit, port: int) -> int:
    # One look, for a second one sees the same process in another state.
    holders = sockets.holders(port)
    ours = [h for h in holders if _is_of(unit, h)]
    others = [h for h in holders if not _is_of(unit, h) and sockets.in_the_way(instance.host, h)]
    if others:
        raise NotReady(
            f"cannot prove {instance.unit}: {sockets.words(others[0])} answers on port {port} too, or instead",
            hint="end it, then deploy again",
        )
    if not ours:
        raise NotReady(
            f"cannot prove {instance.unit}: nothing of it listens on port {port} (unit is {unit.active})",
            hint=f"dsv4ctl logs {instance.name}",
        )
    return ours[0].processes[0].pid if ours[0].processes else unit.main_pid


def _supervised(instance: Instance, unit: Unit) -> None:
    """An engine goes on without its supervisor, but nobody would drain it, or notice that it hangs."""
    if unit.main_pid and procs.is_stopped(unit.main_pid):
        raise NotReady(
            f"cannot prove {instance.unit}: its supervisor (pid {unit.main_pid}) is stopped, so that nobody watches it",
            hint=f"kill -CONT {unit.main_pid}",
        )


def _says(instance: Instance, path: Question, port: int, *, also: int = 200) -> None:
    """Raise unless it answers 200, or `also`: engines from before /ready answer 404, and their supervisor took the
    ready log line and /health for it."""
    url = f"{probe.base_url(instance.host, port)}{path}"
    answer = probe.get(url, timeout_s=ASK_TIMEOUT_S)
    if answer.status in (200, also):
        return
    shown, hint = url.partition("?")[0], f"dsv4ctl logs {instance.name}"
    if answer.status is None:
        raise NotReady(f"cannot prove {instance.unit}: {shown}: {answer.error}", hint=f"{hint}, then {_anew(instance)}")
    raise NotReady(f"cannot prove {instance.unit}: {shown} says status {answer.status}", hint=hint)


def _anew(instance: Instance) -> str:
    return f"systemctl restart {instance.unit}"


def workers_of(router: Instance, *, timeout_s: float = ASK_TIMEOUT_S) -> workers.Workers | None:
    """What a router says of the engines behind it; None where it says nothing."""
    url = probe.base_url(router.host, router.port)
    return workers.parse(probe.get(f"{url}/workers", api_key(router), timeout_s=timeout_s).body)


def _sends(router: Instance, url: str) -> None:
    seen = workers_of(router)
    if seen is None:
        raise NotReady(
            f"cannot prove {router.unit}: {url}/workers does not tell its workers",
            hint=f"dsv4ctl logs {router.name}, then {_anew(router)}",
        )
    if missing := workers.missing(router.peers, seen):
        raise _passed_over(router, missing, seen)
    if strange := workers.strange(router.peers, seen):
        raise NotReady(f"cannot prove {router.unit}: it sends to {' and '.join(strange)} as well", hint=_anew(router))
    _says(router, Question.READINESS, router.port)


def _passed_over(router: Instance, missing: tuple[Peer, ...], seen: workers.Workers) -> NotReady:
    """Of workers that a router does not send to: whose fault it is, if they say themselves that they are ready."""
    names = " and ".join(f"{peer.unit} ({workers.url(peer)})" for peer in missing)
    words = f"cannot prove {router.unit}: it does not send to {names}"
    if away := next((peer for peer in missing if not _is_ready(peer)), None):
        return NotReady(words, hint=f"dsv4ctl logs {away.name}")
    if any(workers.url(peer) in seen.known for peer in missing):
        hint = f"it looks at its workers every few seconds; if it stays so, {_anew(router)}"
        return NotReady(f"{words}: it takes for dead what is ready", hint=hint)
    return NotReady(f"{words}: it has them in its list no more, and they are ready", hint=_anew(router))


def _is_ready(peer: Peer) -> bool:
    url = f"{probe.base_url(peer.host, peer.port)}{Question.READY}"
    return probe.get(url, timeout_s=ASK_TIMEOUT_S).status in (200, 404)


def _served(instance: Instance, url: str) -> tuple[str, int | None]:
    answer = probe.get(f"{url}/v1/models", api_key(instance), timeout_s=ASK_TIMEOUT_S)
    if answer.status == 401:
        raise NotReady(
            f"cannot prove {instance.unit}: it refuses the API key (401)",
            hint=f"systemctl restart {instance.unit}   if {instance.api_key_file} changed since it started",
        )
    models = bodies.served_models(answer.body)
    if instance.served_model_name not in models:
        names = ", ".join(models) or (answer.error or f"nothing (status {answer.status})")
        raise NotReady(
            f"cannot prove {instance.unit}: it serves {names}, not {instance.served_model_name}",
            hint="dsv4ctl plan   shows what differs",
        )
    return instance.served_model_name, models[instance.served_model_name]
