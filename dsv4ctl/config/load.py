"""TOML text and flags -> HostSpec with the source of every value, or BadConfig with every problem."""

import codecs
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from dsv4ctl.config import checks, faults
from dsv4ctl.config.faults import Fault, Key, flag_of
from dsv4ctl.config.lines import lines
from dsv4ctl.config.schema import KEYS, Config, ModeTable, RoleTable
from dsv4ctl.model import HostSpec, Mode
from dsv4ctl.problems import BadConfig

HINT = "dsv4ctl config example   shows every key with its default"
_LONGEST_TEXT = 1024 * 1024
# More than the longest text has in UTF-8: what is read of a file, for a device has no end.
MOST_BYTES = 4 * _LONGEST_TEXT + 1
DEFAULT = "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class Effective:
    """What is in force: the checked spec, the modes that the file holds, and where each key's value came from."""

    spec: HostSpec
    modes: Mapping[str, Mode]
    sources: Mapping[str, str]


def decode(content: bytes, *, path: str) -> str:
    """The text of a configuration file, without the mark that editors of other systems begin it with.

    Raises BadConfig where it is not UTF-8.
    """
    try:
        return content.removeprefix(codecs.BOM_UTF8).decode()
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise BadConfig((f"{path}:{line}: cannot read this line: it is not UTF-8 text",), hint=HINT) from None


def load(text: str | None, flags: Mapping[str, object], *, path: str) -> Effective:
    """Check a configuration whole. `text` None: there is no file; `path` is its name in messages.

    `flags` maps keys such as "port" or "memory.context_length" to values, texts included; they win over the file.
    Raises BadConfig with every problem: the place, the key, what is allowed and what was meant perhaps.
    """
    file = _parse(text or "", path)
    given = {key: value for key, value in flags.items() if value is not None}
    strange = [Fault((key,), "cannot use this option: it is not known") for key in given if key not in KEYS]
    known = {key: value for key, value in given.items() if key in KEYS}
    sources = _sources(text or "", path, known)
    merged = _merge(file, known)
    config, wrong = _validate(merged)
    spec, held, crossed = checks.build(config, bad=frozenset(fault.key for fault in wrong))
    if problems := (*strange, *wrong, *crossed):
        raise BadConfig(tuple(dict.fromkeys(faults.message(f, {"": path, **sources}) for f in problems)), hint=HINT)
    return Effective(spec=spec, modes=held, sources=_complete(sources, config))


def _parse(text: str, path: str) -> dict[str, Any]:
    if len(text) > _LONGEST_TEXT or re.search("[\0\ud800-\udfff]", text):
        raise BadConfig((f"{path}: cannot read it: it is no text file of at most 1 MiB",), hint=HINT)
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        # Its text is "Invalid value (at line 3, column 8)" or "... (at end of document)".
        match = re.fullmatch(r"(.*) \(at line ([0-9]+), column ([0-9]+)\)", str(error), re.DOTALL)
        where, why = (f"{path}:{match[2]}", match[1]) if match else (path, str(error))
    except ValueError:  # what int() raises at more than 4300 digits
        where, why = path, "a number has too many digits"
    except RecursionError:
        where, why = path, "it is nested too deeply"
    raise BadConfig((f"{where}: cannot read this as TOML: {why[:1].lower()}{why[1:]}",), hint=HINT)


def _sources(text: str, path: str, flags: Mapping[str, object]) -> dict[str, str]:
    """Key or table -> "PATH:LINE", or the option that set it."""
    found = {key: f"{path}:{line}" for key, line in lines(text).items()}
    return found | {key: flag_of(key, value) for key, value in flags.items()}


def _merge(file: Mapping[str, Any], flags: Mapping[str, object]) -> dict[str, Any]:
    merged = dict(file)
    engine = merged.get("engine")
    # An interpreter from the command line takes the place of the file's, in whichever of the two forms either came.
    if isinstance(engine, dict) and not {"engine.python", "engine.venv"}.isdisjoint(flags):
        engine.pop("python", None)
        engine.pop("venv", None)
    for key, value in flags.items():
        table, _, name = key.rpartition(".")
        place = merged.setdefault(table, {}) if table else merged
        if isinstance(place, dict):
            place[name] = value
    return merged


def _validate(raw: dict[str, Any]) -> tuple[Config, tuple[Fault, ...]]:
    """The configuration without its wrong values, for the checks of one value against another, and what is wrong.

    Takes the wrong values out of `raw`.
    """
    found: list[Fault] = []
    while True:
        try:
            return Config.model_validate(raw), tuple(found)
        except ValidationError as error:
            new = [faults.from_schema(e) for e in error.errors(include_url=False)]
        found += new
        for fault in new:
            _drop(raw, fault.key)


def _drop(raw: dict[str, Any], key: Key) -> None:
    """Take a wrong value out: whole lists, and whole modes, for half of one means something else."""
    path = [part for part in (key[:2] if key[0] == "modes" else key) if isinstance(part, str)]
    place = raw
    for part in path[:-1]:
        place = place.get(part, {})
    place.pop(path[-1], None)


def _complete(sources: Mapping[str, str], config: Config) -> dict[str, str]:
    """The source of every key, of those that follow from another one too."""
    complete = {key: sources[key] if key in sources and _is_set(config, key) else DEFAULT for key in KEYS}
    complete |= {
        f"engine.environment.{name}": sources["engine.environment"] for name in config.engine.environment or ()
    }
    complete |= {
        key: place for key, place in sources.items() if key in complete and key.startswith("engine.environment.")
    }
    for name, table in config.modes.items():
        complete |= _of_mode(sources, name, table, placed=config.gpus is not None)
    if config.engine.venv:
        complete["engine.python"] = f"{complete['engine.venv']} (engine.venv)"
    if config.engine.model and not config.engine.served_model_name:
        complete["engine.served_model_name"] = f"{complete['engine.model']} (engine.model)"
    if config.gpus is None:
        complete["gpus"] = f"{complete['mode']} (mode)"
    return complete


def _of_mode(sources: Mapping[str, str], name: str, table: ModeTable, *, placed: bool) -> Iterator[tuple[str, str]]:
    """The source of each key of a mode's roles; what a built-in one is not given of them is a default."""
    header = next((place for key, place in sources.items() if f"{key}.".startswith(f"modes.{name}.")), "")
    for role in ModeTable.model_fields:
        given: RoleTable | None = getattr(table, role)
        for part in RoleTable.model_fields:
            key = f"modes.{name}.{role}.{part}"
            place = DEFAULT if given is None or getattr(given, part) is None else sources.get(key, header)
            yield key, f"{place}; gpus takes its place" if placed and part == "gpus" else place


def _is_set(config: Config, key: str) -> bool:
    table, _, name = key.rpartition(".")
    return name in (getattr(config, table) if table else config).model_fields_set
