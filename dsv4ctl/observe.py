"""Host -> values: what this machine is and what runs on it now. Changes nothing."""

import sys
from collections.abc import Iterable
from pathlib import Path

import dsv4ctl
from dsv4ctl import (
    builds,
    checkpoint,
    discover,
    gpus,
    installed,
    maintenance,
    procs,
    resources,
    sockets,
    systemd,
    topology,
)
from dsv4ctl.child import run
from dsv4ctl.host import Host
from dsv4ctl.model import (
    EngineBuild,
    EngineParts,
    GpuView,
    HostSpec,
    HostView,
    Instance,
    Machine,
    Phase,
    PortView,
    Release,
    Role,
    Unit,
)
from dsv4ctl.names import SERVICES, SLICE, TARGET, instance_of
from dsv4ctl.problems import CannotRun, EngineMissing
from dsv4ctl.release import Texts

# One short program tells the version and where it is installed, without importing torch.
_WHICH = (
    "import importlib.metadata as m, pathlib as p; d = m.distribution('sglang'); f = p.Path(str(d.locate_file(''))); "
    "print(d.version, f, int((f / 'sglang').stat().st_mtime))"
)


def texts() -> Texts:
    """The template and unit texts that a release is rendered from."""
    return Texts(
        engine_service=resources.template("engine.service.j2"),
        target=resources.unit(TARGET),
        slice=resources.unit(SLICE),
    )


def machine(host: Host, spec: HostSpec) -> Machine:
    """The facts of this host that a release of `spec` depends on.

    Raises EngineMissing when the engine or the model is not configured or cannot be used, with what was found instead.
    """
    _require_engine_and_model(spec)
    wants_gpus = any(shape.gpus for shape in spec.mode.roles)
    behind_router = any(shape.role is Role.ROUTER for shape in spec.mode.roles)
    with gpus.Query() as query:
        build = engine(host, spec)
        view = query.view() if wants_gpus else GpuView()
    return Machine(
        systemd_version=systemd.version(),
        gpus=view,
        numa=topology.read(gpu.pci_address for gpu in view.gpus),
        engine=build,
        model_stamp=checkpoint.stamp(Path(spec.engine.model or "/")),
        router=_router(host, spec) if behind_router else None,
        parts=builds.parts_of(spec) if behind_router else EngineParts(),
        ephemeral_ports=sockets.ephemeral_range(),
        reserved_ports=sockets.reserved_ports(),
        # Isolated: a PYTHONPATH that the operator sets for the engine must not reach the supervisor.
        supervisor=(sys.executable, "-I", "-m", "dsv4ctl.supervise"),
        own_folders=(sys.prefix, sys.base_prefix, str(Path(dsv4ctl.__file__).parent.parent)),
    )


def engine(host: Host, spec: HostSpec) -> EngineBuild:
    """The engine's version and option strings, from its own --help, cached by interpreter, version and install time.

    Importing torch for --help takes tens of seconds on a real engine, so it is done once an installed version.
    Raises EngineMissing when the interpreter has no sglang or its --help does not answer.
    """
    python = spec.engine.python or ""
    installed_version, stamp = _installed_sglang(python)
    build = EngineBuild(python=python, version=spec.engine.version or installed_version, stamp=stamp)
    return host.store.engines.cached(engine_key(build)) or builds.with_options(build, dict(spec.engine.environment))


def _router(host: Host, spec: HostSpec) -> EngineBuild | None:
    """The router with its option strings, cached as an engine's are; None: there is none."""
    found = builds.router_of(spec)
    return found and (host.store.engines.cached(engine_key(found)) or builds.with_options(found, {}))


def engine_version(spec: HostSpec) -> str:
    """The version of the engine: as configured, else as installed. Raises EngineMissing when it has no sglang."""
    return spec.engine.version or _installed_sglang(spec.engine.python or "")[0]


def engine_key(build: EngineBuild) -> str:
    """The key under which a build's options are remembered."""
    return f"{build.python} {build.version} {build.stamp}"


def host(host: Host, release: Release | None) -> HostView:
    """What is installed and running of ours, and the ports that `release` needs. `release` None: what is there only."""
    wanted = {i.unit: i for i in release.instances} if release else {}
    names = {TARGET, *wanted, *installed.services(host)}
    seen = systemd.show((SERVICES, *sorted(names))).values()
    running = {u.name: digest for u in seen if (digest := _running_digest(u, wanted.get(u.name)))}
    return HostView(
        # A name that begins like ours makes no unit ours: it has our mark in its file, or runs what we started.
        units={u.name: u for u in seen if u.name in names or u.name in running},
        files=installed.files(host, frozenset(f.path for f in release.files) if release else frozenset()),
        running=running,
        ports=ports(release.instances) if release else {},
        pause=maintenance.lasting(host.paths.pause, host.clock.wall()),
        idle=frozenset(u.name for u in seen if _is_idle(host, u)),
        tallies=maintenance.tallies(host.paths.all_starts),
    )


def _is_idle(host: Host, unit: Unit) -> bool:
    """Whether the unit's supervisor waits for the end of a pause without an engine."""
    state = installed.run_state(host, instance_of(unit.name)) if unit.main_pid else None
    return state is not None and state.pid == unit.main_pid and state.phase is Phase.PAUSED


def ports(instances: Iterable[Instance]) -> dict[int, PortView]:
    """Every port of the instances, with its holders."""
    return {port: sockets.view(address, port) for one in instances for address, port in one.binds}


def _running_digest(unit: Unit, wanted: Instance | None) -> str:
    """The digest of the instance that the unit's main process was started for, from its own environment.

    The supervisor keeps its environment and command line; only the engine's workers wipe theirs. A unit that somebody
    edited still carries the digest, so what runs is compared with what is `wanted`, word for word.
    """
    if not unit.main_pid:
        return ""
    environment = procs.environment(unit.main_pid)
    digest = environment.get("DSV4CTL_RELEASE", "")
    # A drop-in is a setting of the operator's own; status names it, and no deploy undoes it.
    if wanted is None or digest != wanted.digest or unit.drop_ins:
        return digest
    argv = procs.arguments(unit.main_pid)
    same = argv[argv.index("--") + 1 :] == wanted.argv if "--" in argv else False
    edited = not same or any(environment.get(name) != value for name, value in wanted.environment)
    return f"{digest}, edited" if edited else digest


def _require_engine_and_model(spec: HostSpec) -> None:
    missing = [
        key for key, value in (("engine.python", spec.engine.python), ("engine.model", spec.engine.model)) if not value
    ]
    if not missing:
        return
    found = discover.summary()
    raise EngineMissing(
        f"cannot deploy: {' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} not configured\n{found}",
        hint="dsv4ctl init   (writes /etc/dsv4ctl/config.toml from what it finds), or --python FILE --model FOLDER",
    )


def _installed_sglang(python: str) -> tuple[str, str]:
    """Version and stamp (where, and when it was installed) of the engine's package."""
    try:
        version, stamp = run([python, "-c", _WHICH], timeout_s=30).stdout.strip().split(" ", 1)
    except ValueError:
        raise EngineMissing(f"cannot use {python} as the engine: it is no Python interpreter") from None
    except CannotRun as problem:
        raise EngineMissing(
            f"cannot use {python} as the engine: it has no installed sglang ({builds.last_line(problem)})",
            hint="dsv4ctl init --print   shows the engine environments of this host",
        ) from problem
    return version, stamp
