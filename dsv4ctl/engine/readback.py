"""A command line that somebody typed for SGLang or its router -> its options, spelled whole, each value as it stands.

Pure, and no more than a reading: it tells what would start the same engine again, and never who may be ended.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from dsv4ctl.engine import router, sglang

SERVER_MODULE, ROUTER_MODULE = "sglang.launch_server", "sglang_router.launch_router"
ROUTER_SCRIPTS = frozenset({"sglang-router", "smg", "amg"})
# The router gives itself this title, which overwrites its command line and its environment.
ROUTER_TITLE = "sglang::router"
# What people write and argparse takes, where the beginning alone does not tell whom it meant in every version.
_MEANT: Mapping[str, str] = {"--tp": "--tp-size", "--dp": "--dp-size", "--pp": "--pp-size", "--ep": "--ep-size"}
# What the engine takes when it is not told (SGLang 0.5.23, arg_groups/fields; the bootstrap port for a prefill only).
DEFAULTS: Mapping[str, str] = {
    "--host": "127.0.0.1",
    "--port": "30000",
    "--tp-size": "1",
    "--disaggregation-transfer-backend": "mooncake",
    "--disaggregation-bootstrap-port": "8998",
}
# Those of the router (sglang-router 0.3.2, router_args.py).
ROUTER_DEFAULTS: Mapping[str, str] = {
    "--host": "0.0.0.0",  # noqa: S104 -- named, not bound
    "--port": "30000",
    "--prometheus-host": "0.0.0.0",  # noqa: S104 -- named, not bound
    "--prometheus-port": "29000",
    "--policy": "cache_aware",
    "--worker-startup-timeout-secs": "1800",
    "--worker-startup-check-interval": "30",
    "--health-check-endpoint": "/health",
    "--health-check-interval-secs": "60",
    "--health-check-timeout-secs": "5",
    "--health-failure-threshold": "3",
    "--health-success-threshold": "2",
    "--shutdown-grace-period-secs": "180",
}
_NUMBER = re.compile(r"-\d+(?:\.\d+)?")
_HUMAN = re.compile(r"(\d+(?:\.\d+)?)([kKmMgG])(i?)")


class Program(StrEnum):
    """What a command line starts."""

    ENGINE = "engine"
    ROUTER = "router"


@dataclass(frozen=True, slots=True)
class Given:
    """An option as it was given: its name spelled whole, and the words that followed it."""

    name: str
    values: tuple[str, ...] = ()

    @property
    def value(self) -> str:
        """Its values as one text; '' for a switch."""
        return " ".join(self.values)


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """A command line, read. `program`: what it starts; `python`: the word that names the interpreter, or the script.

    `wiped`: it is a title that the program gave itself, and nothing is known of its options.
    """

    program: Program
    python: str
    options: tuple[Given, ...] = ()
    wiped: bool = False

    def get(self, name: str) -> str | None:
        """The value of an option, '' for a switch; None when it was not given. The last one counts, as in argparse."""
        return next((given.value for given in reversed(self.options) if given.name == name), None)

    def all(self, name: str) -> tuple[Given, ...]:
        """Every occurrence of an option that may be given again."""
        return tuple(given for given in self.options if given.name == name)


def launch(argv: Iterable[str], known: Collection[str] = ()) -> Launch | None:
    """Read a command line; None when it starts neither an engine nor a router.

    `known`: the options of that very build, by which a beginning of an option is told from another. A runner (`conda
    run python -m …`) or a shell is not what it runs.
    """
    words = tuple(argv)
    if words and words[0].strip() == ROUTER_TITLE:
        return Launch(program=Program.ROUTER, python="", wiped=True)
    found = _begin(words)
    if found is None:
        return None
    program, python, rest = found
    names = frozenset(known) | frozenset(sglang.managed_options() if program is Program.ENGINE else router.MANAGED)
    options = tuple(_options(rest, names))
    return Launch(program=program, python=python, options=options)


def _begin(words: tuple[str, ...]) -> tuple[Program, str, tuple[str, ...]] | None:
    """The program, the word that names its interpreter or script, and the words of its own."""
    for at, word in enumerate(words[:2]):
        name, following = word.rpartition("/")[2], words[at + 1 : at + 2]
        if name == "sglang" and following == ("serve",):
            return Program.ENGINE, word, words[at + 2 :]
        if name in ROUTER_SCRIPTS and following == ("launch",):
            return Program.ROUTER, word, words[at + 2 :]
    at = _module_at(words)
    if at and words[at] in (SERVER_MODULE, ROUTER_MODULE):
        return Program.ENGINE if words[at] == SERVER_MODULE else Program.ROUTER, words[0], words[at + 1 :]
    return None


def _module_at(words: tuple[str, ...]) -> int:
    """Where the module stands that an interpreter is to run; 0 when none does. Python's own options may be before."""
    at = 1
    while at < len(words) and words[at].startswith("-"):
        if words[at] == "-m":
            return at + 1 if at + 1 < len(words) else 0
        at += 2 if words[at] in ("-X", "-W") else 1
    return 0


def _options(words: tuple[str, ...], names: frozenset[str]) -> Iterator[Given]:
    """Each option with what follows it. A word before any option is the model's path (`sglang serve MODEL`)."""
    name, values = "--model-path", list[str]()
    is_first = True
    for word in words:
        if not word.startswith("-") or _NUMBER.fullmatch(word):
            values.append(word)
            continue
        if values or not is_first:
            yield from _given(name, values)
        spelled, equals, value = word.partition("=")
        name, values, is_first = whole(spelled, names), [value] if equals else [], False
    if values or not is_first:
        yield from _given(name, values)


def _given(name: str, values: list[str]) -> Iterator[Given]:
    if name in sglang.SWITCHES and values:
        # Nothing belongs to a switch: a word behind it is the model's path.
        yield Given(name)
        yield Given("--model-path", tuple(values))
        return
    yield Given(name, tuple(values))


def whole(spelled: str, known: frozenset[str] = frozenset()) -> str:
    """An option in today's spelling: argparse takes every unambiguous beginning for the option.

    `known`: the options that there are; without any those that a configuration can set.
    """
    names = known or frozenset(sglang.managed_options())
    name = spelled.replace("_", "-") if spelled.startswith("--") else spelled
    if name not in names:
        longer = [known for known in names if name.startswith("--") and known.startswith(name)]
        name = _MEANT.get(name) or (longer[0] if len(longer) == 1 else name)
    return sglang.today(name)


def whole_number(text: str) -> int:
    """A number of tokens as SGLang reads it: its 128k is 128000 and its 128Ki 131072. Raises ValueError otherwise."""
    match = _HUMAN.fullmatch(text)
    if match is None:
        return int(text)
    power = {"k": 1, "m": 2, "g": 3}[match[2].lower()]
    return int(float(match[1]) * (1024 if match[3] else 1000) ** power)
