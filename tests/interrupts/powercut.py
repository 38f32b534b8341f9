"""What a disk holds after a power cut, at every instant of a recorded run. Pure.

A file system keeps data that was synced, and names of folders that were synced. Of the rest it may have kept anything:
here a beginning of the changes of names in their order, as a journal does, and of unsynced data nothing, half, or all.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Literal

DATA: tuple[Literal["none", "half", "all"], ...] = ("none", "half", "all")


@dataclass(frozen=True, slots=True)
class Act:
    """One line of the log: what was done to which path; `more`: the bytes of a write, the old name of a rename."""

    kind: str
    path: str
    more: bytes = b""


@dataclass(slots=True)
class File:
    """The content of a file: what was synced, and all of it."""

    synced: bytes = b""
    content: bytes = b""


@dataclass(frozen=True, slots=True)
class Change:
    """A change of names that was not synced yet: of a file, which `file` None removes, or of a folder."""

    path: str
    file: File | None = None
    folder: bool = False
    gone: bool = False


@dataclass(slots=True)
class Disk:
    """Names and files as a running system sees them, and what of it is not synced."""

    files: dict[str, File]
    folders: set[str]
    synced_files: dict[str, File] = field(default_factory=dict)
    synced_folders: set[str] = field(default_factory=set)
    pending: list[Change] = field(default_factory=list)

    def do(self, act: Act) -> None:
        """Take in one act, which succeeded."""
        match act.kind:
            case "mkdir":
                self._change(Change(act.path, folder=True))
            case "open" if act.path not in self.files:
                self._change(Change(act.path, File()))
            case "write":
                self.files[act.path].content += act.more
            case "truncate":
                self.files[act.path].content = b""
            case "unlink" if act.path in self.files:
                self._change(Change(act.path))
            case "rmdir":
                self._change(Change(act.path, folder=True, gone=True))
            case "rename":
                old = act.more.decode()
                file = self.files[old]
                self._change(Change(old))
                self._change(Change(act.path, file))
            case "fsync" if act.path in self.files:
                self.files[act.path].synced = self.files[act.path].content
            case "fsync":
                self._sync(act.path)

    def worlds(self) -> Iterator[Mapping[str, bytes]]:
        """What may be there after a power cut now: path -> content."""
        for count in range(len(self.pending) + 1):
            files, folders = dict(self.synced_files), set(self.synced_folders)
            for change in self.pending[:count]:
                _apply(change, files, folders)
            there = {path: file for path, file in files.items() if str(PurePosixPath(path).parent) in folders}
            for data in DATA:
                yield {path: _content(file, data) for path, file in there.items()}

    def _change(self, change: Change) -> None:
        self.pending.append(change)
        _apply(change, self.files, self.folders)

    def _sync(self, folder: str) -> None:
        mine = [change for change in self.pending if str(PurePosixPath(change.path).parent) == folder]
        for change in mine:
            _apply(change, self.synced_files, self.synced_folders)
        self.pending = [change for change in self.pending if change not in mine]


def parse(log: str) -> tuple[Act, ...]:
    """The acts of a log, without the children that were started."""
    lines = (line.split("\t") for line in log.splitlines())
    acts = (Act(line[0], line[1], bytes.fromhex(line[2]) if len(line) > 2 else b"") for line in lines)
    return tuple(act for act in acts if act.kind not in ("start", "kill"))


def begun(files: Mapping[str, bytes], folders: set[str]) -> Disk:
    """A disk on which all of this was synced long ago."""
    there = {path: File(content, content) for path, content in files.items()}
    return Disk(dict(there), set(folders), dict(there), set(folders))


def broken(disk: Disk, acts: tuple[Act, ...], appended: frozenset[str]) -> list[str]:
    """Where a power cut would leave a file that is neither old nor new, or lose one that was there.

    `appended`: files that only grow, by whole lines; of these a beginning must be left, with all that was synced.
    Temporary files, whose names begin with a dot, do not count. At the end nothing may be lost any more.
    """
    whole: dict[str, set[bytes]] = {path: {file.content} for path, file in disk.files.items()}
    found = []
    for number, act in enumerate(acts, start=1):
        before = {path for path in disk.synced_files if path in disk.files}
        disk.do(act)
        if act.kind == "rename":
            whole.setdefault(act.path, set()).add(disk.files[act.path].content)
        kept = {path for path in before if path in disk.files}
        at = f"after act {number} ({act.kind} {act.path})"
        for world in disk.worlds():
            found += [f"{at}: {why}" for why in _wrong(world, disk, whole, kept, appended)]
    if disk.pending or any(file.synced != file.content for file in disk.files.values()):
        left = [change.path for change in disk.pending]
        left += [path for path, file in disk.files.items() if file.synced != file.content]
        found.append(f"at the end not everything is on the disk: {left}")
    return sorted(set(found))


def _wrong(
    world: Mapping[str, bytes], disk: Disk, whole: Mapping[str, set[bytes]], kept: set[str], appended: frozenset[str]
) -> Iterator[str]:
    for path, content in world.items():
        if PurePosixPath(path).name.startswith("."):
            continue
        if path in appended:
            synced = disk.files[path].synced if path in disk.files else b""
            if not (disk.files[path].content.startswith(content) and content.startswith(synced)):
                yield f"{path} lost a line that was kept"
        elif content not in whole.get(path, set()):
            yield f"{path} would hold {content[:40]!r}, neither old nor new"
    for path in kept:
        if path not in world and not PurePosixPath(path).name.startswith("."):
            yield f"{path} would be lost"


def _apply(change: Change, files: dict[str, File], folders: set[str]) -> None:
    if change.folder:
        (folders.discard if change.gone else folders.add)(change.path)
    elif change.file is None:
        files.pop(change.path, None)
    else:
        files[change.path] = change.file


def _content(file: File, data: Literal["none", "half", "all"]) -> bytes:
    rest = file.content[len(file.synced) :] if file.content.startswith(file.synced) else b""
    return file.synced + (b"" if data == "none" else rest[: len(rest) // 2] if data == "half" else rest)
