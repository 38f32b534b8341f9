"""SGLang servers that run now, as their command lines tell: a hint where engine and model lie, and proof of nothing."""

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from dsv4ctl import procs
from dsv4ctl.discover import engines
from dsv4ctl.engine import readback
from dsv4ctl.engine.readback import Launch, Program


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """A running server: the interpreter and the model it was started with, '' where its command line does not tell."""

    pid: int
    python: str
    model: str


def running() -> tuple[Serving, ...]:
    """The SGLang servers that run on this machine, our own supervisors' command lines excepted."""
    read = ((pid, readback.launch(procs.arguments(pid))) for pid in procs.pids())
    return tuple(
        Serving(pid=pid, python=interpreter(launch, procs.environment(pid)), model=launch.get("--model-path") or "")
        for pid, launch in read
        if launch is not None and launch.program is Program.ENGINE
    )


def interpreter(launch: Launch, environment: Mapping[str, str]) -> str:
    """The interpreter of a command line, with the environment it was started in; '' when it does not tell."""
    word = launch.python
    if word.endswith("/bin/sglang"):
        return str(Path(word).parent / "python")
    if word.startswith("/"):
        return word
    # Called by its bare name: what the shell of that time found, an active environment before PATH.
    active = list(engines.active(environment))
    return str(active[0]) if active else shutil.which(word, path=environment.get("PATH", "")) or ""
