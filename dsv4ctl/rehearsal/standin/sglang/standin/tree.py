"""The server's own process tree, read from /proc."""

import contextlib
import os
import signal
from pathlib import Path


def descendants(pid: int) -> tuple[int, ...]:
    """Every process below a pid."""
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):
                parent = (folder / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[1]
                children.setdefault(int(parent), []).append(int(folder.name))
    found: list[int] = []
    waiting = [pid]
    while waiting:
        below = children.get(waiting.pop(), [])
        found += below
        waiting += below
    return tuple(found)


def kill_below() -> None:
    """SIGKILL to everything below us."""
    for pid in descendants(os.getpid()):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def kill_all() -> None:
    """SIGKILL to everything below us and to ourselves: what a crash of the real engine ends with."""
    kill_below()
    os.kill(os.getpid(), signal.SIGKILL)
    signal.pause()
