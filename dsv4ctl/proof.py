"""Proofs from outside: what answers is what was asked for; after a teardown nothing of ours is left."""

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from dsv4ctl import probe, procs, sockets, systemd
from dsv4ctl.findings import Check, Proof
from dsv4ctl.host import Host
from dsv4ctl.model import Holder, HostView, Identity, Instance, PortView, Unit
from dsv4ctl.plan import DOWN
from dsv4ctl.problems import NotReady

ASK_TIMEOUT_S = 5.0
END_LIMIT_S = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree:
    """The processes of a unit at one moment: those of its cgroup, and whatever descends from them."""

    unit: str
    cgroup: str
    processes: tuple[Identity, ...]


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


def trees(view: HostView) -> tuple[Tree, ...]:
    """The process trees of all our units, taken before they are stopped."""
    return tuple(_tree(u) for name, u in sorted(view.units.items()) if name.endswith(".service") and u.cgroup)


def end(host: Host, known: Iterable[Tree]) -> tuple[Identity, ...]:
    """KILL whatever of the trees outlived its unit; returns what could not be ended."""
    trees_ = tuple(known)
    return procs.end_all(lambda: _alive(trees_), host.clock, END_LIMIT_S)


def gone(instances: Iterable[Instance], known: Iterable[Tree]) -> tuple[Check, ...]:
    """Check that units, processes, cgroups and ports are gone."""
    units = systemd.show(("dsv4-*.service", *(i.unit for i in instances)))
    ports = {port: sockets.view(i.host, port) for i in instances for _, port in i.ports}
    return (
        *(_unit_gone(u) for _, u in sorted(units.items())),
        *(_tree_gone(t) for t in known),
        *(_port_gone(p) for p in ports.values()),
    )


def _tree(unit: Unit) -> Tree:
    inside = [i for pid in procs.cgroup_pids(unit.cgroup) if (i := procs.identity(pid))]
    below = [i for process in inside for i in procs.descendants(process.pid)]
    # Whoever calls us from within a unit (a shell of a debugger, say) is no part of what may be ended.
    ourselves = {procs.ourselves(), *procs.ancestors(os.getpid())}
    return Tree(unit=unit.name, cgroup=unit.cgroup, processes=tuple(sorted({*inside, *below} - ourselves)))


def _alive(known: Iterable[Tree]) -> tuple[Identity, ...]:
    return tuple(p for tree in known for p in tree.processes if procs.alive(p))


def holders_of(instance: Instance, unit: Unit) -> tuple[Holder, ...]:
    """The listeners on the instance's port that belong to the unit's own processes."""
    return tuple(h for h in sockets.holders(instance.port) if _is_of(unit, h))


def _is_of(unit: Unit, holder: Holder) -> bool:
    return procs.within(holder.listener.cgroup, unit.cgroup)


def _listener_pid(instance: Instance, unit: Unit) -> int:
    # One look, for a second one sees the same process in another state.
    holders = sockets.holders(instance.port)
    ours = [h for h in holders if _is_of(unit, h)]
    others = [h for h in holders if not _is_of(unit, h)]
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


def _unit_gone(unit: Unit) -> Check:
    return Check(what=f"unit {unit.name}", ok=unit.active in DOWN, words=f"{unit.active} ({unit.sub})")


def _tree_gone(tree: Tree) -> Check:
    left = [*_alive((tree,)), *(i for pid in procs.cgroup_pids(tree.cgroup) if (i := procs.identity(pid)))]
    shown = ", ".join(_shown(i) for i in sorted(set(left)))
    count = len(tree.processes)
    return Check(
        what=f"processes of {tree.unit}",
        ok=not left,
        words=f"still there: {shown}" if left else f"all {count} gone, cgroup empty",
    )


def _shown(identity: Identity) -> str:
    process = procs.read(identity.pid)
    return f"pid {identity.pid} ({process.comm}, state {process.state})" if process else f"pid {identity.pid}"


def _port_gone(port: PortView) -> Check:
    return Check(what=f"port {port.port}", ok=not port.blocked, words=port.blocked or "free on both families")
