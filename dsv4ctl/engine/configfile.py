"""The YAML file that SGLang takes with --config -> the options that it means. Pure; knows as much YAML as it needs.

SGLang takes one flat mapping with dashes in its keys: `true` is a switch, `false` nothing, a list several values
(server_args_config_parser.py). A file that holds more than that is refused, and not read half.
"""

import json
import re
from collections.abc import Iterator

from dsv4ctl.engine import readback
from dsv4ctl.engine.readback import Given

_ENTRY = re.compile(r"(?P<key>[A-Za-z][A-Za-z0-9-]*):(?:[ \t]+(?P<value>.*))?")
_ITEM = re.compile(r"[ \t]*-[ \t]+(?P<value>.*)")


def parse(text: str) -> tuple[Given, ...]:
    """The options of a file. Raises ValueError for what is no flat mapping of plain values and lists."""
    found: dict[str, tuple[str, ...] | None] = {}
    key = ""
    for line in filter(None, map(_bare, text.splitlines())):
        if match := _ENTRY.fullmatch(line):
            key = match["key"]
            found[key] = _values(match["value"] or "")
        elif (match := _ITEM.fullmatch(line)) and key and (known := found[key]) is not None:
            found[key] = (*known, _scalar(match["value"]))
        elif line != "---":
            raise ValueError(f"not understood: {line}")
    return tuple(_given(found))


def _given(found: dict[str, tuple[str, ...] | None]) -> Iterator[Given]:
    for key, values in found.items():
        if values != ("false",) and values is not None:
            yield Given(readback.whole(f"--{key}"), () if values == ("true",) else values)


def _bare(line: str) -> str:
    """The line without its comment: a # at its beginning or behind a blank, outside quotes."""
    quote = ""
    for at, character in enumerate(line):
        if quote:
            quote = "" if character == quote else quote
        elif character in "\"'":
            quote = character
        elif character == "#" and (at == 0 or line[at - 1] in " \t"):
            return line[:at].rstrip()
    return line.rstrip()


def _values(text: str) -> tuple[str, ...] | None:
    """What stands behind a key: one value, a list in brackets, or nothing yet; None for null."""
    if text in ("null", "~"):
        return None
    if text.startswith("{"):
        return (json.dumps(json.loads(text)),)
    if text.startswith("["):
        if not text.endswith("]"):
            raise ValueError(f"not understood: {text}")
        return tuple(_scalar(part) for part in text[1:-1].split(",") if part.strip())
    return (_scalar(text),) if text else ()


def _scalar(text: str) -> str:
    value = text.strip()
    if value[:1] == value[-1:] == '"' and len(value) > 1:
        return str(json.loads(value))
    if value[:1] == value[-1:] == "'" and len(value) > 1:
        return value[1:-1].replace("''", "'")
    # Anchors, tags, block texts and nested tables.
    if value[:1] in "&*!|>{[\"'%@`" or ": " in value:
        raise ValueError(f"not understood: {value}")
    return value
