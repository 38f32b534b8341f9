"""The host-wide lock, and the face of whoever holds it: changes happen one after another."""

import fcntl
import os
import shlex
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from dsv4ctl import procs, record, secret
from dsv4ctl.clock import Clock
from dsv4ctl.model import Identity
from dsv4ctl.problems import Busy, Problem
from dsv4ctl.store import files
from dsv4ctl.store.audit import person

TRY_EVERY_S = 0.2
# Between taking the lock and saying so pass microseconds; one that says nothing for longer will not.
FACE_S = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What the lock is wanted for, why, and how many seconds it may be waited for; `says` is told who is at it."""

    what: str
    reason: str = ""
    wait_s: float = 0.0
    says: Callable[[str], None] = lambda _: None


@dataclass(frozen=True, slots=True, kw_only=True)
class Face:
    """Who holds the lock: a process, who gave the command and where, what for, why, since when."""

    who: str
    host: str
    what: str
    reason: str
    command: str
    since: float
    process: Identity

    def words(self) -> str:
        """The holder in a line."""
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(self.since))
        why = f" ({self.reason})" if self.reason else ""
        return (
            f"{self.who} on {self.host} holds the lock for {self.what}{why} since {since} "
            f"(pid {self.process.pid}: {self.command})"
        )


@contextmanager
def held(path: Path, claim: Claim, clock: Clock) -> Iterator[Face | None]:
    """Hold the lock; yields the face of the last holder when it was killed before it could let go, else None.

    The kernel lets go of it when its holder dies, however that happens. Raises Busy naming who holds it when it is not
    free within the claim's time.
    """
    with os.fdopen(files.open_shared(path, os.O_RDWR | os.O_CREAT), "r+b", buffering=0) as file:
        _take(file, claim, clock)
        try:
            left = _face(file)
            # The lock holds without its face: a full /run must not keep anybody from a teardown.
            with suppress(OSError):
                file.truncate(0)
                os.pwrite(file.fileno(), record.dump(_ours(claim, clock)).encode(), 0)
            yield left
        finally:
            # A face that cannot be wiped is of a process that is gone, and turns no success into a fault.
            with suppress(OSError):
                file.truncate(0)
            # Closing alone would not do while a child is between fork and exec, with the file open as well.
            fcntl.flock(file, fcntl.LOCK_UN)


def face(path: Path) -> Face | None:
    """Who holds the lock, or held it last and was killed at its work; None: it was let go of. Takes nothing."""
    try:
        with path.open("rb") as file:
            return _face(file)
    except OSError:
        return None


def _take(file: IO[bytes], claim: Claim, clock: Clock) -> None:
    """Take the lock, or wait for it as long as the claim allows, saying once who each holder is."""
    end, told = clock.now() + claim.wait_s, None
    while not _taken(file):
        holder = _holder(file, clock)
        if clock.now() >= end:
            raise _busy(holder)
        if holder is not None and holder != told:
            claim.says(f"waiting: {holder.words()}")
            told = holder
        clock.sleep(TRY_EVERY_S)


def _taken(file: IO[bytes]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _holder(file: IO[bytes], clock: Clock) -> Face | None:
    """Whoever holds the lock now. What one that is gone has left there is not taken for the words of the living."""
    end = clock.now() + FACE_S
    while (found := _face(file)) is None or not procs.alive(found.process):
        if clock.now() >= end:
            return None
        clock.sleep(FACE_S / 10)
    return found


def _face(file: IO[bytes]) -> Face | None:
    try:
        return record.load(os.pread(file.fileno(), 64 * 1024, 0).decode(), Face)
    except (Problem, UnicodeDecodeError):
        return None


def _busy(holder: Face | None) -> Busy:
    if holder is None:
        return Busy("cannot go on: another dsv4ctl has just taken the lock and not said yet why", hint="try again")
    advice = f"--wait   waits for it; kill -INT {holder.process.pid}   interrupts it"
    return Busy(f"cannot go on: {holder.words()}", hint=advice, details={"holder": holder})


def _ours(claim: Claim, clock: Clock) -> Face:
    return Face(
        who=person(),
        host=os.uname().nodename,
        what=claim.what,
        reason=claim.reason,
        command=command(),
        since=clock.wall(),
        process=procs.ourselves(),
    )


def command() -> str:
    """The command line we were started with, secrets hidden."""
    return shlex.join(secret.args_shown((Path(sys.argv[0]).name, *sys.argv[1:])))
