"""Where to look into a process whose main thread has ended while another has not: killed, and inside a driver call.

/proc/PID shows the main thread alone: a zombie without files, memory or namespaces, though all of it is still held.
"""

import os
import signal
from pathlib import Path

from dsv4ctl.procstat import Stat, parse_stat


def folder(pid: int) -> Path:
    """Where /proc tells what a process has: its own folder, or that of its first thread that has not ended."""
    return next((task for task in _tasks(pid) if _state(task) not in ("", "Z", "X", "x")), Path(f"/proc/{pid}"))


def doing(pid: int) -> tuple[str, str]:
    """State of a process, and the function of the kernel in which it sleeps; '' for what cannot be told."""
    where = folder(pid)
    try:
        waits = (where / "wchan").read_text().strip()
    except OSError:
        waits = ""
    return _state(where), "" if waits == "0" else waits


def words(pid: int) -> str:
    """The same in words: `state D in request_wait_answer`, `state R inside the kernel` of one that is deaf there."""
    state, waits = doing(pid)
    if not waits and state == "R" and is_killed(pid):
        # It would have ended where it came from: nothing but a call that looks at no signal keeps it.
        return f"state {state} inside the kernel"
    return f"state {state} in {waits}" if waits else f"state {state}"


def is_exiting(pid: int) -> bool:
    """Whether every thread of a process is on its way out, and one is not out yet.

    Killed or not, nothing brings it back. It gives up its memory first, and its files after that: by then neither its
    executable nor a socket that it still holds can be seen in /proc.
    """
    own = _stat(Path(f"/proc/{pid}"))
    if own is None or not own.exiting:
        return False
    found = [stat for task in _tasks(pid) if (stat := _stat(task))]
    return all(stat.exiting for stat in found) and any(stat.state not in "ZXx" for stat in found)


def is_killed(pid: int) -> bool:
    """Whether SIGKILL, or another signal that is fatal to it, has reached a process that has not ended yet."""
    if is_exiting(pid):
        return True
    try:
        text = (folder(pid) / "status").read_text(errors="replace")
    except OSError:
        return False
    # What is fatal is passed on to every thread as SIGKILL (complete_signal in the kernel's sources).
    pending = next((line.split()[1] for line in text.splitlines() if line.startswith("SigPnd:")), "0")
    return bool(int(pending, 16) & 1 << (signal.SIGKILL - 1))


def _tasks(pid: int) -> list[Path]:
    """The folders of its threads, the main thread's first."""
    found = Path(f"/proc/{pid}/task").glob("[0-9]*")
    return sorted(found, key=lambda task: int(task.name) if task.name != str(pid) else 0)


def _state(where: Path) -> str:
    found = _stat(where)
    return found.state if found else ""


def _stat(where: Path) -> Stat | None:
    try:
        return parse_stat(os.fsdecode((where / "stat").read_bytes()))
    except (OSError, ValueError):
        return None
