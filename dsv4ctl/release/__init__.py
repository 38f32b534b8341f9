"""HostSpec x Machine x texts -> Release: what a config becomes on this machine, as text. Pure."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace

from dsv4ctl import placement, record, unitfile
from dsv4ctl.engine import sglang
from dsv4ctl.model import HostSpec, Instance, Machine, Release, RenderedFile
from dsv4ctl.modes import gpus_text
from dsv4ctl.plan import SLICE, TARGET, UNIT_FOLDER
from dsv4ctl.problems import BadConfig, GpuProblem, Problem
from dsv4ctl.release import place, unit
from dsv4ctl.release.place import Place

INSTANCE_FOLDER = "/var/lib/dsv4ctl/instances"


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
    instances = tuple(_instance(spec, machine, texts, one) for one in places)
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


def _instance(spec: HostSpec, machine: Machine, texts: Texts, one: Place) -> Instance:
    """The placed role with its digest, which is over all that reaches the engine or the unit but the digest itself."""
    seat = _seat(one)
    draft = Instance(
        name=one.name,
        role=one.role,
        unit=one.unit,
        argv=sglang.command(spec, seat, machine.engine),
        environment=unit.environment(spec, seat, one.name),
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
    )
    digest = _digest(*(file.text for file in _instance_files(spec, machine, texts, (draft,))))
    stamped = {"DSV4CTL_RELEASE": digest, "DSV4CTL_INSTANCE": one.name}
    environment = tuple(sorted({**dict(draft.environment), **stamped}.items()))
    return replace(draft, digest=digest, environment=environment)


def _seat(one: Place) -> sglang.Seat:
    return sglang.Seat(
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
        if one.rendezvous_port is not None:
            yield (
                f"port {one.rendezvous_port} (rendezvous of {one.name}) listens on every address of this host, not "
                f"only on {one.host}; close it to others in the firewall"
            )
        if one.placement.warns:
            yield f"{one.name} on GPUs {gpus_text(one.gpus)} has {placement.words(one.placement)}"


def _digest(*texts: str) -> str:
    return hashlib.sha256("\0".join(texts).encode("utf-8", "surrogatepass")).hexdigest()[:12]
