"""JSON <-> the values of `model` that are kept in files. Knows types, not their meaning; light, for supervisors."""

import json
import math
import types
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from enum import Enum
from functools import cache
from typing import Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from dsv4ctl.model import Instance, RunState
from dsv4ctl.problems import Problem

T = TypeVar("T")

# What stands in the unit, and nowhere else.
_IN_UNIT = ("argv", "environment")
_NAMES: Mapping[type, str] = {Instance: "instance", RunState: "run state"}
_WORDS: Mapping[type, str] = {str: "a string", int: "a whole number", float: "a number", bool: "true or false"}
# Above this a float cannot tell whole numbers apart.
_EXACT = 2**53


def dump_instance(instance: Instance) -> str:
    """An instance as its supervisor reads it: all but argv and environment, which its unit holds."""
    values = {field.name: _plain(getattr(instance, field.name)) for field in fields(instance)}
    return _text({name: value for name, value in values.items() if name not in _IN_UNIT})


def load_instance(text: str, argv: tuple[str, ...]) -> Instance:
    """The instance in a text of `dump_instance`, with the argv that its unit gives. Its environment is left empty.

    Raises Problem, with the path of the key, for anything that `dump_instance` does not write.
    """
    found = _parsed(text, Instance)
    if isinstance(found, dict):
        if extra := [name for name in _IN_UNIT if name in found]:
            raise _problem(Instance, f"{extra[0]} stands in the unit and not here")
        found |= {"argv": list(argv), "environment": []}
    return _loaded(found, Instance)


def dump_state(state: RunState) -> str:
    """What a supervisor says of its instance, as its state file."""
    return _text(_plain(state))


def load_state(text: str) -> RunState:
    """The text of a state file. Raises Problem, with the path of the key, for anything else."""
    return _loaded(_parsed(text, RunState), RunState)


def dump(value: object) -> str:
    """A value of the house, whole: a frozen dataclass of such, of enums, tuples and scalars."""
    return _text(_plain(value))


def load(text: str, kind: type[T]) -> T:
    """The text of `dump` as the value that it was. Raises Problem, with the path of the key, for anything else."""
    return _loaded(_parsed(text, kind), kind)


def _text(value: object) -> str:
    return json.dumps(value, indent=2, sort_keys=True, allow_nan=False) + "\n"


def _plain(value: object) -> object:
    """A value of the model as JSON knows it."""
    if is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, tuple):
        return [_plain(part) for part in value]
    return value


def _parsed(text: str, kind: type) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _problem(kind, f"it is no JSON ({error})") from error


def _problem(kind: type, why: str) -> Problem:
    name = _NAMES.get(kind, kind.__name__.lower())
    return Problem(f"cannot read this {name}: {why}", hint="dsv4ctl deploy writes it anew")


class _Wrong(Exception):
    """A value that is not of its type: the path to it, and what is wrong there."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"{path or 'it'} {why}")


def _loaded(value: object, kind: type[T]) -> T:
    try:
        return cast("T", _record(value, kind, ""))
    except _Wrong as wrong:
        raise _problem(kind, str(wrong)) from wrong


def _typed(value: object, kind: type, path: str) -> object:
    """`value` as the type `kind`. Raises _Wrong at the first part that is not of its type."""
    origin = get_origin(kind)
    if origin in (Union, types.UnionType):
        # The model has no other unions than a type or None.
        (some,) = (part for part in get_args(kind) if part is not types.NoneType)
        return None if value is None else _typed(value, some, path)
    if origin is tuple:
        return _tuple(value, get_args(kind), path)
    if is_dataclass(kind):
        return _record(value, kind, path)
    if issubclass(kind, Enum):
        return _enum(value, kind, path)
    return _scalar(value, kind, path)


def _tuple(value: object, parts: tuple[Any, ...], path: str) -> tuple[object, ...]:
    if not isinstance(value, list):
        raise _Wrong(path, f"must be a list, and is {_shown(value)}")
    kinds = [parts[0]] * len(value) if parts[-1] is Ellipsis else list(parts)
    if len(kinds) != len(value):
        raise _Wrong(path, f"must have {len(kinds)} parts, and has {len(value)}")
    return tuple(_typed(part, kind, f"{path}[{at}]") for at, (part, kind) in enumerate(zip(value, kinds, strict=True)))


def _record(value: object, kind: type, path: str) -> object:
    if not isinstance(value, dict):
        raise _Wrong(path, f"must be an object, and is {_shown(value)}")
    known = {field.name: field for field in fields(kind)}
    if unknown := sorted(set(value) - set(known)):
        raise _Wrong(_below(path, unknown[0]), "is not known")
    if missing := [name for name, field in known.items() if name not in value and _is_needed(field)]:
        raise _Wrong(_below(path, missing[0]), "is missing")
    hints = _hints(kind)
    return kind(**{name: _typed(part, hints[name], _below(path, name)) for name, part in value.items()})


def _enum(value: object, kind: type[Enum], path: str) -> Enum:
    words = {member.value: member for member in kind}
    if not isinstance(value, str) or value not in words:
        raise _Wrong(path, f"must be one of {', '.join(words)}, and is {_shown(value)}")
    return words[value]


def _scalar(value: object, kind: type, path: str) -> object:
    # Types are compared whole: True is an int to Python. Other writers of JSON write 3 for 3.0.
    if kind is float and type(value) is int and abs(value) <= _EXACT:
        value = float(value)
    if type(value) is not kind or (isinstance(value, float) and not math.isfinite(value)):
        raise _Wrong(path, f"must be {_WORDS[kind]}, and is {_shown(value)}")
    return value


def _is_needed(field: Field[Any]) -> bool:
    """Whether a record without this field cannot be read. A field with a default may be younger than the record."""
    return field.default is MISSING and field.default_factory is MISSING


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def _below(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _shown(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else text[:59] + "…"
