"""The proof from outside: what answers is what was asked for."""

import json
from pathlib import Path

from dsv4ctl import probe, procs, sockets, systemd
from dsv4ctl.findings import Proof
from dsv4ctl.model import Holder, Instance, Unit
from dsv4ctl.problems import NotReady

ASK_TIMEOUT_S = 5.0


def api_key(instance: Instance) -> str:
    """The key clients must send; '' when there is none or it cannot be read. Never shown."""
    if instance.api_key_file is None:
        return ""
    try:
        return Path(instance.api_key_file).read_text().strip()
    except OSError:
        return ""


def of(instance: Instance) -> Proof:
    """Prove one instance: the unit is active, its own processes listen, it is ready, and it serves the model asked for.

    Raises NotReady with what is wrong. The generation was asked for by the supervisor before it said READY=1.
    """
    unit = systemd.show((instance.unit,))[instance.unit]
    url = probe.base_url(instance.host, instance.port)
    pid = _listener_pid(instance, unit)
    _ready(instance, url)
    model, context = _served(instance, url)
    return Proof(instance=instance.name, unit=instance.unit, url=url, pid=pid, model=model, context_length=context)


def holders_of(instance: Instance, unit: Unit) -> tuple[Holder, ...]:
    """The listeners on the instance's port that belong to the unit's own processes."""
    return tuple(h for h in sockets.holders(instance.port) if _is_of(unit, h))


def _is_of(unit: Unit, holder: Holder) -> bool:
    return procs.within(holder.listener.cgroup, unit.cgroup)


def _listener_pid(instance: Instance, unit: Unit) -> int:
    # One look, for a second one sees the same process in another state.
    holders = sockets.holders(instance.port)
    ours = [h for h in holders if _is_of(unit, h)]
    others = [h for h in holders if not _is_of(unit, h) and sockets.in_the_way(instance.host, h)]
    if others:
        raise NotReady(
            f"cannot prove {instance.unit}: {sockets.words(others[0])} answers on port {instance.port} too, or instead",
            hint="end it, then deploy again",
        )
    if not ours:
        raise NotReady(
            f"cannot prove {instance.unit}: nothing of it listens on port {instance.port} (unit is {unit.active})",
            hint=f"dsv4ctl logs {instance.name}",
        )
    return ours[0].processes[0].pid if ours[0].processes else unit.main_pid


def _ready(instance: Instance, url: str) -> None:
    answer = probe.get(f"{url}/ready", timeout_s=ASK_TIMEOUT_S)
    # Builds from before /ready answer 404; their supervisor took the ready log line and /health for it.
    if answer.status not in (200, 404):
        what = answer.error or f"status {answer.status}"
        raise NotReady(f"cannot prove {instance.unit}: {url}/ready says {what}", hint=f"dsv4ctl logs {instance.name}")


def _served(instance: Instance, url: str) -> tuple[str, int | None]:
    answer = probe.get(f"{url}/v1/models", api_key(instance), timeout_s=ASK_TIMEOUT_S)
    if answer.status == 401:
        raise NotReady(
            f"cannot prove {instance.unit}: it refuses the API key (401)",
            hint=f"systemctl restart {instance.unit}   if {instance.api_key_file} changed since it started",
        )
    models = served_models(answer.body)
    if instance.served_model_name not in models:
        names = ", ".join(models) or (answer.error or f"nothing (status {answer.status})")
        raise NotReady(
            f"cannot prove {instance.unit}: it serves {names}, not {instance.served_model_name}",
            hint="dsv4ctl plan   shows what differs",
        )
    return instance.served_model_name, models[instance.served_model_name]


def served_models(body: bytes) -> dict[str, int | None]:
    """Model id -> context length from the body of /v1/models; empty when it is none."""
    try:
        data = json.loads(body)["data"]
        return {str(entry["id"]): entry.get("max_model_len") for entry in data}
    except (ValueError, KeyError, TypeError, AttributeError):
        return {}
