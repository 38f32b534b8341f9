"""Host x config -> memory plans: reads the checkpoint, the GPUs and what earlier starts measured; changes nothing."""

import os
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from dsv4ctl import basis, cgroups, checkpoint, gpus, measurements, procs
from dsv4ctl.host import Host
from dsv4ctl.memory import answers, forecast, gpu_faults, learnt, weights
from dsv4ctl.memory import gpus as classes
from dsv4ctl.memory import spec as specs
from dsv4ctl.memory.answers import Answer, Question
from dsv4ctl.memory.forecast import Forecast
from dsv4ctl.memory.foresee import Foreseen
from dsv4ctl.memory.gpus import GpuClass
from dsv4ctl.memory.marks import Key, Mark
from dsv4ctl.memory.spec import Known
from dsv4ctl.memory.weights import Checkpoint
from dsv4ctl.model import Gpu, GpuView, HostSpec, Machine, Role, RoleShape
from dsv4ctl.problems import BadConfig, EngineMissing, GpuProblem

# What is planned for where no engine is configured: the version whose constants were executed.
DEFAULT_VERSION = "0.5.23"
# A display or a monitor; an engine's rank takes this much before its first tensor.
NEXT_TO_NOTHING_BYTES = 256 * 1024**2


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """What the plans of all roles stand on. `view` None: a class of GPUs was named and none are looked at."""

    host: Host
    checkpoint: Checkpoint | None
    version: str
    gpu: GpuClass | None
    view: GpuView | None
    notes: tuple[str, ...] = ()


def answer(host: Host, spec: HostSpec, question: Question) -> tuple[tuple[Answer, ...], tuple[str, ...]]:
    """Every role with every context asked for, and what was assumed.

    Raises GpuProblem where this host has no GPUs to plan for and none are named, BadConfig for unknown names.
    """
    ground = _ground(host, spec, question)
    contexts = question.contexts or (spec.memory.context_length,)
    shapes = tuple(_shape(shape, question) for shape in specs.with_gpus(spec))
    found = tuple(
        _answer(replace(spec, memory=replace(spec.memory, context_length=context)), shape, ground, question)
        for shape in shapes
        for context in contexts
    )
    return found, ground.notes


def of_deploy(host: Host, spec: HostSpec, machine: Machine) -> Forecast:
    """The plans of everything that a deploy of `spec` would start, by what earlier starts of the same measured here.

    What others hold now is not looked at: a start waits until its GPUs are free.
    """
    version = machine.engine.version
    ground = Ground(host=host, checkpoint=_read(spec), version=version, gpu=None, view=machine.gpus)
    known: dict[Role, Known] = {}
    earlier: dict[Role, Mark] = {}
    faults: list[tuple[Role, str]] = []
    for shape in specs.with_gpus(spec):
        mine = _gpus(shape, ground)
        known[shape.role] = Known(checkpoint=ground.checkpoint, gpu=classes.of_all(mine), engine_version=version)
        faults += [(shape.role, fault) for fault in gpu_faults.faults(mine, {})]
        if mark := _earlier(host, spec, shape, known[shape.role]):
            earlier[shape.role] = mark
    return replace(forecast.of(spec, known, earlier), faults=tuple(faults))


def key_of(spec: HostSpec, foreseen: Foreseen) -> Key:
    """The key under which what this role takes is kept."""
    shape = next(one for one in spec.mode.roles if one.role is foreseen.role)
    ask = foreseen.budget.ask
    known = Known(checkpoint=ask.checkpoint, gpu=ask.gpu, engine_version=ask.engine_version)
    return learnt.key(spec, shape, known, host=os.uname().nodename)


def _ground(host: Host, spec: HostSpec, question: Question) -> Ground:
    named = _named_gpu(question.gpu)
    found = _named_checkpoint(question.checkpoint) or _read(spec)
    notes = []
    if found is None and not spec.engine.model:
        found = weights.find(weights.DEFAULT)
        notes.append(f"no model is configured; {found.name} is taken")
    version = _version(spec)
    if not version:
        notes.append(f"no engine is configured; SGLang {DEFAULT_VERSION} is taken")
    view = gpus.read() if named is None else None
    if view is not None and not view.gpus:
        why = view.problem or "this host has none"
        raise GpuProblem(f"cannot plan for the GPUs of this host: {why}", hint="name a kind: dsv4ctl memory --gpu h200")
    version = version or DEFAULT_VERSION
    return Ground(host=host, checkpoint=found, version=version, gpu=named, view=view, notes=tuple(notes))


def _named_gpu(name: str | None) -> GpuClass | None:
    try:
        return classes.find(name) if name else None
    except ValueError as error:
        raise BadConfig((f"cannot plan for GPU {name}: {error}",)) from None


def _named_checkpoint(name: str | None) -> Checkpoint | None:
    """A published checkpoint by its name, or the one in a folder."""
    if not name:
        return None
    if "/" in name:
        if (found := checkpoint.read(Path(name))) is None:
            raise BadConfig((f"cannot plan for {name}: it is no folder of a DeepSeek-V4 that the planner knows",))
        return found
    try:
        return weights.find(name)
    except ValueError as error:
        raise BadConfig((f"cannot plan for checkpoint {name}: {error}",)) from None


def _read(spec: HostSpec) -> Checkpoint | None:
    return checkpoint.read(Path(spec.engine.model)) if spec.engine.model else None


def _version(spec: HostSpec) -> str:
    if spec.engine.version or spec.engine.python:
        with suppress(EngineMissing):
            return basis.engine_version(spec)
    return ""


def _shape(shape: RoleShape, question: Question) -> RoleShape:
    """The role with as many ranks as asked for, on the first GPUs of its own."""
    if question.tp is None:
        return shape
    first = shape.gpus[0] if shape.gpus else 0
    return replace(shape, tp=question.tp, gpus=tuple(range(first, first + question.tp)))


def _answer(spec: HostSpec, shape: RoleShape, ground: Ground, question: Question) -> Answer:
    mine = _gpus(shape, ground)
    occupied = {gpu.index: others_bytes(gpu) for gpu in mine}
    known = Known(
        checkpoint=ground.checkpoint,
        gpu=ground.gpu or classes.of_all(mine),
        engine_version=ground.version,
        occupied_bytes=max(occupied.values(), default=0),
    )
    as_found = question.checkpoint is None and question.speculation is None
    earlier = _earlier(ground.host, spec, shape, known) if as_found else None
    made = answers.of(shape, specs.ask(spec, shape, known), question, earlier)
    return replace(made, faults=tuple(gpu_faults.faults(mine, occupied)))


def _earlier(host: Host, spec: HostSpec, shape: RoleShape, known: Known) -> Mark | None:
    """What a start of the same took on this host."""
    return measurements.of_key(host.paths, learnt.key(spec, shape, known, host=os.uname().nodename))


def _gpus(shape: RoleShape, ground: Ground) -> tuple[Gpu, ...]:
    there = {gpu.index: gpu for gpu in ground.view.gpus} if ground.view else {}
    return tuple(there[index] for index in shape.gpus if index in there)


def others_bytes(gpu: Gpu) -> int:
    """What processes outside our units hold of a GPU; 0 where that cannot be told, or is next to nothing."""
    ours = [one.used_bytes for one in gpu.processes if _is_ours(one.pid)]
    if gpu.used_bytes is None or None in ours:
        return 0
    others = gpu.used_bytes - sum(amount for amount in ours if amount is not None)
    return others if others >= NEXT_TO_NOTHING_BYTES else 0


def _is_ours(pid: int) -> bool:
    process = procs.read(pid)
    return process is not None and cgroups.unit_of(process.cgroup).startswith("dsv4-")
