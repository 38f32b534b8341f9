"""Unit file text -> entries by systemd.syntax(7): sections, continued lines, comments, resets, words, time spans."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

_BLANKS = " \t\n\r"
_ESCAPES = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "s": " "}
_CODED = re.compile(r"x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([0-7]{3})")
_SPAN = re.compile(r"([0-9]*\.?[0-9]+)\s*([a-zA-Zµ]*)")
_UNITS = {
    **dict.fromkeys(("us", "usec", "µs"), 1e-6),
    **dict.fromkeys(("ms", "msec"), 1e-3),
    **dict.fromkeys(("", "s", "sec", "second", "seconds"), 1.0),
    **dict.fromkeys(("m", "min", "minute", "minutes"), 60.0),
    **dict.fromkeys(("h", "hr", "hour", "hours"), 3600.0),
    **dict.fromkeys(("d", "day", "days"), 86400.0),
    **dict.fromkeys(("w", "week", "weeks"), 604800.0),
}


@dataclass(frozen=True, slots=True)
class Entry:
    """One assignment: `[section] key=value`, continued lines joined, blanks at its ends removed."""

    section: str
    key: str
    value: str


@dataclass(frozen=True, slots=True)
class Settings:
    """The entries of a unit and its drop-ins in the order in which systemd reads them."""

    entries: tuple[Entry, ...]

    def all(self, section: str, key: str) -> tuple[str, ...]:
        """Every value of a key that may stand several times; an empty assignment forgets what was before it."""
        values: list[str] = []
        for entry in self.entries:
            if (entry.section, entry.key) == (section, key):
                values = [*values, entry.value] if entry.value else []
        return tuple(values)

    def last(self, section: str, key: str) -> str:
        """The value that holds for a key that is set once; '' when it is not set."""
        return next(iter(reversed(self.all(section, key))), "")

    def span(self, section: str, key: str) -> float | None:
        """The value of a time span in seconds; None when it is not set or cannot be read."""
        value = self.last(section, key)
        return seconds(value) if value else None


def parse(texts: Iterable[str]) -> Settings:
    """The settings of a unit file and its drop-ins, given in the order in which systemd reads them."""
    return Settings(tuple(entry for text in texts for entry in _entries(text)))


def words(value: str) -> tuple[str, ...]:
    """The words of a command line or of an Environment= value as systemd takes them apart, %% as one percent sign.

    The prefixes of a program (`:`, `-`, `@`, `+`, `!`) stay on the first word. Raises ValueError for an open quote.
    """
    found: list[str] = []
    position = 0
    while (position := _skip(value, position)) < len(value):
        text, position = _word(value, position)
        found.append(text.replace("%%", "%"))
    return tuple(found)


def seconds(span: str) -> float | None:
    """A time span such as `90`, `5min 20s` or `infinity` in seconds; None when it is none."""
    if span.strip() == "infinity":
        return float("inf")
    parts = _SPAN.findall(span)
    if not parts or _SPAN.sub("", span).strip() or any(unit not in _UNITS for _, unit in parts):
        return None
    return sum(float(number) * _UNITS[unit] for number, unit in parts)


def logical_lines(text: str) -> Iterator[Sequence[str]]:
    """The physical lines of each logical one: a backslash at its end goes on, past comments between."""
    held: list[str] = []
    for line in text.split("\n"):
        if held and line.lstrip(_BLANKS).startswith(("#", ";")):
            held.append(line)
            continue
        held.append(line)
        if not _goes_on(line):
            yield held
            held = []
    if held:
        yield held


def _entries(text: str) -> Iterator[Entry]:
    section = ""
    for lines in logical_lines(text):
        content = [line for number, line in enumerate(lines) if not number or not _is_comment(line)]
        joined = " ".join(line[:-1] if _goes_on(line) else line for line in content).strip(_BLANKS)
        if joined.startswith("[") and joined.endswith("]"):
            section = joined[1:-1]
        elif "=" in joined and not _is_comment(joined):
            key, value = joined.split("=", 1)
            yield Entry(section, key.strip(_BLANKS), value.strip(_BLANKS))


def _is_comment(line: str) -> bool:
    return line.lstrip(_BLANKS).startswith(("#", ";"))


def _goes_on(line: str) -> bool:
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1 and not _is_comment(line)


def _skip(text: str, position: int) -> int:
    while position < len(text) and text[position] in _BLANKS:
        position += 1
    return position


def _word(text: str, position: int) -> tuple[str, int]:
    """One word from `position` on and where it ends."""
    out: list[str] = []
    quote = ""
    while position < len(text):
        character = text[position]
        if character == "\\":
            unescaped, position = _unescape(text, position + 1)
            out.append(unescaped)
            continue
        position += 1
        if quote:
            quote = "" if character == quote else quote
            out.append(character if quote else "")
        elif character in "\"'":
            quote = character
        elif character in _BLANKS:
            break
        else:
            out.append(character)
    if quote:
        raise ValueError(f"the quote {quote} is not closed in {text!r}")
    return "".join(out), position


def _unescape(text: str, position: int) -> tuple[str, int]:
    """What the escape sequence behind a backslash means, and where it ends."""
    if match := _CODED.match(text, position):
        digits = match[1] or match[2] or match[3]
        return chr(int(digits, 16) if digits else int(match[4], 8)), match.end()
    character = text[position : position + 1]
    return _ESCAPES.get(character, character), position + 1
