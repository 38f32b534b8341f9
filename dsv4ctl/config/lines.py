"""On which line of a TOML text each key stands; tomllib does not tell. Knows only the text."""

import re
import tomllib
from collections.abc import Iterator, Mapping

# Strings and comments first, so that brackets and line ends inside them count for nothing.
_TOKEN = re.compile(
    r'"""(?:\\.|[^\\])*?"{3,5}|' + r"'''.*?'{3,5}" + r'|"(?:\\.|[^"\\\n])*"' + r"|'[^'\n]*'" + r"|#[^\n]*|[\[\]{}\n]",
    re.DOTALL,
)


def lines(text: str) -> dict[str, int]:
    """Dotted key -> line number, counted from 1, of every key and table of a TOML text that can be read.

    A line that cannot be understood on its own is left out: the number is a courtesy to the reader.
    """
    found: dict[str, int] = {}
    table: tuple[str, ...] = ()
    for number, statement in _statements(text.replace("\r\n", "\n")):
        try:
            paths = list(_paths(tomllib.loads(statement), ()))
        except (ValueError, RecursionError):
            continue
        if statement.lstrip().startswith("["):
            table, paths = paths[-1], [()]
        for path in paths:
            found.setdefault(".".join((*table, *path)), number)
    return found


def _statements(text: str) -> Iterator[tuple[int, str]]:
    """Each statement with the line it begins on: line ends inside brackets and strings do not end one."""
    begin = depth = 0
    number = 1
    for token in _TOKEN.finditer(text + "\n"):
        if token[0] in ("[", "{"):
            depth += 1
        elif token[0] in ("]", "}"):
            depth -= 1
        elif token[0] == "\n" and depth == 0:
            statement = text[begin : token.start()]
            if statement.strip():
                yield number, statement
            number += statement.count("\n") + 1
            begin = token.end()


def _paths(value: object, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """The path of every table and every value below, outer before inner."""
    if isinstance(value, list) and value and isinstance(value[0], Mapping):
        value = value[0]
    if path:
        yield path
    if isinstance(value, Mapping):
        for key, below in value.items():
            yield from _paths(below, (*path, key))
