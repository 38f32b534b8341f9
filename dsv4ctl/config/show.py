"""The effective configuration as rows of key, value and source, secrets hidden. Knows no screen."""

from dataclasses import dataclass

from dsv4ctl import modes, quantity, secret
from dsv4ctl.config.load import Effective
from dsv4ctl.config.schema import KEYS
from dsv4ctl.model import HostSpec, Mode, Role

Value = str | int | float | bool | None | list[str] | list[int]


@dataclass(frozen=True, slots=True)
class Row:
    """One value in force: `value` for programs, `text` for people, `source` where it came from."""

    key: str
    value: Value
    text: str
    source: str


def rows(effective: Effective) -> tuple[Row, ...]:
    """Every key with its value and source, in the order of the example file; then the roles of the modes it holds."""
    spec = effective.spec
    found = [
        _row(key, _value(spec, key), effective) for key in KEYS if key not in ("engine.environment", "engine.venv")
    ]
    for name, value in spec.engine.environment:
        found.append(_row(f"engine.environment.{name}", secret.value_shown(name, value), effective))
    found += [
        _row(f"modes.{mode.name}.{role}.{part}", value, effective)
        for mode in effective.modes.values()
        for role in modes.roles(mode)
        for part, value in _shape(mode, role).items()
    ]
    return tuple(found)


def _shape(mode: Mode, role: Role) -> dict[str, Value]:
    """A role as the file holds it: two servers have as many ranks each, and one list of GPUs."""
    shapes = [shape for shape in mode.roles if shape.role is role]
    return {"tp": shapes[0].tp, "gpus": [gpu for shape in shapes for gpu in shape.gpus]}


def _row(key: str, value: Value, effective: Effective) -> Row:
    return Row(key, value, text_of(key, value), effective.sources.get(key, ""))


def _value(spec: HostSpec, key: str) -> Value:
    match key.split("."):
        case ["mode"]:
            return spec.mode.name
        case ["gpus"]:
            return [gpu for shape in spec.mode.roles for gpu in shape.gpus]
        case ["engine" | "router" as table, "args"]:
            return list(secret.args_shown(getattr(spec, table).args))
        case ["limits", name]:
            value: Value = getattr(spec.limits, name if name == "starts" else f"{name}_s")
        case ["memory", "mem_fraction_static"]:
            value = spec.memory.mem_fraction_static or "auto"
        case ["engine" | "memory" | "transfer" | "router" as table, name]:
            value = getattr(getattr(spec, table), name)
        case [name]:
            value = getattr(spec, name)
    return value


def text_of(key: str, value: Value) -> str:
    """A value for people: 524288 (512k), 40m, GPUs 0-3; "-" where nothing is set."""
    are_gpus = key.rpartition(".")[2] == "gpus"
    if value is None or (value == [] and not are_gpus):
        return "-"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return modes.gpus_text(map(int, value)) if are_gpus else " ".join(map(_quoted, map(str, value)))
    if isinstance(value, int) and key.startswith("memory."):
        return quantity.count_text(value)
    if isinstance(value, int) and key.startswith("limits.") and key != "limits.starts":
        return f"{value} ({quantity.duration_text(value)})"
    return (
        value
        if isinstance(value, str) and value.isprintable()
        else repr(value)
        if isinstance(value, str)
        else str(value)
    )


def _quoted(arg: str) -> str:
    return arg if arg.isprintable() and arg and " " not in arg else repr(arg)


def mode_text(mode: Mode) -> str:
    """A mode in one line: server tp 4 on GPUs 0-3."""
    return ", ".join(
        f"{r.role} tp {r.tp} on " + (f"GPUs {modes.gpus_text(r.gpus)}" if r.gpus else "no GPU")
        for r in mode.roles
        if r.role is not Role.ROUTER
    )


def texts(spec: HostSpec) -> dict[str, str]:
    """Every key with its value as people read it, secrets hidden; where values came from is not told."""
    keys = (key for key in KEYS if key not in ("mode", "gpus", "engine.environment", "engine.venv"))
    found = {
        "mode": f"{spec.mode.name} ({mode_text(spec.mode)})",
        **{key: text_of(key, _value(spec, key)) for key in keys},
    }
    shown = {f"engine.environment.{name}": secret.value_shown(name, value) for name, value in spec.engine.environment}
    return found | shown
