"""What is wrong at which key, and how it is said: the place, what cannot be used, what is allowed, what was meant."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from dsv4ctl.config import words
from dsv4ctl.config.schema import KEYS, keys_of

Key = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Fault:
    """One problem of a configuration, at one key."""

    key: Key
    words: str


def dotted(key: Key) -> str:
    """A key as it is written in the file: engine.args[3], engine.environment.HF_HOME, modes."x y"."""
    text = ""
    for part in key:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += ("." if text else "") + (part if re.fullmatch(r"[A-Za-z0-9_-]{1,80}", part) else words.shown(part))
    return text


def flag_of(key: str, value: object = None) -> str:
    """The option of the command line that sets a key to a value: memory.context_length is --context-length."""
    table, _, name = key.rpartition(".")
    # The router has an interpreter and arguments of its own.
    prefix = f"{table}-" if table in ("router", "transfer") else ""
    return ("--no-" if value is False else "--") + prefix + name.replace("_", "-")


def from_schema(error: Mapping[str, Any]) -> Fault:
    """What pydantic found (one of ValidationError.errors()), in our words."""
    key: Key = error["loc"]
    # Asked first: an unknown key may itself be called what pydantic says of a name.
    if error["type"] == "extra_forbidden":
        return Fault(key, f"cannot use this key: it is not known; {_meant(key)}")
    if key[-1:] == ("[key]",):
        return Fault(key[:-1], f"cannot use this name: {_reason(error)}")
    return Fault(key, f"cannot use {words.shown(error['input'], key)}: {_reason(error)}")


def _reason(error: Mapping[str, Any]) -> str:
    match error["type"]:
        case "value_error":
            return str(error["ctx"]["error"])
        case "dict_type" | "model_type":
            return f"allowed is one table, [{dotted(error['loc'])}]"
        case "tuple_type":
            return 'allowed is a list of strings, such as ["--option", "value"]'
    return str(error["msg"][:1]).lower() + str(error["msg"][1:])


def _meant(key: Key) -> str:
    """The key that was meant, looked for in the same table and then in all; else what is known there."""
    table, name = key[:-1], str(key[-1])
    here = keys_of(table)
    if near := get_close_matches(name.replace("-", "_"), here, n=1):
        return f"did you mean {dotted((*table, near[0]))}?"
    leaves = {known.rpartition(".")[2]: known for known in KEYS}
    if near := get_close_matches(name.replace("-", "_"), leaves, n=1, cutoff=0.8):
        return f"did you mean {leaves[near[0]]}?" + (" keys of no table stand above the first table" if table else "")
    return f"known here are {', '.join(here)}"


def message(fault: Fault, places: Mapping[str, str]) -> str:
    """One line for the operator: the place, the key, what is wrong. `places` says where a key's value came from."""
    parts = [str(part) for part in fault.key if not isinstance(part, int)]
    for length in range(len(parts), -1, -1):
        place = places.get(".".join(parts[:length]))
        if place is not None:
            break
    key = dotted(fault.key)
    return ": ".join(part for part in (place, "" if (place or "").startswith("--") else key, fault.words) if part)
