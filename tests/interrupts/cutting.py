"""Cuts a dsv4ctl off at any act by which it changes the world: with SIGKILL, or as a disk that is full or read-only.

The product is not touched: a library of the tests (cut.c) is preloaded into its process and stands before the system
calls. A run that is only listened to tells which acts there are; then each of them is cut at.
"""

import errno
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from dsv4ctl.child import Done
from dsv4ctl.rehearsal.private import Machine

SOURCE = Path(__file__).with_name("cut.c")
LIBRARY = "/usr/local/lib/dsv4ctl-cut.so"
LOG, MARK = "/run/acts", "/run/cut-off"
STATE, UNITS, RUNTIME = "/var/lib/dsv4ctl", "/etc/systemd/system", "/run/dsv4ctl"
# The same look at systemd, again and again while a unit starts or stops: some of them stand for all.
LOOKS = (1, 2, 3, 8, 20)
KILL, ORPHAN, FULL, READ_ONLY = "kill", "orphan", str(errno.ENOSPC), str(errno.EROFS)


@dataclass(frozen=True, slots=True, order=True)
class Boundary:
    """The instant before the `turn`th act of this label."""

    label: str
    turn: int

    @property
    def writes(self) -> bool:
        """Whether a disk can refuse it."""
        return self.label.split(" ", 1)[0] not in ("start", "kill")


def build(folder: Path) -> Path:
    """Compile the library. Raises CalledProcessError with the compiler's words."""
    made = folder / "cut.so"
    argv = ("cc", "-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o", made, SOURCE, "-ldl")
    subprocess.run(argv, check=True, capture_output=True, text=True)
    return made


def plain(text: str) -> str:
    """A label as the library makes it: what differs from run to run is '#'."""
    return re.sub(r"[0-9a-f]{8,}|[0-9]+", "#", text)


def boundaries(log: str) -> list[Boundary]:
    """Every boundary of a run that was listened to, in its order."""
    seen: dict[str, int] = {}
    found = []
    for line in log.splitlines():
        label = plain(" ".join(line.split("\t")[:2]))
        seen[label] = seen.get(label, 0) + 1
        if not label.startswith("start ") or seen[label] in LOOKS:
            found.append(Boundary(label, seen[label]))
    return found


@dataclass(frozen=True, slots=True)
class Cutter:
    """Runs commands in a machine that the library lies in."""

    machine: Machine

    def install(self, library: Path) -> None:
        """Put the library in its place."""
        (self.machine.root / LIBRARY[1:]).write_bytes(library.read_bytes())

    def log(self, *words: str, check: bool = True) -> str:
        """Run a command to its end and tell what it did, a line an act. Raises CannotRun when it fails, if `check`."""
        (self.machine.root / LOG[1:]).unlink(missing_ok=True)
        self.machine.run(words, timeout_s=240, check=check, env=self._env(CUT_LOG=LOG))
        return (self.machine.root / LOG[1:]).read_text()

    def acts(self, *words: str, check: bool = True) -> list[Boundary]:
        """Where a command can be cut off. Raises CannotRun when it fails, if `check`."""
        return boundaries(self.log(*words, check=check))

    def cut(self, where: Boundary, how: str, *words: str) -> tuple[Done, bool]:
        """Run a command and cut it off there; whether it came to that act at all."""
        mark = self.machine.root / MARK[1:]
        mark.unlink(missing_ok=True)
        variables = self._env(CUT_AT=where.label, CUT_TURN=str(where.turn), CUT_HOW=how, CUT_MARK=MARK)
        return self.machine.run(words, timeout_s=240, check=False, env=variables), mark.exists()

    def _env(self, **variables: str) -> dict[str, str]:
        return {"LD_PRELOAD": LIBRARY, "CUT_ROOTS": f"{STATE}:{UNITS}:{RUNTIME}", **variables}
