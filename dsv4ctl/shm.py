"""How full /dev/shm is, and what dead processes left there: by the file and by nobody's use of it, never by a guess."""

import fcntl
import os
import re
import signal
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from dsv4ctl import census, procs
from dsv4ctl.blame.scene import Segment
from dsv4ctl.shared import Share, Space

FOLDER = Path("/dev/shm")  # noqa: S108 -- looked at, and no file is made there

# As SGLang, torch, NCCL and multiprocessing name them. Those with a pid in their name say who made them.
_ENGINES = re.compile(r"(?:sgl|sglang)_|sem\.mp-|psm_|torch_\d|nccl-")
_CREATOR = re.compile(r"(?:sgl_shm_mq|sglang_shm|torch)_(?P<pid>[1-9]\d{0,6})_")


def leftovers(uids: Iterable[int], folder: Path = FOLDER) -> tuple[Segment, ...]:
    """The segments of these users that dead processes of an engine left behind, by name.

    One is left behind when it is a regular file of one of the users, is named as an engine's segments are, and no
    process has it mapped or open; and when its name tells its creator's pid, that is dead.
    """
    mine = frozenset(uids)
    found = [one for one in _named(folder) if one.uid in mine and not _creator_lives(one)]
    return tuple(one for one in found if _is_unused(Path(one.path)))


def space(uids: Iterable[int], folder: Path = FOLDER) -> Space:
    """How full it is, and who has how much there. `uids`: whose engines' segments are ours."""
    mine, there = frozenset(uids), os.statvfs(folder)
    # Where no file can be made any more, free bytes are of no use.
    room = there.f_bavail if there.f_favail or not there.f_files else 0
    files = list(_files(folder))
    ours = [size for path, uid, size in files if uid in mine and _ENGINES.match(Path(path).name)]
    return Space(
        total_bytes=there.f_blocks * there.f_frsize,
        free_bytes=room * there.f_frsize,
        ours_bytes=sum(ours),
        shares=tuple(sorted(_shares(files), key=lambda share: -share.used_bytes)),
    )


def _files(folder: Path) -> Iterator[tuple[str, int, int]]:
    """Path, owner and size in memory of every file."""
    for above, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):
                found = (path := Path(above, name)).lstat()
                yield str(path), found.st_uid, found.st_blocks * 512


def _shares(files: list[tuple[str, int, int]]) -> Iterator[Share]:
    for uid in {uid for _, uid, _ in files}:
        theirs = [(size, path) for path, owner, size in files if owner == uid]
        yield Share(
            user=census.user(uid),
            used_bytes=sum(size for size, _ in theirs),
            files=len(theirs),
            largest=max(theirs)[1],
        )


def remove(segment: Segment) -> bool:
    """Remove a segment; False: it went, somebody uses it, or another one has its name by now."""
    path = Path(segment.path)
    try:
        found = path.lstat()
        if (found.st_ino, found.st_uid) != (segment.inode, segment.uid) or not _is_unused(path):
            return False
        path.unlink()
    except OSError:
        return False
    return True


def _named(folder: Path) -> Iterator[Segment]:
    try:
        names = sorted(entry.name for entry in os.scandir(folder) if _ENGINES.match(entry.name))
    except OSError:
        return
    for name in names:
        with suppress(FileNotFoundError):
            found = (folder / name).lstat()
            if stat.S_ISREG(found.st_mode):
                yield Segment(
                    path=str(folder / name), uid=found.st_uid, size_bytes=found.st_blocks * 512, inode=found.st_ino
                )


def _creator(segment: Segment) -> int:
    found = _CREATOR.match(Path(segment.path).name)
    return int(found["pid"]) if found else 0


def _creator_lives(segment: Segment) -> bool:
    # A pid that somebody else has by now keeps the segment: better one too many than one too few.
    return bool(pid := _creator(segment)) and procs.stat(pid) is not None


def _is_unused(path: Path) -> bool:
    """Whether no process has a file open or mapped: the kernel grants a lease to write for such a one only (fcntl(2)).

    It knows of processes that we may not look into, and of those in containers.
    """
    try:
        file = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        # Whoever opens it in this instant makes the kernel send us a signal: not SIGIO, which would end us.
        fcntl.fcntl(file, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
    except OSError:
        return False
    finally:
        os.close(file)
    return True
