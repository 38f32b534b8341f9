"""The real engine's command line: every option of SGLang 0.5.23 with its kind, choices and default (options.txt)."""

import argparse
import json
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MULTIPLIERS = {"k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}
TYPES = {"int": int, "float": float, "text": str, "json": json.loads}
NARGS = {"+": "+", "*": "*", "?": "?"}


@dataclass(frozen=True, slots=True)
class Option:
    """One line of options.txt: spellings, kind, and then in any order required, dest=NAME, {choices}, = default."""

    spellings: tuple[str, ...]
    kind: str
    dest: str
    choices: tuple[str, ...]
    required: bool
    default: Any


def table() -> Iterator[Option]:
    """Every option of options.txt."""
    for line in Path(__file__).with_name("options.txt").read_text(encoding="utf-8").splitlines():
        yield _option(line)


def _option(line: str) -> Option:
    names, kind, *rest = line.split("  ")
    spellings = tuple(names.split())
    dest = next((word.removeprefix("dest=") for word in rest if word.startswith("dest=")), "")
    choices = next((tuple(word[1:-1].split(",")) for word in rest if word.startswith("{")), ())
    default = next((json.loads(word[2:]) for word in rest if word.startswith("= ")), None)
    natural = spellings[0].removeprefix("--").replace("-", "_")
    return Option(spellings, kind, dest or natural, choices, "required" in rest, default)


def parser() -> argparse.ArgumentParser:
    """The parser; abbreviations are on, as in the real one, so an option that is no longer there may be ambiguous."""
    made = argparse.ArgumentParser(prog="sglang serve")
    for option in table():
        _add(made, option)
    return made


def _add(made: argparse.ArgumentParser, option: Option) -> None:
    shared: dict[str, Any] = {"dest": option.dest, "help": " "}
    match option.kind:
        case "switch":
            made.add_argument(*option.spellings, action="store_true", **shared)
        case "deprecated-switch":
            made.add_argument(*option.spellings, action=Deprecated, nargs=0, default=False, **shared)
        case "yesno":
            made.add_argument(
                *option.spellings, action=argparse.BooleanOptionalAction, default=option.default, **shared
            )
        case "deprecated-word":
            made.add_argument(*option.spellings, choices=option.choices, default=False, **shared)
        case kind:
            made.add_argument(*option.spellings, **shared, **_valued(option, kind))


def _valued(option: Option, kind: str) -> dict[str, Any]:
    """What argparse wants to know of an option with values."""
    name, many = (kind[:-1], kind[-1]) if kind[-1] in NARGS else (kind, "")
    made: dict[str, Any] = {"default": option.default, "required": option.required}
    made["type"] = human if name == "human" else TYPES[name]
    if many:
        made["nargs"] = NARGS[many]
    if option.choices:
        made["choices"] = [made["type"](choice) for choice in option.choices]
    return made


class Deprecated(argparse.Action):
    """A switch that still works and warns in yellow."""

    def __call__(  # type: ignore[explicit-override]  # typing.override is newer than Python 3.11
        self,
        parser: argparse.ArgumentParser,  # noqa: ARG002
        namespace: argparse.Namespace,
        values: object,  # noqa: ARG002
        option_string: str | None = None,
    ) -> None:
        """Set the switch."""
        warning = f"'{option_string}' is deprecated and will be removed in a future release."
        sys.stderr.write(f"\033[1;33m{warning}\033[0m\n")
        setattr(namespace, self.dest, True)


def human(value: str) -> int:
    """A token count: `128k` is 128000, `128Ki` is 131072; suffixes are case-sensitive."""
    if found := re.fullmatch(r"(\d+(?:\.\d+)?)(Ki|Mi|Gi|Ti|[kMGT])", value):
        return int(float(found[1]) * MULTIPLIERS[found[2]])
    try:
        return int(value)
    except ValueError:
        raise argparse.ArgumentTypeError(f"Invalid integer value: '{value}'.") from None


def merge_config(words: Sequence[str]) -> list[str]:
    """Put the options of `--config FILE` (two words; `--config=FILE` is ignored) before those of the command line.

    Raises ValueError where the real engine does.
    """
    if "--config" not in words:
        return list(words)
    at = words.index("--config")
    if at + 1 == len(words):
        raise ValueError("No config file specified after --config flag!")
    file = Path(words[at + 1])
    if file.suffix not in (".yaml", ".yml"):
        raise ValueError(f"Config file must be YAML format, got: {file}")
    merged = [word for line in file.read_text(encoding="utf-8").splitlines() for word in _config_words(line)]
    return [*merged, *words[:at], *words[at + 2 :]]


def _config_words(line: str) -> list[str]:
    """One `key: value` of the small part of YAML that is understood: plain and quoted scalars."""
    key, colon, value = line.partition(":")
    if not line.strip() or line.lstrip().startswith("#"):
        return []
    if not colon or key != key.strip():
        raise ValueError(f"the stand-in engine understands only `key: value` in its config, not {line!r}")
    value = value.strip()
    if value in ("true", "false"):
        return [f"--{key}"] if value == "true" else []
    return [f"--{key}", _scalar(value)]


def _scalar(value: str) -> str:
    """The text of a YAML scalar: single quotes double a quote, double quotes escape as JSON does."""
    if value.startswith("'"):
        return value[1:-1].replace("''", "'")
    return str(json.loads(value)) if value.startswith('"') else value
