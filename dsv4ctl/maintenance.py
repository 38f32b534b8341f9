"""The files of pauses and of the brake: the commands write the pause, each supervisor the tally of its own starts."""

from contextlib import suppress
from pathlib import Path

from dsv4ctl import brake, record
from dsv4ctl.model import Pause, Tally
from dsv4ctl.problems import Problem
from dsv4ctl.store import Paths, files

TALLY = "tally.json"


def pause(file: Path) -> Pause | None:
    """The pause in its file, over or not; None: there is none, or it cannot be read, and then it holds nobody."""
    with suppress(Problem):
        return record.load(files.read(file), Pause)
    return None


def unreadable(file: Path) -> str:
    """Why the file of a pause is there and says nothing; '' where there is none, or it can be read."""
    try:
        record.load(files.read(file), Pause)
    except Problem as problem:
        return f"{file} cannot be read, so that no pause holds anybody: {problem}" if file.exists() else ""
    return ""


def lasting(file: Path, now: float) -> Pause | None:
    """The pause that lasts now; None: there is none."""
    found = pause(file)
    return found if found is not None and not brake.is_over(found, now) else None


def keep_pause(paths: Paths, wanted: Pause) -> None:
    """Begin a pause, or change the one that lasts. Raises Problem when it cannot be written."""
    files.write_atomic(paths.pause, record.dump(wanted), mode=0o644)


def end_pause(paths: Paths) -> None:
    """End the pause; none is no error. Raises Problem when its file cannot be removed."""
    files.remove(paths.pause)


def tally(file: Path) -> Tally:
    """What an instance's starts came to; nothing where that cannot be read: the outer fence is systemd's own limit."""
    with suppress(Problem):
        return record.load(files.read(file), Tally)
    return Tally()


def keep_tally(file: Path, now: Tally) -> None:
    """Keep what an instance's starts came to. Raises Problem when it cannot be written."""
    files.write_atomic(file, record.dump(now), mode=0o644)


def tallies(folder: Path) -> dict[str, Tally]:
    """Instance -> what its starts came to, of all below the folder `starts`."""
    return {file.parent.name: tally(file) for file in sorted(folder.glob(f"*/{TALLY}"))}


def release(paths: Paths) -> None:
    """Let the brake go: nobody is parked, and no earlier start counts. Raises Problem for a file that stays."""
    for file in sorted(paths.all_starts.glob(f"*/{TALLY}")):
        files.remove(file)
