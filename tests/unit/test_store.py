"""Whole files, kept releases, the lock and the audit trail, on a real file system and with real processes."""

import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from dsv4ctl import child, store
from dsv4ctl.host import Host
from dsv4ctl.model import EngineBuild, Release, RenderedFile
from dsv4ctl.problems import Busy, Problem
from dsv4ctl.store import Paths, Store

Start = Callable[..., subprocess.Popen[str]]
NOON = 1_795_953_600.0


@dataclass
class StoppedClock:
    """A clock that stands still."""

    def now(self) -> float:
        return 0.0

    def wall(self) -> float:
        return NOON

    def sleep(self, seconds: float) -> None:
        raise AssertionError(f"nothing here sleeps, not even {seconds} s")


@pytest.fixture
def kept(tmp_path: Path) -> Store:
    """A store under an empty root."""
    return Store(Paths(tmp_path), StoppedClock())


RELEASE = Release(
    digest="d1", mode="single-tp4", instances=(), files=(RenderedFile(path="/etc/x", text="é\n"),), notes=("a note",)
)


def everything(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o7777


def test_all_paths_lie_under_the_root() -> None:
    paths = Paths(Path("/elsewhere"))

    assert [
        str(path)
        for path in (paths.config, paths.units, paths.lock, paths.audit, paths.instances, paths.releases, paths.engines)
    ] == [
        "/elsewhere/etc/dsv4ctl/config.toml",
        "/elsewhere/etc/systemd/system",
        "/elsewhere/run/dsv4ctl/lock",
        "/elsewhere/var/lib/dsv4ctl/audit.jsonl",
        "/elsewhere/var/lib/dsv4ctl/instances",
        "/elsewhere/var/lib/dsv4ctl/releases",
        "/elsewhere/var/lib/dsv4ctl/engines",
    ]
    assert str(paths.run_state("server")) == "/elsewhere/run/dsv4ctl/server/state.json"
    assert str(paths.secrets("server")) == "/elsewhere/run/dsv4ctl/server/secrets.yaml"
    assert str(paths.starts("server")) == "/elsewhere/var/lib/dsv4ctl/starts/server/starts.jsonl"
    assert str(paths.cache / "server") == "/elsewhere/var/cache/dsv4ctl/server"
    assert paths.under("/etc/systemd/system/dsv4-server.service") == paths.units / "dsv4-server.service"


def test_a_host_keeps_its_files_under_its_root(tmp_path: Path) -> None:
    host = Host.real(tmp_path)

    assert host.store.releases.keep(RELEASE) == 1
    assert (tmp_path / "var/lib/dsv4ctl/releases/0001/release.json").is_file()
    assert host.clock.wall() > NOON / 2


# Whole files


def test_a_file_is_replaced_whole_with_its_mode_whatever_the_umask(tmp_path: Path) -> None:
    file = tmp_path / "new" / "folder" / "secrets.yaml"
    before = os.umask(0o077)
    try:
        store.write_atomic(file, "old", mode=0o644)
        store.write_atomic(file, "new é", mode=0o600)
        store.write_atomic(file.with_name("shared"), "", mode=0o644)
    finally:
        os.umask(before)

    assert file.read_text() == "new é"
    assert (mode(file), mode(file.with_name("shared"))) == (0o600, 0o644)
    assert mode(file.parent) == mode(file.parent.parent) == 0o755
    assert everything(tmp_path) == {"new/folder/secrets.yaml", "new/folder/shared"}


def test_what_a_killed_writer_left_is_taken_away_by_the_next(tmp_path: Path) -> None:
    (tmp_path / ".unit.new").write_text("half of")

    store.write_atomic(tmp_path / "unit", "whole", mode=0o644)

    assert everything(tmp_path) == {"unit"}


def test_a_link_in_the_place_of_the_temporary_file_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("precious")
    (tmp_path / ".unit.new").symlink_to(tmp_path / "victim")

    store.write_atomic(tmp_path / "unit", "whole", mode=0o644)

    assert (tmp_path / "victim").read_text() == "precious"
    assert not (tmp_path / "unit").is_symlink()


def test_a_reader_never_sees_a_half_written_file(tmp_path: Path, start: Start) -> None:
    file = tmp_path / "state.json"
    store.write_atomic(file, "a" * 300_000, mode=0o644)
    start(
        "from pathlib import Path; from dsv4ctl import store\n"
        "print('up', flush=True)\n"
        f"while True:\n for letter in 'ab': store.write_atomic(Path({str(file)!r}), letter * 300_000, mode=0o644)"
    )
    seen = {file.read_text() for _ in range(300)}

    assert seen <= {"a" * 300_000, "b" * 300_000}
    assert len(seen) == 2


def test_a_writer_that_is_killed_leaves_the_old_or_the_new(tmp_path: Path, start: Start) -> None:
    file = tmp_path / "state.json"
    for _ in range(5):
        writer = start(
            "from pathlib import Path; from dsv4ctl import store\n"
            "print('up', flush=True)\n"
            f"while True: store.write_atomic(Path({str(file)!r}), 'x' * 300_000, mode=0o644)"
        )
        time.sleep(0.03)
        writer.kill()
        writer.wait()

    assert file.read_text() == "x" * 300_000
    store.write_atomic(file, "next", mode=0o644)
    assert everything(tmp_path) == {"state.json"}


FILLS_UP = """
import sys
from pathlib import Path
from dsv4ctl import store
from dsv4ctl.problems import Problem
folder = Path(sys.argv[1])
store.write_atomic(folder / "state.json", "old", mode=0o644)
try:
    store.write_atomic(folder / "state.json", "x" * 10_000_000, mode=0o644)
except Problem as problem:
    print(problem, "|", problem.hint)
print(sorted(path.name for path in folder.iterdir()), (folder / "state.json").read_text())
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small file system")
def test_a_full_disk_leaves_the_old_file_and_says_what_to_do(tmp_path: Path) -> None:
    # The mount lives in a namespace of its own and goes with it.
    mounted = f'mount -t tmpfs -o size=1m tmpfs {tmp_path} && exec "$@"'
    done = child.run(
        ["unshare", "--mount", "sh", "-c", mounted, "sh", sys.executable, "-c", FILLS_UP, tmp_path], timeout_s=30
    )

    problem, left = done.stdout.splitlines()
    assert problem == (
        f"cannot write {tmp_path}/state.json: no space left on device | look at `df -h` and `df -i` and make room"
    )
    assert left == "['state.json'] old"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a read-only file system")
def test_a_read_only_disk_says_what_to_look_at(tmp_path: Path) -> None:
    mounted = f'mount -t tmpfs -o ro tmpfs {tmp_path} && exec "$@"'
    script = FILLS_UP.replace('store.write_atomic(folder / "state.json", "old", mode=0o644)\n', "").rsplit("\n", 2)[0]
    done = child.run(
        ["unshare", "--mount", "sh", "-c", mounted, "sh", sys.executable, "-c", script, tmp_path], timeout_s=30
    )

    assert "read-only file system | the file system is mounted read-only" in done.stdout


def test_a_limit_of_the_kernel_in_the_middle_of_a_file_leaves_nothing_behind(tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        with pytest.raises(Problem, match=r"cannot write .*: file too large"):
            store.write_atomic(tmp_path / "unit", "x" * 5000, mode=0o644)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)

    assert everything(tmp_path) == set()


def test_a_folder_that_cannot_be_made_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(Problem, match=r"cannot write .*/file/unit"):
        store.write_atomic(tmp_path / "file" / "unit", "x", mode=0o644)


def test_a_file_that_cannot_be_read_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "bytes").write_bytes(b"\xff")

    with pytest.raises(Problem, match=r"cannot read .*: no such file or directory"):
        store.read(tmp_path / "nowhere")
    with pytest.raises(Problem, match=r"cannot read .*: it is not UTF-8 text"):
        store.read(tmp_path / "bytes")


# Releases


def test_releases_are_numbered_and_the_last_is_current(kept: Store) -> None:
    assert (kept.releases.numbers(), kept.releases.current()) == ((), None)

    assert kept.releases.keep(RELEASE) == 1
    assert kept.releases.keep(replace(RELEASE, digest="d2")) == 2
    assert kept.releases.keep(RELEASE) == 3, "going back is a release of its own"

    assert kept.releases.numbers() == (1, 2, 3)
    assert kept.releases.current() == (3, RELEASE)
    assert kept.releases.read(2) == replace(RELEASE, digest="d2")
    assert (kept.paths.releases / "0002/release.json").is_file()


def test_the_current_release_is_not_kept_twice(kept: Store) -> None:
    assert [kept.releases.keep(RELEASE), kept.releases.keep(RELEASE)] == [1, 1]
    assert kept.releases.numbers() == (1,)


def test_a_folder_that_a_killed_writer_left_is_no_release_and_its_number_is_spent(kept: Store) -> None:
    kept.releases.keep(RELEASE)
    (kept.paths.releases / "0002").mkdir()

    assert kept.releases.numbers() == (1,)
    assert kept.releases.keep(replace(RELEASE, digest="d2")) == 3


def test_an_unreadable_release_stops_nobody_and_is_told_to_whoever_asks_for_it(kept: Store) -> None:
    kept.releases.keep(RELEASE)
    (kept.paths.releases / "0001/release.json").write_text('{"half')

    assert kept.releases.current() is None
    assert kept.releases.keep(RELEASE) == 2
    with pytest.raises(Problem, match=r"cannot use .*/0001/release\.json"):
        kept.releases.read(1)
    with pytest.raises(Problem, match=r"cannot read .*/0009/release\.json: no such file"):
        kept.releases.read(9)


def test_releases_sort_by_number_beyond_four_digits(kept: Store) -> None:
    for number in (9999, 10000, 2):
        store.write_atomic(kept.paths.releases / f"{number:04}" / "release.json", "{}", mode=0o644)

    assert kept.releases.numbers() == (2, 9999, 10000)


def test_a_verdict_lies_beside_its_release(kept: Store) -> None:
    kept.releases.write_verdict(kept.releases.keep(RELEASE), {"ready": True})

    assert json.loads((kept.paths.releases / "0001/verdict.json").read_text()) == {"ready": True}


# The lock

HOLDS = """
import sys, time
from pathlib import Path
from dsv4ctl.clock import RealClock
from dsv4ctl.store import Paths, Store
sys.argv = ["dsv4ctl", "deploy", "--mode", "single-tp4"]
with Store(Paths(Path({root!r})), RealClock()).lock("deploy"):
    print("up", flush=True)
    time.sleep(60)
"""


def test_the_second_is_told_who_holds_the_lock_why_and_since_when(
    kept: Store, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SUDO_USER", "alice")
    holder = start(HOLDS.format(root=str(kept.paths.root)))
    minute = time.strftime("%Y-%m-%d %H:")

    with pytest.raises(Busy) as caught, kept.lock("teardown"):
        pass

    words = str(caught.value)
    assert words.startswith(f"cannot go on: alice holds the lock for deploy since {minute}")
    assert words.endswith(f"(pid {holder.pid}: dsv4ctl deploy --mode single-tp4)")
    assert caught.value.hint == f"wait for it, or interrupt it (kill -INT {holder.pid}) and try again"


def test_the_lock_is_free_when_its_holder_was_killed(kept: Store, start: Start) -> None:
    holder = start(HOLDS.format(root=str(kept.paths.root)))
    holder.send_signal(signal.SIGKILL)
    holder.wait()

    with kept.lock("teardown"):
        assert json.loads(kept.paths.lock.read_text())["why"] == "teardown"


def test_the_lock_is_free_again_after_an_error_under_it(kept: Store) -> None:
    with pytest.raises(RuntimeError), kept.lock("deploy"):
        raise RuntimeError
    with kept.lock("deploy"):
        pass

    assert kept.paths.lock.read_text() == ""


def test_a_child_that_outlives_its_holder_does_not_keep_the_lock(kept: Store) -> None:
    with kept.lock("deploy"):
        stranger = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], close_fds=False)
    try:
        with kept.lock("deploy"):
            pass
    finally:
        stranger.kill()
        stranger.wait()


def test_the_words_of_a_dead_holder_are_not_taken_for_those_of_the_living(kept: Store, start: Start) -> None:
    # The instant between taking the lock and saying why, after a holder that was killed.
    holder = start(HOLDS.format(root=str(kept.paths.root)))
    said = json.loads(kept.paths.lock.read_text())
    kept.paths.lock.write_text(json.dumps({**said, "start_ticks": said["start_ticks"] - 1}))

    with pytest.raises(Busy, match="has just taken the lock"), kept.lock("teardown"):
        pass
    kept.paths.lock.write_text("")
    with pytest.raises(Busy, match="has just taken the lock"), kept.lock("teardown"):
        pass
    assert holder.poll() is None


# The audit trail


def test_the_audit_trail_has_a_line_for_each_change(kept: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUDO_USER", "alice")
    kept.audit.write("deploy", {"release": 1, "note": "zwei\nZeilen é"})
    kept.audit.write("teardown", {})

    first, second = map(json.loads, kept.paths.audit.read_text().splitlines())
    assert first == {
        "at": NOON,
        "who": "alice",
        "pid": os.getpid(),
        "what": "deploy",
        "release": 1,
        "note": "zwei\nZeilen é",
    }
    assert second["what"] == "teardown"


def test_a_line_that_broke_off_does_not_swallow_the_next(kept: Store) -> None:
    kept.audit.write("deploy", {})
    with kept.paths.audit.open("a") as trail:
        trail.write('{"at": 17')

    kept.audit.write("teardown", {})

    assert json.loads(kept.paths.audit.read_text().splitlines()[-1])["what"] == "teardown"


# The cache of engine builds

BUILD = EngineBuild(
    python="/opt/sglang/bin/python",
    version="0.5.23",
    options=frozenset({"--port", "--tp-size"}),
    choices={"--dtype": ("auto", "half")},
)


def test_an_engine_build_is_remembered_under_its_key(kept: Store) -> None:
    assert kept.engines.cached("python 0.5.23") is None

    kept.engines.cache("python 0.5.23", BUILD)

    assert kept.engines.cached("python 0.5.23") == BUILD
    assert kept.engines.cached("python 0.5.24") is None


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"key": "k", "build": {}}', '{"key": "k", "build": null}'])
def test_a_cache_that_cannot_be_read_is_none(kept: Store, text: str) -> None:
    kept.engines.cache("k", BUILD)
    (file,) = kept.paths.engines.iterdir()
    file.write_text(text)

    assert kept.engines.cached("k") is None


def test_the_cache_of_an_older_dsv4ctl_with_other_fields_is_none(kept: Store) -> None:
    kept.engines.cache("k", BUILD)
    (file,) = kept.paths.engines.iterdir()
    said = json.loads(file.read_text())
    file.write_text(json.dumps({**said, "build": {**said["build"], "flags": []}}))

    assert kept.engines.cached("k") is None
