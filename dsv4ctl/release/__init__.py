"""HostSpec x Machine x texts -> Release: what a config becomes on this machine, as text. Pure."""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TypeAlias

from dsv4ctl import modes, placement, record, unitfile
from dsv4ctl.engine import router, sglang, transfer
from dsv4ctl.model import HostSpec, Instance, Machine, Peer, Release, RenderedFile, Role
from dsv4ctl.names import INSTANCE_FOLDER, INSTANCE_VARIABLE, RELEASE_VARIABLE, SLICE, TARGET, UNIT_FOLDER
from dsv4ctl.problems import BadConfig, EngineMissing, GpuProblem, Problem
from dsv4ctl.release import place, unit
from dsv4ctl.release.place import Place

Command: TypeAlias = tuple[tuple[str, ...], tuple[tuple[str, str], ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Texts:
    """The template of an engine's unit and the two units that need no rendering."""

    engine_service: str
    target: str
    slice: str


def render(spec: HostSpec, machine: Machine, texts: Texts) -> Release:
    """What `spec` becomes on `machine`: the same values give the same text, to the byte.

    Raises BadConfig with every problem at once, GpuProblem when only the GPUs are in the way, EngineMissing for options
    that the engine does not know, Problem for a systemd that is too old.
    """
    if machine.systemd_version < unitfile.OLDEST:
        raise Problem(
            f"cannot write units for systemd {machine.systemd_version}: {unitfile.OLDEST} or newer is needed",
            hint="Ubuntu 22.04, Debian 12 and RHEL 9 have one",
        )
    places = place.places(spec, machine)
    _check(spec, machine, places)
    _require_parts(spec, machine)
    instances = tuple(_instance(spec, machine, texts, places[index:] + places[:index]) for index in range(len(places)))
    files = (*_instance_files(spec, machine, texts, instances), *_shared_files(texts))
    return Release(
        digest=_digest(spec.mode.name, *(text for file in files for text in (file.path, file.text))),
        mode=spec.mode.name,
        instances=instances,
        files=files,
        notes=tuple(_notes(places)),
    )


def _check(spec: HostSpec, machine: Machine, places: tuple[Place, ...]) -> None:
    """Raises BadConfig or GpuProblem with everything that stands in the way before a text is written."""
    config_faults = (*_unconfigured(spec), *place.port_faults(places, machine), *place.shared_gpu_faults(places))
    gpu_faults = tuple(place.gpu_faults(places, machine.gpus))
    if config_faults:
        raise BadConfig((*config_faults, *gpu_faults), hint="dsv4ctl config show   tells where each value comes from")
    if gpu_faults:
        raise GpuProblem("\n".join(gpu_faults), hint="nvidia-smi -L   lists what the driver sees; --gpus names others")


def _unconfigured(spec: HostSpec) -> Iterator[str]:
    for key, value in (("engine.python", spec.engine.python), ("engine.model", spec.engine.model)):
        if not value:
            yield f"{key} is not configured: `dsv4ctl init` looks for it, --{key.partition('.')[2]} names it"


def _require_parts(spec: HostSpec, machine: Machine) -> None:
    """Raises EngineMissing for what a mode of several roles needs and an engine's environment need not have.

    The engine itself looks for the transfer's module after the weights are loaded, minutes later.
    """
    roles = {shape.role for shape in spec.mode.roles}
    module = transfer.module(spec.transfer.backend)
    if Role.PREFILL in roles and module not in machine.parts.modules:
        raise EngineMissing(
            f"cannot hand KV over by {spec.transfer.backend}: {spec.engine.python} has no module {module}",
            hint=f"{spec.engine.python} -m pip install {transfer.PACKAGES[module]}   or set transfer.backend",
        )
    if Role.ROUTER in roles and machine.router is None:
        python = spec.router.python or spec.engine.python
        raise EngineMissing(
            f"cannot start a router: {python} has no package sglang_router",
            hint=f"{python} -m pip install sglang-router   or set router.python",
        )


def _instance(spec: HostSpec, machine: Machine, texts: Texts, places: tuple[Place, ...]) -> Instance:
    """The first place's role with its digest, which is over all that reaches the engine or the unit but the digest.

    The other places are those that a router sends to.
    """
    one, *others = places
    argv, environment = _routed(spec, machine, one, others) if one.role is Role.ROUTER else _seated(spec, machine, one)
    draft = Instance(
        name=one.name,
        role=one.role,
        unit=one.unit,
        argv=argv,
        environment=unit.environment(argv[0], environment),
        host=one.host,
        port=one.port,
        rendezvous_port=one.rendezvous_port,
        bootstrap_port=one.bootstrap_port,
        metrics_port=one.metrics_port,
        tp=one.tp,
        gpus=one.gpus,
        gpu_uuids=one.gpu_uuids,
        model=spec.engine.model or "",
        served_model_name=sglang.served_model_name(spec),
        context_length=spec.memory.context_length,
        user=spec.user,
        api_key_file=spec.api_key_file,
        secrets_file=one.secrets_file,
        limits=spec.limits,
        binding=one.placement.binding,
        peers=_peers(spec, one, others),
        together=transfer.together(spec.transfer.backend, machine.engine.version) if _is_front(one, others) else "",
    )
    digest = _digest(
        *_builds(machine, one.role), *(file.text for file in _instance_files(spec, machine, texts, (draft,)))
    )
    stamped = {RELEASE_VARIABLE: digest, INSTANCE_VARIABLE: one.name}
    environment = tuple(sorted({**dict(draft.environment), **stamped}.items()))
    return replace(draft, digest=digest, environment=environment)


def _builds(machine: Machine, role: Role) -> tuple[str, ...]:
    """Another build, or another model, at the same path is another engine, although not a word of its unit differs."""
    if role is Role.ROUTER and machine.router is not None:
        return (machine.router.version, machine.router.stamp)
    return (machine.engine.version, machine.engine.stamp, *((machine.model_stamp,) if machine.model_stamp else ()))


def _peers(spec: HostSpec, one: Place, others: Iterable[Place]) -> tuple[Peer, ...]:
    """Whom it works with: a router with all the others, a half with its other half, an engine with its router."""
    by_name = sorted(others, key=lambda other: other.name)
    if one.role is Role.ROUTER:
        repeats = not sglang.has_random_weights(spec.engine.args)
        return tuple(_peer_with_address(other, repeats=repeats) for other in by_name)
    return tuple(_peer(other) for other in by_name if other.role is not Role.SERVER)


def _peer(place: Place) -> Peer:
    return Peer(name=place.name, role=place.role, unit=place.unit)


def _peer_with_address(place: Place, *, repeats: bool) -> Peer:
    where = replace(_peer(place), host=place.host, port=place.port, bootstrap_port=place.bootstrap_port)
    return replace(where, repeats=repeats)


def _is_front(one: Place, others: Iterable[Place]) -> bool:
    return one.role is Role.ROUTER and any(other.role is Role.PREFILL for other in others)


def _seated(spec: HostSpec, machine: Machine, one: Place) -> Command:
    """The argv and environment of an engine."""
    seat = sglang.Seat(
        role=one.role,
        tp=one.tp,
        host=one.host,
        port=one.port,
        rendezvous_port=one.rendezvous_port,
        bootstrap_port=one.bootstrap_port,
        gpus=one.gpus,
        may_bind=one.placement.engine_may_bind,
        secrets_file=one.secrets_file,
    )
    return sglang.command(spec, seat, machine.engine), sglang.environment(spec, seat, unit.cache_folder(one.name))


def _routed(spec: HostSpec, machine: Machine, one: Place, workers: Iterable[Place]) -> Command:
    """The argv and environment of the router in front of the workers."""
    behind = sorted(workers, key=lambda worker: worker.port)
    front = router.Front(
        host=one.host,
        port=one.port,
        metrics_port=one.metrics_port or 0,
        workers=tuple(
            router.Worker(role=w.role, host=w.host, port=w.port, bootstrap_port=w.bootstrap_port) for w in behind
        ),
        secrets_file=one.secrets_file,
    )
    assert machine.router is not None  # noqa: S101 - looked at before anything is rendered
    argv = router.command(spec, front, machine.router, has_ready=machine.parts.has_ready)
    return argv, router.environment(unit.cache_folder(one.name))


def _instance_files(
    spec: HostSpec, machine: Machine, texts: Texts, instances: tuple[Instance, ...]
) -> Iterator[RenderedFile]:
    for one in instances:
        path = f"{INSTANCE_FOLDER}/{one.name}-{one.digest}.json"
        yield RenderedFile(path=path, text=record.dump_instance(one))
        text = unit.text(texts.engine_service, unit.values(spec, machine, one, path), machine.systemd_version)
        yield RenderedFile(path=f"{UNIT_FOLDER}/{one.unit}", text=text)


def _shared_files(texts: Texts) -> Iterator[RenderedFile]:
    yield RenderedFile(path=f"{UNIT_FOLDER}/{TARGET}", text=texts.target)
    yield RenderedFile(path=f"{UNIT_FOLDER}/{SLICE}", text=texts.slice)


def _notes(places: tuple[Place, ...]) -> Iterator[str]:
    for one in places:
        # torch's TCPStore takes no address (seen with SGLang 0.5.23 and torch 2.14).
        if one.rendezvous_port is not None and one.host not in ("0.0.0.0", "::"):  # noqa: S104 -- compared, not bound
            yield (
                f"port {one.rendezvous_port} (rendezvous of {one.name}) listens on every address of this host, not "
                f"only on {one.host}; close it to others in the firewall"
            )
        if one.placement.warns:
            yield f"{one.name} on GPUs {modes.gpus_text(one.gpus)} has {placement.words(one.placement)}"


def _digest(*texts: str) -> str:
    return hashlib.sha256("\0".join(texts).encode("utf-8", "surrogatepass")).hexdigest()[:12]
