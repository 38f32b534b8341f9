"""The private machine that the tests share: a real systemd, stand-in GPUs and a stand-in engine."""

import hashlib
import json
import signal
from collections.abc import Callable, Iterator

import pytest

from dsv4ctl.problems import Problem
from dsv4ctl.rehearsal import machine as rehearsal
from dsv4ctl.rehearsal import router
from dsv4ctl.rehearsal.private import Machine

Behave = Callable[..., None]

# The job of a shell in the background ignores SIGINT, and so would all that the tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def machine() -> Iterator[Machine]:
    """One machine for all tests; skipped where this host lacks root, a program or cgroup2, not for a failed boot."""
    try:
        rehearsal.require()
    except Problem as problem:
        pytest.skip(f"{problem}; try: {problem.hint}")
    prepared = router.find()
    with rehearsal.boot(extra=(prepared,) if prepared else ()) as booted:
        yield booted


@pytest.fixture
def behaviour(machine: Machine) -> Behave:
    """Tell the stand-in engine of a port how to behave from its next start on: behaviour(30001, load_s=3)."""
    return lambda port, **what: machine.write(f"/run/standin/{port}.json", json.dumps(what))


# All of the machine that its systemd does not write by itself.
WRITTEN = ("run/written", "run/dsv4ctl", "run/systemd/system", "run/systemd/transient", "tmp", "dev/shm")


def written(machine: Machine) -> dict[str, str]:
    """Every file that was written in the machine since its boot -> its digest; Python's caches aside."""
    files = (path for folder in WRITTEN for path in (machine.root / folder).rglob("*"))
    return {
        str(path): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in files
        if path.is_file() and not path.is_symlink() and "__pycache__" not in path.parts
    }
