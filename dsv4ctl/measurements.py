"""What engines took of memory on this host, kept under /var/lib/dsv4ctl/memory: one file for each key of a plan."""

import hashlib
from contextlib import suppress

from dsv4ctl import store
from dsv4ctl.memory import marks
from dsv4ctl.memory.marks import Key, Mark
from dsv4ctl.problems import Problem
from dsv4ctl.store import Paths

# A config that is tried once leaves a file; nobody tries so many that the old ones matter.
KEPT = 100


def keep(paths: Paths, mark: Mark) -> None:
    """Keep a mark in the place of the last one of its key. Raises Problem when it cannot be written."""
    store.write_atomic(paths.state / "memory" / _name(mark.key), marks.dump(mark), mode=0o600)
    for old in all_of(paths)[KEPT:]:
        store.files.remove(paths.state / "memory" / _name(old.key))


def all_of(paths: Paths) -> tuple[Mark, ...]:
    """Every mark that can be read, the youngest first."""
    found = []
    for file in (paths.state / "memory").glob("*.json"):
        with suppress(Problem):
            found.append(marks.load(store.read(file)))
    return tuple(sorted((mark for mark in found if mark is not None), key=lambda mark: -mark.at))


def of_key(paths: Paths, key: Key) -> Mark | None:
    """The mark of a plan's key; None: it was never measured here."""
    with suppress(Problem):
        mark = marks.load(store.read(paths.state / "memory" / _name(key)))
        return mark if mark is not None and mark.key == key else None
    return None


def of_digest(paths: Paths, digest: str) -> Mark | None:
    """The youngest mark of an instance; None: it was never measured."""
    return next((mark for mark in all_of(paths) if mark.digest == digest), None)


def _name(key: Key) -> str:
    text = "\0".join((key.host, key.engine_version, key.model, key.gpu, key.flags))
    return f"{hashlib.sha256(text.encode()).hexdigest()[:16]}.json"
