"""A holder of a lock that does not say who it is: what the kernel tells of it. Takes nothing."""

import fcntl
import os
import shlex
from dataclasses import dataclass
from pathlib import Path

from dsv4ctl import procs, secret
from dsv4ctl.model import Process

LOCKS = Path("/proc/locks")
# So much of a command line is shown.
WIDTH = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class Unnamed:
    """Somebody unknown who holds the lock on `file`. `pid`: 0 where the kernel shows us none, as for one in another pid
    namespace; `command` with its secrets hidden."""

    file: str
    pid: int = 0
    user: str = ""
    command: str = ""

    def words(self) -> str:
        """What is known of the holder, in a line."""
        if not self.pid:
            return f"somebody unknown holds the lock {self.file}: no process that can be seen from here"
        who = f"pid {self.pid} of {self.user}: {self.command[:WIDTH]}"
        return f"somebody unknown holds the lock {self.file} and has not said what for ({who})"

    def advice(self) -> str:
        """What to type."""
        look = f"ps -f {self.pid}" if self.pid else f"lslocks, on the host, or fuser -v {self.file}"
        return f"--wait   waits for it; {look}   shows it"


def holder(file: int) -> Unnamed | None:
    """Who holds the flock on an open file of ours, which does not hold it itself; None: nobody does.

    The kernel hides those of other pid namespaces, so where it names nobody the lock itself is asked, by taking it for
    an instant as readers do: whoever wants it just then tries again before it gives up.
    """
    found, path = os.fstat(file), str(Path(f"/proc/self/fd/{file}").readlink())
    for pid in pids(_listed(), found.st_dev, found.st_ino):
        if process := procs.read(pid):
            return Unnamed(file=path, pid=pid, user=process.user, command=_command(process))
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return Unnamed(file=path)
    fcntl.flock(file, fcntl.LOCK_UN)
    return None


def pids(listed: str, device: int, inode: int) -> tuple[int, ...]:
    """The pids in the text of /proc/locks that hold a flock on a file; those that wait for one stand behind `->`."""
    name = f"{os.major(device):02x}:{os.minor(device):02x}:{inode}"
    lines = (line.split() for line in listed.splitlines())
    return tuple(int(words[4]) for words in lines if len(words) > 5 and words[1] == "FLOCK" and words[5] == name)


def _command(process: Process) -> str:
    words = secret.args_shown(procs.arguments(process.identity.pid))
    return " ".join(shlex.join(words).split()) or process.comm


def _listed() -> str:
    try:
        return LOCKS.read_text()
    except OSError:
        return ""
