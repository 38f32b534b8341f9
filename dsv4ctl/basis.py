"""Host x config -> the facts that a release depends on: systemd, GPUs, the engine and its options. Changes nothing."""

import sys
from pathlib import Path

import dsv4ctl
from dsv4ctl import builds, checkpoint, discover, gpus, resources, sockets, systemd, topology
from dsv4ctl.child import run
from dsv4ctl.host import Host
from dsv4ctl.model import EngineBuild, EngineParts, GpuView, HostSpec, Machine, Role
from dsv4ctl.names import SLICE, TARGET
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
