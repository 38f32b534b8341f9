"""The doors through which state is written: a whole file, a line at the end, a file or a folder gone. Knows no meaning.

Every door leaves, wherever it is cut, what was there before or what was asked for, and is on the disk when it returns.
"""

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dsv4ctl.problems import Problem

HINTS = {
    errno.ENOSPC: "look at `df -h` and `df -i` and make room",
    errno.EDQUOT: "look at `quota` and make room",
    errno.EROFS: "the file system is mounted read-only: look at `findmnt -T` of that path",
    errno.EACCES: "run it as root",
    errno.EPERM: "run it as root",
}


def write_atomic(path: Path, text: str, mode: int) -> None:
    """Put `text` into a file so that a reader, or a reader after a power cut, finds the old text or the new one, whole.

    Makes missing folders. Raises Problem and leaves the old file, and nothing else, when it cannot.
    """
    new = path.with_name(f".{path.name}.new")
    with explained(path, "write"):
        _make_folder(path.parent)
        # One name for all writers: what a killed one left is replaced by the next, not heaped up.
        new.unlink(missing_ok=True)
        try:
            _write_whole(new, text.encode(), mode)
            new.replace(path)
        except BaseException:
            new.unlink(missing_ok=True)
            raise
        _sync_folder(path.parent)


def append(path: Path, line: str) -> None:
    """Put one line at the end of a file. A line that its writer could not end is ended, so that ours stands alone.

    Makes missing folders. Raises Problem when it cannot.
    """
    is_new = not path.exists()
    file = open_shared(path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
    with explained(path, "write"), os.fdopen(file, "r+b", buffering=0) as trail:
        size = trail.seek(0, os.SEEK_END)
        broken = size > 0 and os.pread(trail.fileno(), 1, size - 1) != b"\n"
        trail.write((b"\n" if broken else b"") + line.encode() + b"\n")
        os.fsync(trail.fileno())
        if is_new:
            _sync_folder(path.parent)


def remove(path: Path) -> None:
    """Take a file away; one that is not there is no error. Raises Problem when it cannot."""
    with explained(path, "remove"):
        if path.parent.is_dir():
            # A read-only file system refuses to remove even what is not there.
            if os.path.lexists(path):
                path.unlink(missing_ok=True)
            _sync_folder(path.parent)


def remove_folder(path: Path) -> None:
    """Take a folder away with all that is in it. Raises Problem when it cannot."""
    with explained(path, "remove"):
        shutil.rmtree(path)
        _sync_folder(path.parent)


def read(path: Path) -> str:
    """The whole text of a file. Raises Problem when it cannot be read."""
    with explained(path, "read"):
        return path.read_text(encoding="utf-8")


def open_shared(path: Path, flags: int) -> int:
    """Open a file that several processes write, and that everybody may read. Raises Problem when it cannot."""
    with explained(path, "open"):
        _make_folder(path.parent)
        return os.open(path, flags, 0o644)


@contextmanager
def explained(path: Path, verb: str) -> Iterator[None]:
    """Turn what the operating system says into a Problem that names the file and what to do."""
    try:
        yield
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise Problem(f"cannot {verb} {path}: {why}", hint=HINTS.get(error.errno or 0, "")) from error
    except UnicodeDecodeError as error:
        raise Problem(f"cannot {verb} {path}: it is not UTF-8 text: {error.reason}") from error


def _write_whole(path: Path, content: bytes, mode: int) -> None:
    # Made with no rights for others, so that a secret is never readable; the umask has no say at the end.
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(file, "wb") as out:
        out.write(content)
        out.flush()
        os.fchmod(file, mode)
        os.fsync(file)


def _make_folder(folder: Path) -> None:
    """Make a folder and its parents readable for all, whatever the umask: units of other users read there."""
    if folder.is_dir():
        return
    _make_folder(folder.parent)
    folder.mkdir(exist_ok=True)
    folder.chmod(0o755)
    _sync_folder(folder.parent)


def _sync_folder(folder: Path) -> None:
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    os.fsync(opened)
    os.close(opened)
