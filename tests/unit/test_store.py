"""Whole files, kept releases, the lock and the audit trail, on a real file system and with real processes."""

import json
import math
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
from dsv4ctl.model import EngineBuild
from dsv4ctl.problems import Busy, Problem
from dsv4ctl.store import Claim, Paths, Store

Start = Callable[..., subprocess.Popen[str]]
NOON = 1_795_953_600.0
DEPLOY, TEARDOWN = Claim(what="deploy"), Claim(what="teardown")


@dataclass
class Noon:
    """A clock on which time passes only while somebody sleeps; `wakes` is done after each sleep."""

    wakes: Callable[[], None] = lambda: None
    slept_s: float = 0.0

    def now(self) -> float:
        return self.slept_s

    def wall(self) -> float:
        return NOON + self.slept_s

    def sleep(self, seconds: float) -> None:
        self.slept_s += seconds
        self.wakes()


@pytest.fixture
def kept(tmp_path: Path) -> Store:
    """A store under an empty root."""
    return Store(Paths(tmp_path), Noon())


def ends(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()


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

    host.store.audit.write("deploy", {})

    assert (tmp_path / "var/lib/dsv4ctl/audit.jsonl").is_file()
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


# The lock

HOLDS = """
import sys, time
from pathlib import Path
from dsv4ctl.clock import RealClock
from dsv4ctl.store import Claim, Paths, Store
sys.argv = ["dsv4ctl", "deploy", "--mode", "single-tp4"]
with Store(Paths(Path({root!r})), RealClock()).lock(Claim(what="deploy", reason="longer context")):
    print("up", flush=True)
    time.sleep(60)
"""


def test_the_second_is_told_who_holds_the_lock_why_and_since_when(
    kept: Store, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SUDO_USER", "alice")
    holder = start(HOLDS.format(root=str(kept.paths.root)))
    minute = time.strftime("%Y-%m-%d %H:")

    with pytest.raises(Busy) as caught, kept.lock(TEARDOWN):
        pass

    words = str(caught.value)
    host = os.uname().nodename
    assert words.startswith(f"cannot go on: alice on {host} holds the lock for deploy (longer context) since {minute}")
    assert words.endswith(f"(pid {holder.pid}: dsv4ctl deploy --mode single-tp4)")
    assert caught.value.hint == f"--wait   waits for it; kill -INT {holder.pid}   interrupts it"


def test_the_lock_is_free_when_its_holder_was_killed(kept: Store, start: Start) -> None:
    holder = start(HOLDS.format(root=str(kept.paths.root)))
    holder.send_signal(signal.SIGKILL)
    holder.wait()

    with kept.lock(TEARDOWN):
        assert json.loads(kept.paths.lock.read_text())["what"] == "teardown"


def test_the_lock_is_free_again_after_an_error_under_it(kept: Store) -> None:
    with pytest.raises(RuntimeError), kept.lock(DEPLOY):
        raise RuntimeError
    with kept.lock(DEPLOY):
        pass

    assert kept.paths.lock.read_text() == ""


def test_a_child_that_outlives_its_holder_does_not_keep_the_lock(kept: Store) -> None:
    with kept.lock(DEPLOY):
        stranger = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], close_fds=False)
    try:
        with kept.lock(DEPLOY):
            pass
    finally:
        stranger.kill()
        stranger.wait()


def test_the_words_of_a_dead_holder_are_not_taken_for_those_of_the_living(kept: Store, start: Start) -> None:
    # The instant between taking the lock and saying why, after a holder that was killed.
    holder = start(HOLDS.format(root=str(kept.paths.root)))
    said = json.loads(kept.paths.lock.read_text())
    other = {**said["process"], "start_ticks": said["process"]["start_ticks"] - 1}

    for face in (json.dumps({**said, "process": other}), ""):
        kept.paths.lock.write_text(face)
        with (
            pytest.raises(Busy, match=rf"somebody unknown holds the lock .* \(pid {holder.pid} of "),
            kept.lock(TEARDOWN),
        ):
            pass
    assert holder.poll() is None


def test_the_next_holder_is_given_the_face_of_one_that_was_killed_and_of_no_other(kept: Store, start: Start) -> None:
    with kept.lock(DEPLOY) as left:
        assert left is None
    holder = start(HOLDS.format(root=str(kept.paths.root)))
    holder.kill()
    holder.wait()

    with kept.lock(TEARDOWN) as left:
        assert left is not None
        assert (left.what, left.reason, left.process.pid) == ("deploy", "longer context", holder.pid)
    with kept.lock(TEARDOWN) as left:
        assert left is None


def test_who_waits_is_told_once_for_whom_and_gets_the_lock_when_it_is_free(tmp_path: Path, start: Start) -> None:
    holder = start(HOLDS.format(root=str(tmp_path)))
    told: list[str] = []
    clock = Noon(wakes=lambda: ends(holder) if clock.slept_s > 5 else None)
    waiting = replace(TEARDOWN, wait_s=math.inf, says=told.append)

    with Store(Paths(tmp_path), clock).lock(waiting):
        pass

    (words,) = told
    assert words.startswith("waiting: ")
    assert f"pid {holder.pid}: dsv4ctl deploy" in words


def test_who_waits_for_so_long_and_no_longer_is_told_who_still_holds_it(kept: Store, start: Start) -> None:
    start(HOLDS.format(root=str(kept.paths.root)))

    with pytest.raises(Busy, match="holds the lock for deploy"), kept.lock(replace(TEARDOWN, wait_s=30)):
        pass

    assert 30 <= kept.clock.now() < 31


RACES = """
import sys, time
from pathlib import Path
from dsv4ctl.clock import RealClock
from dsv4ctl.problems import Busy
from dsv4ctl.store import Claim, Paths, Store
root, me, other, rounds = Path(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4])
def wait_for(name):
    while not (root / name).exists():
        time.sleep(0.001)
for turn in range(rounds):
    (root / f"{turn}-{me}-ready").touch()
    wait_for(f"{turn}-{other}-ready")
    try:
        with Store(Paths(root), RealClock()).lock(Claim(what=me)):
            print(turn, "works", flush=True)
            wait_for(f"{turn}-{other}-told")
    except Busy as busy:
        print(turn, busy, flush=True)
        (root / f"{turn}-{me}-told").touch()
    (root / f"{turn}-{me}-over").touch()
    wait_for(f"{turn}-{other}-over")
"""


def test_of_two_at_once_one_works_and_the_other_says_who_is_at_it_fifty_times(tmp_path: Path) -> None:
    names = ("left", "right")
    racers = {
        me: subprocess.Popen(
            [sys.executable, "-c", RACES, tmp_path, me, other, "50"], stdout=subprocess.PIPE, text=True
        )
        for me, other in (names, names[::-1])
    }
    said = {me: racer.communicate(timeout=120)[0].splitlines() for me, racer in racers.items()}

    for left, right in zip(said["left"], said["right"], strict=True):
        working, told = ("left", right) if left.endswith("works") else ("right", left)
        assert f"holds the lock for {working} since" in told
        assert f"(pid {racers[working].pid}: " in told
    assert len(said["left"]) == 50


def test_secrets_of_a_command_line_stand_in_no_lock(kept: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["dsv4ctl", "deploy", "--hf-token", "hf_secret"])

    with kept.lock(DEPLOY):
        assert "hf_secret" not in kept.paths.lock.read_text()


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


def test_a_cache_that_cannot_be_written_stops_nobody_and_one_that_is_the_same_is_not_written(kept: Store) -> None:
    kept.paths.engines.parent.mkdir(parents=True, exist_ok=True)
    kept.paths.engines.write_text("no folder")
    assert kept.engines.cache("k", BUILD).startswith(f"cannot write {kept.paths.engines}/")

    kept.paths.engines.unlink()
    assert kept.engines.cache("k", BUILD) == ""
    (file,) = kept.paths.engines.iterdir()
    written = file.stat().st_mtime_ns, file.stat().st_ino
    assert kept.engines.cache("k", BUILD) == ""
    assert (file.stat().st_mtime_ns, file.stat().st_ino) == written
