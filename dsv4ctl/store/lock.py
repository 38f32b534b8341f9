"""The host-wide lock, and the face of whoever holds it: changes happen one after another."""

import errno
import fcntl
import os
import shlex
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from dsv4ctl import procs, record, secret
from dsv4ctl.clock import Clock
from dsv4ctl.model import Identity
from dsv4ctl.problems import Busy, Problem
from dsv4ctl.store import files, unnamed
from dsv4ctl.store.audit import person
from dsv4ctl.store.unnamed import Unnamed

TRY_EVERY_S = 0.2
# Between taking the lock and saying so pass microseconds; one that says nothing for longer will not.
FACE_S = 0.5
# What keeps a file from being made, though it, or its folder, can be locked.
NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS})


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What the lock is wanted for, why, and how many seconds it may be waited for; `says` is told who is at it.

    `command`: who we are, where the command line does not say it. `advice`: what whoever finds it taken may do; ''
    where it is the lock of those who change the host, which may be waited for and interrupted.
    """

    what: str
    reason: str = ""
    wait_s: float = 0.0
    says: Callable[[str], None] = lambda _: None
    command: str = ""
    advice: str = ""


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

    def advice(self) -> str:
        """What to type."""
        return f"--wait   waits for it; kill -INT {self.process.pid}   interrupts it"


@contextmanager
def held(path: Path, claim: Claim, clock: Clock) -> Iterator[Face | None]:
    """Hold the lock; yields the face of the last holder when it was killed before it could let go, else None.

    The kernel lets go of it when its holder dies, however that happens. Raises Busy naming who holds it when it is not
    free within the claim's time.
    """
    file = _opened(path)
    try:
        _take(file, claim, clock)
        try:
            left = _face(file)
            # The lock holds without its face: a full /run must not keep anybody from a teardown.
            with suppress(OSError):
                os.ftruncate(file, 0)
                os.pwrite(file, record.dump(_ours(claim, clock)).encode(), 0)
            yield left
        finally:
            # A face that cannot be wiped is of a process that is gone, and turns no success into a fault.
            with suppress(OSError):
                os.ftruncate(file, 0)
            # Closing alone would not do while a child is between fork and exec, with the file open as well.
            fcntl.flock(file, fcntl.LOCK_UN)
    finally:
        os.close(file)


def face(path: Path) -> Face | None:
    """Who holds the lock, or held it last and was killed at its work; None: it was let go of. Takes nothing."""
    with _looked_at(path) as file:
        return _face(file) if file is not None else None


def holder(path: Path, clock: Clock) -> Face | Unnamed | None:
    """Who holds the lock now, by its own words, else by the kernel's; None: nobody."""
    with _looked_at(path) as file:
        if file is None or (seen := unnamed.holder(file)) is None:
            return None
        return _named(file, clock) or seen


@contextmanager
def _looked_at(path: Path) -> Iterator[int | None]:
    """The file of the lock, to be read; None where there is none."""
    try:
        file = os.open(path, os.O_RDONLY)
    except OSError:
        yield None
        return
    try:
        yield file
    finally:
        os.close(file)


def _opened(path: Path) -> int:
    """The file of the lock, made where there is none. Raises Problem when it cannot be opened.

    A lock takes no room: where /run is full or read-only it is taken on the file that is there, else on the folder that
    would hold it. Whoever can make the file meanwhile is not kept out by that, which is less than a teardown refused.
    """
    try:
        return files.open_shared(path, os.O_RDWR | os.O_CREAT)
    except Problem as problem:
        if getattr(problem.__cause__, "errno", None) not in NO_ROOM:
            raise
    there = next(one for one in (path, *path.parents) if one.exists())
    with files.explained(there, "open"):
        return os.open(there, os.O_RDONLY)


def _take(file: int, claim: Claim, clock: Clock) -> None:
    """Take the lock, or wait for it as long as the claim allows, saying once who each holder is."""
    end, told = clock.now() + claim.wait_s, ""
    while not _taken(file):
        found = _named(file, clock) or unnamed.holder(file)
        if clock.now() >= end:
            # It may have been let go of while its face was looked for.
            if _taken(file):
                return
            raise _busy(found, claim.advice)
        if found is not None and found.words() != told:
            told = found.words()
            claim.says(f"waiting: {told}")
        clock.sleep(TRY_EVERY_S)


def _taken(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _named(file: int, clock: Clock) -> Face | None:
    """Whoever holds the lock now. What one that is gone has left there is not taken for the words of the living."""
    end = clock.now() + FACE_S
    while (found := _face(file)) is None or not procs.alive(found.process):
        if clock.now() >= end:
            return None
        clock.sleep(FACE_S / 10)
    return found


def _face(file: int) -> Face | None:
    try:
        return record.load(os.pread(file, 64 * 1024, 0).decode(), Face)
    except (Problem, UnicodeDecodeError, OSError):  # a folder that stands for the file has no text
        return None


def _busy(holder: Face | Unnamed | None, advice: str) -> Busy:
    if holder is None:
        return Busy("cannot go on: another dsv4ctl holds the lock, and has just taken it", hint="try again")
    return Busy(f"cannot go on: {holder.words()}", hint=advice or holder.advice(), details={"holder": holder})


def _ours(claim: Claim, clock: Clock) -> Face:
    return Face(
        who=person(),
        host=os.uname().nodename,
        what=claim.what,
        reason=claim.reason,
        command=claim.command or command(),
        since=clock.wall(),
        process=procs.ourselves(),
    )


def command() -> str:
    """The command line we were started with, secrets hidden."""
    return shlex.join(secret.args_shown((Path(sys.argv[0]).name, *sys.argv[1:])))
