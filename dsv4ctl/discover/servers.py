"""SGLang servers that run now, as their command lines tell: a hint where engine and model lie, and proof of nothing."""

import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from dsv4ctl import procs
from dsv4ctl.discover import engines

_SERVER = re.compile(r"-m sglang\.launch_server\b|(?:^|[/ ])sglang serve\b")


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """A running server: the interpreter and the model it was started with, '' where its command line does not tell."""

    pid: int
    python: str
    model: str


def running() -> tuple[Serving, ...]:
    """The SGLang servers that run on this machine, our own supervisors' command lines excepted."""
    processes = filter(None, map(procs.read, procs.pids()))
    return tuple(
        parse_serving(process.pid, process.command, procs.environment(process.pid))
        for process in processes
        if _SERVER.search(process.command)
    )


def parse_serving(pid: int, command: str, environment: Mapping[str, str]) -> Serving:
    """Read a server's command line, its words separated by single spaces, with the environment it was started in."""
    words = command.split(" ")
    return Serving(pid=pid, python=_interpreter(words, environment), model=_model(words))


def _interpreter(words: list[str], environment: Mapping[str, str]) -> str:
    script = next((word for word in words[:2] if word.endswith("/bin/sglang")), "")
    if script:
        return str(Path(script).parent / "python")
    if words[0].startswith("/"):
        return words[0]
    # Called by its bare name: what the shell of that time found, an active environment before PATH.
    active = list(engines.active(environment))
    return str(active[0]) if active else shutil.which(words[0], path=environment.get("PATH", "")) or ""


def _model(words: list[str]) -> str:
    for word, following in zip(words, [*words[1:], ""], strict=True):
        option, equals, value = word.partition("=")
        if option in ("--model-path", "--model"):
            return value if equals else following
        if word == "serve" and not following.startswith("-"):
            return following
    return ""
