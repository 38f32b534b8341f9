"""Values -> text that systemd reads back as the same bytes: systemd.syntax(7), and what 252 was seen to do."""

import re
from collections.abc import Iterable
from pathlib import PurePosixPath

# The kernel's MAX_ARG_STRLEN: one string of argv or of the environment, its final NUL included.
MOST_BYTES = 128 * 1024
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_BARE = re.compile(r"[A-Za-z0-9_+=:,./@-]+")
_NAMED = {"\n": "\\n", "\t": "\\t", "\r": "\\r", '"': '\\"', "\\": "\\\\"}
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_QUOTED = re.compile(r'[\x00-\x1f\x7f"\\]')


def command(argv: Iterable[str]) -> str:
    r"""The value of ExecStart= for these words, over several lines, one option a line.

    It begins with ':', which turns variable expansion off, so that a $ needs no escape: systemd would collapse $$ in an
    argument but not in the path of the program. Raises ValueError, with the option at which it happened, for words that
    cannot be carried and for a program whose path systemd does not accept.
    """
    program, *arguments = argv
    text = ":" + _program(program)
    option = before = ""
    for argument in arguments:
        option = argument if argument.startswith("-") else option
        try:
            written = word(argument)
        except ValueError as error:
            raise ValueError(f"{option or 'the command line'}: {error}") from None
        starts_line = before == "--" or (argument.startswith("--") and argument != "--")
        text += (" \\\n    " if starts_line else " ") + written
        before = argument
    return text


def word(value: str) -> str:
    """One word of a command line whose ExecStart= begins with ':', in double quotes where it needs them.

    Raises ValueError for what neither a unit file nor execve can carry.
    """
    _carried(value)
    # A lone ; would end the command, and a word of no characters would vanish.
    return value if _BARE.fullmatch(value) else f'"{_escaped(value)}"'


def assignment(name: str, value: str) -> str:
    """The value of one Environment= line. $ is not special there.

    Raises ValueError, with the variable's name, for a name or a value that cannot be carried.
    """
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name!r}: cannot be the name of an environment variable; use letters, digits and _")
    try:
        _carried(f"{name}={value}")
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
    return f"{name}={value}" if not value or _BARE.fullmatch(value) else f'"{name}={_escaped(value)}"'


def path(value: str, *, optional: bool = False) -> str:
    """An absolute path in a list of paths (BindReadOnlyPaths=, ReadWritePaths=, RequiresMountsFor=).

    `optional`: with the dash that tells systemd to go on where there is nothing at the path.

    In these lists systemd removes a backslash before any character and knows no escapes such as \\n, so control
    characters cannot be carried. Raises ValueError for them and for a path that is not absolute and free of `..`.
    """
    _carried(value)
    _no_control(value)
    if not value.startswith("/") or ".." in PurePosixPath(value).parts:
        raise ValueError(f"{value!r} must be an absolute path without ..")
    text = f"-{value}" if optional else value
    return text if _BARE.fullmatch(text) and ":" not in text else f'"{_escaped(text)}"'


def plain(value: str) -> str:
    """A value that systemd reads to the end of its line, quotes and all: WorkingDirectory=, LoadCredential=, User=.

    Raises ValueError for control characters, blanks at either end and a backslash at the end: none can be carried.
    """
    _carried(value)
    _no_control(value)
    if value != value.strip() or value.endswith("\\"):
        raise ValueError(
            f"{value!r} begins or ends with a blank or ends with a backslash, which a unit file cannot carry here"
        )
    return value.replace("%", "%%")


def prose(value: str) -> str:
    """A value made fit to be read in Description=: control characters and what UTF-8 cannot say become blanks."""
    text = "".join(" " if _CONTROL.match(character) or _unfit(ord(character)) else character for character in value)
    return text.rstrip(" \\").lstrip().replace("%", "%%")


def _program(program: str) -> str:
    """Raises ValueError for a path that systemd refuses as the program of ExecStart=."""
    _carried(program)
    # systemd's string_is_safe(): quotes, backslashes and control characters are refused here, escaped or not.
    if not program.startswith("/") or re.search(r"[\x00-\x1f\x7f\"'\\]", program):
        raise ValueError(
            f"{program!r} cannot be started by systemd: it takes absolute paths without quotes and backslashes"
        )
    return word(program)


def _escaped(value: str) -> str:
    return _QUOTED.sub(_escape, value).replace("%", "%%")


def _escape(match: re.Match[str]) -> str:
    return _NAMED.get(match.group()) or f"\\x{ord(match.group()):02x}"


def _carried(value: str) -> None:
    if "\0" in value:
        raise ValueError(f"{_short(value)} has a NUL byte in it, which no argument or variable can carry")
    if any(_unfit(ord(character)) for character in value):
        raise ValueError(f"{_short(value)} has a character in it that is not valid UTF-8 to systemd")
    if len(value.encode()) >= MOST_BYTES:
        raise ValueError(
            f"{_short(value)} has {len(value.encode())} bytes, and the kernel takes {MOST_BYTES - 1} at most"
        )


def _no_control(value: str) -> None:
    if found := _CONTROL.search(value):
        raise ValueError(
            f"{value!r} has the control character {found.group()!r} in it, which a unit file cannot carry here"
        )


def _unfit(code: int) -> bool:
    """Surrogates, by which Python carries bytes that are no UTF-8, and noncharacters: both are invalid to systemd."""
    return 0xD800 <= code <= 0xDFFF or 0xFDD0 <= code <= 0xFDEF or code & 0xFFFE == 0xFFFE


def _short(value: str) -> str:
    return repr(value) if len(value) <= 60 else repr(value[:59]) + "…"
