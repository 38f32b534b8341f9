"""What looks like a secret and must not be shown. Knows names, never values' worth."""

import re
from collections.abc import Iterable

HIDDEN = "***"
_ANYWHERE = frozenset(("auth", "bearer", "credential", "credentials", "passphrase", "passwd", "password", "secret"))
# At the end only: SGLang has options such as --speculative-token-map, and a KEY_FILE is a path.
_AT_THE_END = frozenset(("apikey", "key", "keys", "token"))
# A variable in a unit file, in quotes or not, and an option with its value in a command there.
_VARIABLE = re.compile(r"""^Environment=(?P<quote>"?)(?P<name>[A-Za-z_]\w*)=""")
_OPTION = re.compile(r"""(?<=\s)(--?[A-Za-z][\w-]*)([ =])("(?:\\.|[^"\\])*"|\S+)""")
# http://user:password@proxy, as proxy and index variables carry it.
_LOGIN = re.compile(r"(?<=://)[^/\s@]+(?=@)")


def name_looks_secret(name: str) -> bool:
    """Whether an option or a variable is named like a secret: HF_TOKEN is, --max-total-tokens is not."""
    words = re.findall(r"[a-z]+", name.lower())
    return not _ANYWHERE.isdisjoint(words) or not _AT_THE_END.isdisjoint(words[-1:])


def key_may_hold_secret(key: tuple[str | int, ...]) -> bool:
    """Whether the value at this place of the configuration may be a secret: extra arguments and named variables."""
    if key[:2] == ("engine", "environment"):
        return len(key) < 3 or name_looks_secret(str(key[2]))
    return key[:2] in (("engine", "args"), ("router", "args"))


def value_shown(name: str, value: str) -> str:
    """The value of a variable as it may be shown."""
    return HIDDEN if name_looks_secret(name) else _LOGIN.sub(HIDDEN, value)


def args_shown(args: Iterable[str]) -> tuple[str, ...]:
    """Arguments as they may be shown: what follows an option named like a secret is hidden, `--x v` and `--x=v`."""
    shown = []
    hide = False
    for arg in args:
        option, equals, _ = arg.partition("=")
        if not arg.startswith("-"):
            shown.append(HIDDEN if hide else _LOGIN.sub(HIDDEN, arg))
            hide = False
            continue
        hide = name_looks_secret(option)
        shown.append(f"{option}={HIDDEN}" if hide and equals else _LOGIN.sub(HIDDEN, arg))
        hide = hide and not equals
    return tuple(shown)


def unit_shown(text: str) -> str:
    """The text of a unit file as it may be shown."""
    return "\n".join(_unit_line(line) for line in text.split("\n"))


def _unit_line(line: str) -> str:
    if (variable := _VARIABLE.match(line)) and name_looks_secret(variable["name"]):
        return f"Environment={variable['quote']}{variable['name']}={HIDDEN}{variable['quote']}"
    if line.startswith("ExecStart="):
        line = _OPTION.sub(lambda m: f"{m[1]}{m[2]}{HIDDEN}" if name_looks_secret(m[1]) else m[0], line)
    return _LOGIN.sub(HIDDEN, line)
