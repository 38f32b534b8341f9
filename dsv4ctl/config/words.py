"""The leaves of a configuration: each function reads one value, or raises ValueError with what is allowed instead."""

import datetime
import ipaddress
import math
import re
from collections.abc import Callable
from pathlib import PurePosixPath

from dsv4ctl import quantity, secret
from dsv4ctl.config import engine_args
from dsv4ctl.unitfile import RUNNERS, SHELLS

# The kernel carries no single argument or variable above 128 KiB (MAX_ARG_STRLEN in execve(2)).
_LONGEST = 65536
# systemd refuses text with surrogates or noncharacters (utf8_is_valid in its sources); execve(2) ends a string at NUL.
_NOT_CARRIED = re.compile("[\0\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]")
# Python refuses to print an integer of more than 4300 digits, and TOML can carry one in hexadecimal.
_LARGEST_SHOWN = 2**64
MODE_NAME = r"[a-z0-9][a-z0-9-]{0,39}"
MODE_NAME_ALLOWED = "a mode's name of lower-case letters, digits and dashes, such as single-tp4"
# systemd.exec(5), "Environment Variables Set or Propagated by the Service Manager".
_SET_BY_SYSTEMD = frozenset(
    {
        *(
            "CACHE_DIRECTORY",
            "CREDENTIALS_DIRECTORY",
            "INVOCATION_ID",
            "JOURNAL_STREAM",
            "LISTEN_FDS",
            "LISTEN_FDNAMES",
        ),
        *("LISTEN_PID", "LOGS_DIRECTORY", "MAINPID", "NOTIFY_SOCKET", "RUNTIME_DIRECTORY", "STATE_DIRECTORY"),
        *("SYSTEMD_EXEC_PID", "WATCHDOG_PID", "WATCHDOG_USEC"),
    }
)


def whole(least: int, most: int, what: str) -> Callable[[object], int]:
    """A reader of whole numbers; 8k and 1M are understood."""
    return _bounded(quantity.count, least, most, f"allowed is {what} from {least} to {most}")


def duration(least: int, most: int) -> Callable[[object], int]:
    """A reader of durations, in seconds."""
    span = f"from {quantity.duration_text(least)} to {quantity.duration_text(most)}"
    return _bounded(quantity.seconds, least, most, f'allowed is a duration {span}, such as 90, "90s", "15m" or "2h"')


def _bounded(read: Callable[[object], int], least: int, most: int, allowed: str) -> Callable[[object], int]:
    def bounded(value: object) -> int:
        try:
            number = read(value)
        except ValueError:
            raise ValueError(allowed) from None
        if not least <= number <= most:
            raise ValueError(allowed)
        return number

    return bounded


def chunk(value: object) -> int:
    """A number of tokens of one chunk, or -1, by which SGLang means that prefills are not cut."""
    allowed = "allowed is a number of tokens from 1 to 1048576, or -1 to switch chunking off"
    try:
        number = -1 if value == "-1" else quantity.count(value)
    except ValueError:
        raise ValueError(allowed) from None
    if number != -1 and not 1 <= number <= 1024 * 1024:
        raise ValueError(allowed)
    return number


def share(*, up_to_one: bool) -> Callable[[object], float]:
    """A reader of fractions above 0 and below 1, or up to 1."""
    allowed = "allowed is a number above 0 and " + ("at most 1" if up_to_one else "below 1") + ", such as 0.1"

    def fraction(value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            raise ValueError(allowed)
        try:
            number = float(value)
        except (ValueError, OverflowError):
            raise ValueError(allowed) from None
        if not math.isfinite(number) or not 0 < number <= 1 or (number == 1 and not up_to_one):
            raise ValueError(allowed)
        return number

    return fraction


def or_auto(read: Callable[[object], float]) -> Callable[[object], float | None]:
    """A reader of what `read` reads, or of "auto", which is None."""

    def number_or_auto(value: object) -> float | None:
        if value is None or value == "auto":
            return None
        try:
            return read(value)
        except ValueError as error:
            raise ValueError(f'{error}, or "auto"') from None

    return number_or_auto


def switch(value: object) -> bool:
    """True or false, and nothing that merely looks like it."""
    if not isinstance(value, bool):
        raise ValueError("allowed is true or false, without quotes")
    return value


def pattern(expression: str, allowed: str) -> Callable[[object], str]:
    """A reader of text of one form."""
    form = re.compile(expression)

    def text(value: object) -> str:
        if not isinstance(value, str) or form.fullmatch(value) is None:
            raise ValueError(f"allowed is {allowed}")
        return value

    return text


served_name = pattern(r"[^\s:\x00-\x1f\x7f-\x9f\ud800-\udfff]{1,200}", "a name without colon and spaces")


def address(value: object) -> str:
    """An IP address to listen on, in its shortest form. Names are refused: they can mean several addresses."""
    allowed = (
        "allowed is an IP address: 127.0.0.1 or ::1 (this machine only), 0.0.0.0 or :: (every interface), "
        "or that of one interface"
    )
    if value == "localhost":
        raise ValueError("allowed is an IP address; did you mean 127.0.0.1?")
    try:
        found = ipaddress.ip_address(value) if isinstance(value, str) and "%" not in value else None
    except ValueError:
        found = None
    if found is None or found.is_multicast:
        raise ValueError(allowed)
    # Python's asyncio listens on IPv6 alone, where such a one cannot be bound: told after the load of minutes.
    if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped:
        raise ValueError(f"allowed is an IPv4 address as it is; did you mean {found.ipv4_mapped}?")
    return str(found)


def absolute_path(what: str) -> Callable[[object], str]:
    """A reader of absolute paths; whether there is something at the path is not looked at."""
    allowed = f"allowed is {what} as an absolute path (no ~, no .., no control characters)"

    def path(value: object) -> str:
        if not isinstance(value, str) or not value.startswith("/") or len(value) > 4000 or not value.isprintable():
            raise ValueError(allowed)
        plain = PurePosixPath(value)
        if not plain.name or ".." in plain.parts:
            raise ValueError(allowed)
        return str(plain)

    return path


def model_folder(value: object) -> str:
    """The folder of a checkpoint. A name of the Hugging Face hub is refused: a start must not become a download."""
    try:
        return absolute_path("")(value)
    except ValueError:
        raise ValueError(
            "allowed is the folder of a checkpoint as an absolute path; "
            "`dsv4ctl init --print` shows those of this host, the Hugging Face cache included"
        ) from None


def interpreter(value: object) -> str:
    """The engine's own Python. A runner in its place would not pass signals on, and its child would outlive it."""
    path = absolute_path("the engine's Python interpreter")(value)
    if PurePosixPath(path).name in RUNNERS | SHELLS | {"env"}:
        raise ValueError(
            "allowed is the interpreter of the engine's environment itself, such as /opt/sglang/bin/python, no runner"
        )
    return path


def _carried(value: object, allowed: str) -> str:
    if not isinstance(value, str):
        raise ValueError(f"allowed is {allowed}")
    if len(value) > _LONGEST:
        raise ValueError(f"allowed are at most {_LONGEST} characters")
    if _NOT_CARRIED.search(value):
        raise ValueError("allowed is text that systemd and the kernel carry: no NUL, no broken Unicode")
    return value


def argument(value: object) -> str:
    """One extra argument of the engine, none of those that dsv4ctl sets itself."""
    text = _carried(value, 'a string in quotes, such as "256"')
    if reason := engine_args.refused(text):
        raise ValueError(reason)
    return text


def router_argument(value: object) -> str:
    """One extra argument of the router, none of those that dsv4ctl sets itself."""
    text = _carried(value, 'a string in quotes, such as "256"')
    if reason := engine_args.refused_by_router(text):
        raise ValueError(reason)
    return text


def one_of(*words: str) -> Callable[[object], str]:
    """A reader of one of a few words."""

    def text(value: object) -> str:
        if value not in words:
            raise ValueError(f"allowed is {', '.join(words[:-1])} or {words[-1]}")
        return str(value)

    return text


def policy(value: object) -> str:
    """How the router chooses a worker; power_of_two asks for loads at an address that SGLang has removed."""
    if value == "power_of_two":
        raise ValueError("it goes by loads that the router cannot read any more; take round_robin or cache_aware")
    return one_of("cache_aware", "round_robin", "random", "manual")(value)


def variable_name(value: object) -> str:
    """A name of an environment variable that is the operator's to set."""
    if not isinstance(value, str) or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,200}", value):
        raise ValueError("allowed is a name of letters, digits and underscores, not beginning with a digit")
    if value in ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"):
        raise ValueError("dsv4ctl sets it from the GPUs; use the key gpus")
    if value.startswith("DSV4CTL_"):
        raise ValueError("dsv4ctl sets the DSV4CTL_ variables itself; leave it out")
    if value in _SET_BY_SYSTEMD:
        raise ValueError("systemd sets it for the unit; leave it out")
    return value


def variable_value(value: object) -> str:
    """The text of an environment variable."""
    return _carried(value, 'a string in quotes, such as "1"')


def shown(value: object, key: tuple[str | int, ...] = ()) -> str:
    """A value in a message: short, printable, and not told where it may be a secret."""
    if secret.key_may_hold_secret(key):
        # The name of an option is no secret, and it is what the reader has to look for.
        option = re.match(r"--[A-Za-z][\w-]*|--?[A-Za-z]?$", value) if isinstance(value, str) else None
        return option[0] if option and key[1] == "args" else "this value"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return repr(value if len(value) <= 60 else value[:57] + "...")
    if isinstance(value, list):
        return (
            "["
            + ", ".join("[...]" if isinstance(v, list) else shown(v) for v in value[:8])
            + (", ...]" if len(value) > 8 else "]")
        )
    if isinstance(value, dict):
        return "a table"
    if isinstance(value, int) and abs(value) > _LARGEST_SHOWN:
        return "so large a number"
    plain = isinstance(value, int | float | datetime.date | datetime.time)
    return str(value) if plain else "this value"
