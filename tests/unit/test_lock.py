"""The lock where its holder has no face, and where its file cannot be made: with real processes, the kernel's word."""

import json
import os
import sys
from pathlib import Path

import pytest

from dsv4ctl import child
from dsv4ctl.problems import Busy
from dsv4ctl.store import Paths, Store, lock, unnamed
from dsv4ctl.store.unnamed import Unnamed
from tests.unit.test_store import DEPLOY, TEARDOWN, Noon, Start, ends


@pytest.fixture
def kept(tmp_path: Path) -> Store:
    """A store under an empty root."""
    return Store(Paths(tmp_path), Noon())


SILENT = """
import fcntl, os, sys, time
os.makedirs(os.path.dirname(sys.argv[1]), exist_ok=True)
file = os.open(sys.argv[1], os.O_RDONLY | os.O_CREAT)
fcntl.flock(file, fcntl.LOCK_EX)
print("up", flush=True)
time.sleep(600)
"""


def test_a_holder_that_never_says_who_it_is_is_named_by_the_kernel(kept: Store, start: Start) -> None:
    holder = start(SILENT, kept.paths.lock, "--api-key=a_key")

    with pytest.raises(Busy) as caught, kept.lock(TEARDOWN):
        pass

    assert f"cannot go on: somebody unknown holds the lock {kept.paths.lock} and has not said what for" in str(
        caught.value
    )
    assert f"(pid {holder.pid} of " in str(caught.value)
    assert "a_key" not in str(caught.value)
    assert caught.value.hint == f"--wait   waits for it; ps -f {holder.pid}   shows it"
    seen = lock.holder(kept.paths.lock, kept.clock)
    assert isinstance(seen, Unnamed)
    assert seen.pid == holder.pid
    ends(holder)
    assert lock.holder(kept.paths.lock, kept.clock) is None
    with kept.lock(TEARDOWN):
        pass


SEES = """
import sys
from pathlib import Path
from dsv4ctl.clock import RealClock
from dsv4ctl.store import lock
found = lock.holder(Path(sys.argv[1]), RealClock())
print(found.words() if found else "free")
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a pid namespace")
def test_a_holder_whom_the_kernel_does_not_show_is_somebody_unknown_and_never_nobody(kept: Store) -> None:
    apart: list[str | Path] = [
        "unshare",
        "--pid",
        "--fork",
        "--mount-proc",
        sys.executable,
        "-c",
        SEES,
        kept.paths.lock,
    ]
    with kept.lock(DEPLOY):
        kept.paths.lock.write_text("")
        held = child.run(apart, timeout_s=60).stdout
    free = child.run(apart, timeout_s=60).stdout

    assert held == f"somebody unknown holds the lock {kept.paths.lock}: no process that can be seen from here\n"
    assert free == "free\n"


def test_a_lock_that_is_let_go_of_while_its_face_is_looked_for_is_taken(tmp_path: Path, start: Start) -> None:
    clock = Noon()
    store_here = Store(Paths(tmp_path), clock)
    holder = start(SILENT, store_here.paths.lock)
    clock.wakes = lambda: ends(holder)

    with store_here.lock(TEARDOWN):
        assert json.loads(store_here.paths.lock.read_text())["what"] == "teardown"


def test_who_waits_for_a_lock_is_not_named_as_its_holder() -> None:
    listed = (
        "1: FLOCK  ADVISORY  WRITE 4711 00:1a:99 0 EOF\n"
        "1: -> FLOCK  ADVISORY  WRITE 4712 00:1a:99 0 EOF\n"
        "2: POSIX  ADVISORY  WRITE 4713 00:1a:99 0 EOF\n"
        "3: FLOCK  ADVISORY  WRITE 4714 00:1a:98 0 EOF\n"
    )

    assert unnamed.pids(listed, os.makedev(0, 0x1A), 99) == (4711,)


READ_ONLY_RUN = """
import sys
from pathlib import Path
from dsv4ctl import store
from dsv4ctl.clock import RealClock
from dsv4ctl.problems import Problem
from dsv4ctl.store import Claim, Paths, Store
here = Store(Paths(Path(sys.argv[1])), RealClock())
with here.lock(Claim(what="teardown")):
    try:
        here.lock(Claim(what="deploy")).__enter__()
    except Problem as problem:
        print(problem)
with here.lock(Claim(what="deploy")):
    print("free again")
"""


@pytest.mark.parametrize(
    ("made", "locked"),
    [
        ("mkdir -p run/dsv4ctl && touch run/dsv4ctl/lock", "run/dsv4ctl/lock"),
        ("mkdir -p run/dsv4ctl", "run/dsv4ctl"),
        ("true", ""),
    ],
)
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a read-only file system")
def test_a_read_only_run_folder_keeps_nobody_from_the_lock_and_lets_in_one_at_a_time(
    tmp_path: Path, made: str, locked: str
) -> None:
    mounted = 'mount -t tmpfs tmpfs "$0" && cd "$0" && eval "$1" && mount -o remount,ro "$0" && shift && exec "$@"'
    program: list[str | Path] = [sys.executable, "-c", READ_ONLY_RUN, tmp_path]

    done = child.run(["unshare", "--mount", "sh", "-c", mounted, tmp_path, made, *program], timeout_s=60)

    busy, after = done.stdout.splitlines()
    assert busy.startswith(f"cannot go on: somebody unknown holds the lock {tmp_path / locked} "), done.stdout
    assert after == "free again"
