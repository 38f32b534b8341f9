"""One main process as the kernel, the driver and its own sockets show it. Changes nothing."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from dsv4ctl import census, installed, probe, procs, sockets, there
from dsv4ctl.byhand import asked
from dsv4ctl.byhand.asked import Asked
from dsv4ctl.byhand.main import Main
from dsv4ctl.discover import checkpoints, engines, servers
from dsv4ctl.engine import configfile, readback
from dsv4ctl.engine.readback import ROUTER_DEFAULTS, Launch, Program
from dsv4ctl.free import Found
from dsv4ctl.model import GpuView, Listener

ASK_TIMEOUT_S = 3.0


def sight(pid: int, found: Found) -> Main | None:
    """Read one process; None when its command line starts neither an engine nor a router, or it has gone."""
    launch, process = readback.launch(procs.arguments(pid)), procs.read(pid)
    if launch is None or process is None:
        return None
    launch = _with_config_file(pid, launch)
    # A title overwrites the environment as well.
    environment = {} if launch.wiped else procs.environment(pid)
    if launch.program is Program.ROUTER:
        host, port, metrics_port = _router_ports(pid, launch)
        return Main(
            process=process,
            launch=launch,
            python=_python(pid, launch, environment),
            environment=environment,
            host=host,
            port=port,
            metrics_port=metrics_port,
            cpus=census.allowed_cpus(pid),
        )
    wants = asked.read(launch)
    devices, by = _gpus(pid, wants, environment, found)
    return Main(
        process=process,
        launch=launch,
        python=_python(pid, launch, environment),
        environment=environment,
        host=str(wants.keys.get("host", readback.DEFAULTS["--host"])),
        port=int(wants.keys["port"]),
        asked=wants,
        model=_model(str(wants.keys.get("engine.model", "")), pid, environment),
        gpus=devices,
        gpus_by=by,
        cpus=census.allowed_cpus(pid),
    )


def _with_config_file(pid: int, launch: Launch) -> Launch:
    """The same with the options of the file that --config names; a file that cannot be read stays an option."""
    if not (name := launch.get("--config")):
        return launch
    try:
        options = configfile.parse((Path(census.working_folder(pid) or "/") / name).read_text())
    except (OSError, ValueError):
        return launch
    # What stands on the command line wins, and the last one counts.
    rest = tuple(given for given in launch.options if given.name != "--config")
    return replace(launch, options=(*options, *rest))


def _python(pid: int, launch: Launch, environment: Mapping[str, str]) -> str:
    """The interpreter: as it was called, else that of the environment whose libraries the process has mapped."""
    called = servers.interpreter(launch, environment) if launch.python else ""
    if not called and (prefix := census.environment_of(pid)):
        called = f"{prefix}/bin/python"
    plain = next(engines.engines([Path(called)], "it runs"), None) if called else None
    return plain.path if plain else called


def _model(text: str, pid: int, environment: Mapping[str, str]) -> str:
    """The folder that a model's path leads to: as it stands, from where it works, or in the cache of models."""
    folder = Path(census.working_folder(pid) or "/") / text if text else None
    if folder is not None and there.is_folder(folder):
        return str(folder) if text.startswith("/") else str(folder.resolve())
    name = f"models--{text.replace('/', '--')}"
    hubs = checkpoints.hubs(environment, Path("/")) if text else ()
    for snapshots in (hub / name / "snapshots" for hub in hubs):
        if there.is_folder(snapshots) and (found := sorted(snapshots.glob("*/config.json"))):
            named = (installed.text_of(snapshots.with_name("refs") / "main") or "").strip()
            main = snapshots / named
            return str(main if named and there.is_folder(main) else found[-1].parent)
    return ""


def _gpus(pid: int, wants: Asked, environment: Mapping[str, str], found: Found) -> tuple[tuple[int, ...], str]:
    """The GPUs of an engine by their index in PCI order, and how they are known: the driver's word goes first."""
    tree = {pid, *(below.pid for below in procs.descendants(pid))}
    held = tuple(sorted({hold.index for hold in found.holds if hold.pid in tree and hold.believed}))
    told = _visible(wants, environment.get("CUDA_VISIBLE_DEVICES"), found.gpus)
    if len(held) == wants.tp:
        return (told if set(told) == set(held) else held), "by the driver's list"
    if not found.gpus.gpus:
        return (), "this host has none"
    return told, "by CUDA_VISIBLE_DEVICES" if "CUDA_VISIBLE_DEVICES" in environment else "the first of this host"


def _visible(wants: Asked, visible: str | None, view: GpuView) -> tuple[int, ...]:
    """The GPUs that an engine takes of those that it is shown, in the order in which it is shown them."""
    every = {gpu.uuid: gpu.index for gpu in view.gpus}
    words = [word.strip() for word in visible.split(",")] if visible else list(every)
    shown = [int(word) if word.isdecimal() else _by_uuid(word, every) for word in words]
    mine = shown[wants.first_gpu :: wants.gpu_step][: wants.tp]
    return tuple(index for index in mine if index in every.values())


def _by_uuid(word: str, every: Mapping[str, int]) -> int:
    """The index of a GPU by its UUID or the beginning of it, as CUDA takes it; -1 for none."""
    return next((index for uuid, index in every.items() if word and uuid.startswith(word)), -1)


def _router_ports(pid: int, launch: Launch) -> tuple[str, int, int]:
    """Where a router listens for clients, and for those who collect its metrics."""
    if not launch.wiped:
        told = {name: launch.get(name) or default for name, default in ROUTER_DEFAULTS.items()}
        return told["--host"].strip("[]"), int(told["--port"]), int(told["--prometheus-port"])
    listeners = [holder.listener for holder in sockets.holders_on((), [pid])]
    front = next(filter(_is_front, listeners), None)
    rest = sorted({listener.port for listener in listeners} - {front.port if front else 0})
    return front.address if front else "", front.port if front else 0, rest[0] if rest else 0


def _is_front(listener: Listener) -> bool:
    """Whether a router answers here for clients: only there it tells whether it is ready."""
    answer = probe.get(f"{probe.base_url(listener.address, listener.port)}/readiness", timeout_s=ASK_TIMEOUT_S)
    said = answer.json()
    return isinstance(said, dict) and "status" in said
