"""What dead processes left in /dev/shm. A segment is theirs by its file and by nobody's use of it, never by a guess."""

import os
import re
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from dsv4ctl import census, procs
from dsv4ctl.blame.scene import Segment

FOLDER = Path("/dev/shm")  # noqa: S108 -- looked at, and no file is made there

# As SGLang, torch, NCCL and multiprocessing name them. Those with a pid in their name say who made them.
_ENGINES = re.compile(r"(?:sgl|sglang)_|sem\.mp-|psm_|torch_\d|nccl-")
_CREATOR = re.compile(r"(?:sgl_shm_mq|sglang_shm|torch)_(?P<pid>[1-9]\d{0,6})_")


def leftovers(uids: Iterable[int], folder: Path = FOLDER) -> tuple[Segment, ...]:
    """The segments of these users that dead processes of an engine left behind, by name.

    One is left behind when it is a regular file of one of the users, is named as an engine's segments are, and no
    process has it mapped or open; and when its name tells its creator's pid, that is dead. Where a process may not be
    looked into, only those are that name a dead creator.
    """
    mine = frozenset(uids)
    found = [one for one in _named(folder) if one.uid in mine and not _creator_lives(one)]
    if not found:
        return ()
    used, all_seen = _in_use(folder)
    return tuple(one for one in found if one.path not in used and (all_seen or _creator(one)))


def remove(segment: Segment) -> bool:
    """Remove a segment; False: it went, or another one has its name by now."""
    path = Path(segment.path)
    try:
        found = path.lstat()
        if (found.st_ino, found.st_uid) != (segment.inode, segment.uid):
            return False
        path.unlink()
    except FileNotFoundError:
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


def _in_use(folder: Path) -> tuple[frozenset[str], bool]:
    """The files of a folder that some process has mapped or open, and whether every process could be looked into."""
    prefix, used, all_seen = f"{folder}/", set[str](), True
    for pid in procs.pids():
        try:
            maps = Path(f"/proc/{pid}/maps").read_text(errors="surrogateescape")
        except PermissionError:
            # The first process uses no engine's segment, and in a container it may have rights that root lacks there.
            all_seen = all_seen and pid == 1
            continue
        except OSError:
            continue
        # Nothing mapped: a thread of the kernel's, or a main thread that has ended before others of its process.
        if prefix in maps or not maps:
            used |= census.mapped(pid)
        used |= {path for path in census.open_files(pid) if path.startswith(prefix)}
    return frozenset(used), all_seen
