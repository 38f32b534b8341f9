"""A configuration whose single values are right becomes a HostSpec, or the values contradict each other."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any

from dsv4ctl import modes, quantity
from dsv4ctl.config import given_modes, words
from dsv4ctl.config.faults import Fault, Key
from dsv4ctl.config.schema import TABLES, Config, EngineTable, LimitsTable, Table
from dsv4ctl.model import EngineSpec, HostSpec, Limits, MemorySpec, Mode, RouterSpec, TransferSpec

# Limits that must be shorter than another, lest they never come to act; True: as long as it will do.
_SHORTER = (
    ("stall", "start", False),
    ("watch", "unhealthy", False),
    ("restart", "restart_max", True),
)
# Every instance has ten ports from its own rendezvous port on to itself.
PORTS_EACH = 10


def build(config: Config, *, bad: frozenset[Key]) -> tuple[HostSpec, Mapping[str, Mode], tuple[Fault, ...]]:
    """The spec, the modes that are given, and where values contradict each other.

    `bad` names keys whose values were wrong and were left out: what depends on them is not complained about again.
    """
    given, given_faults = given_modes.read(config.modes, placed=config.gpus is not None)
    mode, mode_faults = _chosen(config, given, bad | {fault.key for fault in given_faults})
    spec = replace(
        HostSpec(mode=mode),
        **_given(config, leave_out=("mode", "gpus", "modes", *TABLES)),
        engine=_engine(config.engine),
        memory=MemorySpec(**_given(config.memory)),
        transfer=TransferSpec(**_given(config.transfer)),
        router=RouterSpec(**_given(config.router)),
        limits=_limits(config.limits),
    )
    crossed = (*_engine_faults(config, bad), *_order_faults(config, spec, bad))
    return spec, given, (*given_faults, *mode_faults, *crossed)


def _given(table: Table, leave_out: Collection[str] = ()) -> dict[str, Any]:
    """What a table sets itself; the rest keeps the defaults of `model`."""
    names = [name for name in table.model_fields_set if name not in leave_out]
    return {name: value for name in names if (value := getattr(table, name)) is not None}


def _chosen(config: Config, given: Mapping[str, Mode], bad: frozenset[Key]) -> tuple[Mode, tuple[Fault, ...]]:
    """The mode that is asked for on the GPUs that are asked for; the default one where that cannot be told."""
    name = config.mode or modes.DEFAULT
    default = modes.BUILT_IN[modes.DEFAULT]
    if ("mode",) in bad or any(key[:2] == ("modes", name) for key in bad):
        return default, ()
    try:
        mode = modes.find(name, given)
    except ValueError as error:
        return default, (Fault(("mode",), f"cannot use {words.shown(name)}: {error}"),)
    try:
        return modes.place(mode, config.gpus), ()
    except ValueError as error:
        known = {**modes.BUILT_IN, **given}
        fits = [m.name for m in known.values() if sum(r.tp for r in m.roles) == len(config.gpus or ())]
        other = f"; mode {fits[0]} has as many" if fits else ""
        return default, (
            Fault(("gpus",), f"cannot place mode {name} on GPUs {modes.gpus_text(config.gpus or ())}: {error}{other}"),
        )


def _engine(table: EngineTable) -> EngineSpec:
    given = _given(table, leave_out=("venv", "environment"))
    if table.venv:
        given.setdefault("python", f"{table.venv}/bin/python")
    if table.model:
        given.setdefault("served_model_name", served_name(table.model))
    return EngineSpec(**given, environment=tuple((table.environment or {}).items()))


def served_name(model: str) -> str:
    """The name a model is served under unless told otherwise: the last component of its path.

    In the Hugging Face cache that is a commit; the name stands two folders above (models--ORG--NAME/snapshots/COMMIT).
    """
    path = PurePosixPath(model)
    if path.parent.name == "snapshots" and path.parent.parent.name.startswith("models--"):
        return path.parent.parent.name.rpartition("--")[2]
    return path.name


def _engine_faults(config: Config, bad: frozenset[Key]) -> Iterator[Fault]:
    engine = config.engine
    if engine.python and engine.venv:
        yield Fault(("engine", "venv"), "cannot be used together with engine.python: give one of the two")
    for name, args in (("engine", engine.args), ("router", config.router.args)):
        if args and not args[0].startswith("-"):
            yield Fault((name, "args", 0), "cannot begin with a value: options begin with --")
    if engine.model and not engine.served_model_name and ("engine", "served_model_name") not in bad:
        try:
            words.served_name(served_name(engine.model))
        except ValueError as error:
            yield Fault(
                ("engine", "model"),
                f"cannot be served under the name of its folder: {error}; give engine.served_model_name",
            )


def _limits(table: LimitsTable) -> Limits:
    return Limits(**{name if name == "starts" else f"{name}_s": value for name, value in _given(table).items()})


def _order_faults(config: Config, spec: HostSpec, bad: frozenset[Key]) -> Iterator[Fault]:
    """Values that contradict each other, each told at the one of the two that is set."""
    first, last = spec.internal_port, spec.internal_port + PORTS_EACH * len(spec.mode.roles) - 1
    if first <= spec.port <= last and bad.isdisjoint({("port",), ("internal_port",)}):
        key = "port" if config.port is not None else "internal_port"
        yield Fault(
            (key,), f"cannot be used: port {spec.port} lies within {first} to {last}, which internal_port sets aside"
        )
    for less, more, equal in _SHORTER:
        short, long = getattr(spec.limits, f"{less}_s"), getattr(spec.limits, f"{more}_s")
        if (short < long or (equal and short == long)) or not bad.isdisjoint({("limits", less), ("limits", more)}):
            continue
        key = less if getattr(config.limits, less) is not None else more
        relation = "must not be longer than" if equal else "must be shorter than"
        told = (
            f"limits.{less} ({quantity.duration_text(short)}) {relation} limits.{more} ({quantity.duration_text(long)})"
        )
        yield Fault(("limits", key), f"cannot be used: {told}")
