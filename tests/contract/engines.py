"""Starts engines for the contract tests, and ends every process and segment of theirs by identity."""

import json
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dsv4ctl import pidfd, probe, procs
from dsv4ctl.clock import RealClock, until
from dsv4ctl.engine import log
from dsv4ctl.model import Identity
from dsv4ctl.probe import Answer
from tests import ports

CLOCK = RealClock()
SEGMENTS = Path("/dev/shm")  # noqa: S108 -- where the engines put theirs
KEY = 'sesame "open" \\ 1'
MODEL_NAME = "contract-model"
# For what comes within seconds on a host at rest.
PATIENCE_S = 120.0
# First in the environment, so that it lies where a worker writes its title.
MARKER = "DSV4CTL_CONTRACT"


@dataclass(frozen=True, slots=True, kw_only=True)
class Build:
    """An engine that can be started. `slow` are behaviour keys that stretch the import phase, where there are any."""

    name: str
    python: Path
    model: Path
    tp: int
    flags: tuple[str, ...]
    environment: tuple[tuple[str, str], ...]
    stream_tokens: int
    start_limit_s: float
    slow: tuple[tuple[str, Any], ...] = ()
    phases: tuple[str, ...] = ()
    prefill_flags: tuple[str, ...] = ()
    decode_flags: tuple[str, ...] = ()

    @property
    def schedulers(self) -> set[str]:
        """Titles of the schedulers."""
        return {f"sglang::scheduler_TP{rank}" for rank in range(self.tp)} if self.tp > 1 else {"sglang::scheduler"}


@dataclass(slots=True, kw_only=True)
class Server:
    """A started engine. `key` is what the probes send."""

    build: Build
    folder: Path
    port: int
    rendezvous: int
    key: str
    process: subprocess.Popen[bytes]
    started: float
    identity: Identity
    segments: set[Path] = field(default_factory=set)

    @property
    def pid(self) -> int:
        """The main process, which is the leader of its session."""
        return self.process.pid

    def get(self, path: str, *, timeout_s: float = 10, key: str | None = None) -> Answer:
        """GET, with the right key unless another is given."""
        return probe.get(f"http://127.0.0.1:{self.port}{path}", self.key if key is None else key, timeout_s=timeout_s)

    def post(self, path: str, payload: dict[str, object], *, timeout_s: float = 60) -> Answer:
        """POST with the right key."""
        return probe.post(f"http://127.0.0.1:{self.port}{path}", payload, self.key, timeout_s=timeout_s)

    def status(self, path: str, *, timeout_s: float = 5) -> int | None:
        """The status of a GET; None when nobody answers."""
        return self.get(path, timeout_s=timeout_s).status

    def alive(self) -> bool:
        """Whether the main process still runs."""
        return self.process.poll() is None

    def members(self) -> tuple[procs.Stat, ...]:
        """The living processes of the engine's session, the main one included."""
        found = (procs.stat(pid) for pid in procs.pids())
        return tuple(one for one in found if one and one.session == self.pid and not one.ended)

    def titles(self) -> dict[str, int]:
        """Command line -> pid of the children."""
        return {title: one.pid for one in self.members() if one.pid != self.pid and (title := _command(one.pid))}

    def scheduler(self) -> Identity:
        """The scheduler of rank 0."""
        found = procs.identity(self.titles()[min(self.build.schedulers)])
        assert found is not None
        return found

    def wait_for(self, path: str = "/ready", status: int = 200) -> None:
        """Wait until a path answers with a status; fails with the log when the engine ends first."""
        limit_s = self.build.start_limit_s
        reached = until(lambda: self._reached(path, status), CLOCK, limit_s, 0.05)
        assert reached, f"{path} is not {status} after {limit_s} s:\n{self.said()[-3000:]}"
        self.note_segments()

    def _reached(self, path: str, status: int) -> bool | None:
        assert self.alive(), f"the engine ended with {self.process.returncode}:\n{self.said()[-3000:]}"
        return True if self.status(path) == status else None

    def wait_end(self, limit_s: float = PATIENCE_S) -> tuple[int, float]:
        """Exit status of the main process and the seconds until then."""
        before = CLOCK.now()
        # Whatever it maps before its end is known then, even for one that never gets ready.
        until(self._noted_end, CLOCK, limit_s, 0.1)
        return self.process.wait(0.1), CLOCK.now() - before

    def _noted_end(self) -> int | None:
        self.note_segments()
        return self.process.poll()

    def said(self) -> str:
        """What it wrote to stderr."""
        return (self.folder / "stderr").read_text(encoding="utf-8", errors="replace")

    def events(self) -> list[log.Event]:
        """The events of its log."""
        lines, _rest = log.split((self.folder / "stderr").read_bytes())
        return [event for line in lines if (event := log.parse_line(line))]

    def note_segments(self) -> None:
        """Remember the shared memory that its processes map, for it outlives them."""
        for one in self.members():
            self.segments |= _segments(one.pid)

    def end(self) -> None:
        """End what is left of the session by identity, and remove the shared memory that only it had."""
        self.note_segments()
        self.segments |= {path for path in SEGMENTS.glob("sglang_loads_*") if _is_of(path, self.pid)}
        left = pidfd.end_all(lambda: tuple(map(_identity, self.members())), CLOCK, 10)
        self.process.wait(10)
        for segment in self.segments:
            segment.unlink(missing_ok=True)
        assert left == ()


def start(build: Build, folder: Path, ports: tuple[int, int], *words: str, **behaviour: Any) -> Server:
    """Start an engine in a session, a TMPDIR and with logs of its own; the key travels in a file."""
    folder.mkdir()
    (folder / "tmp").mkdir()
    secrets = folder / "secrets.yaml"
    secrets.write_text(f"api-key: {json.dumps(KEY)}\n", encoding="utf-8")
    (folder / "behaviour.json").write_text(json.dumps(behaviour), encoding="utf-8")
    argv = [str(build.python), "-m", "sglang.launch_server", "--model-path", str(build.model)]
    argv += ["--served-model-name", MODEL_NAME, "--host", "127.0.0.1", "--port", str(ports[0])]
    argv += ["--nccl-port", str(ports[1]), "--tp-size", str(build.tp), *build.flags]
    argv += words or ["--config", str(secrets)]
    with (folder / "stdout").open("wb") as out, (folder / "stderr").open("wb") as err:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            env=_environment(build, folder),
            start_new_session=True,
        )
    identity = procs.identity(process.pid)
    assert identity is not None
    return Server(
        build=build,
        folder=folder,
        port=ports[0],
        rendezvous=ports[1],
        key="" if words else KEY,
        process=process,
        started=CLOCK.now(),
        identity=identity,
    )


def _environment(build: Build, folder: Path) -> dict[str, str]:
    """The marker first; no proxies, so that the engine's own warm-up reaches it."""
    kept = {name: value for name, value in os.environ.items() if name in ("PATH", "HOME", "LANG")}
    own = {"TMPDIR": str(folder / "tmp"), "DSV4CTL_STANDIN_BEHAVIOUR": str(folder / "behaviour.json")}
    return {MARKER: "1", **kept, **own, **dict(build.environment)}


def free_ports() -> Iterator[tuple[int, int]]:
    """Pairs of an HTTP and a rendezvous port, other ones for each test run."""
    first = ports.of_this_process().start + 100 * (os.getpid() % 6)
    for number in range(first, first + 100):
        yield number, number + 600


def _command(pid: int) -> str:
    """The command line without its padding; '' for one that has just gone."""
    try:
        return (procs.PROC / str(pid) / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except procs.GONE:
        return ""


def _is_of(segment: Path, pid: int) -> bool:
    """Whether a stand-in wrote a segment; one that dies quickly has been seen with no segment mapped."""
    try:
        return segment.read_bytes().startswith(b'{"server": %d,' % pid)
    except FileNotFoundError:
        return False


def _identity(one: procs.Stat) -> Identity:
    return Identity(procs.boot_id(), one.pid, one.start_ticks)


def _segments(pid: int) -> set[Path]:
    """Files of /dev/shm that a process maps."""
    try:
        lines = (procs.PROC / str(pid) / "maps").read_text(encoding="utf-8", errors="replace").splitlines()
    except procs.GONE:
        return set()
    names = (line.split(maxsplit=5)[-1] for line in lines if "/dev/shm/" in line)  # noqa: S108 -- of the engine
    return {Path(name) for name in names if not name.endswith("(deleted)")}


def stop(process: Identity) -> None:
    """SIGSTOP."""
    assert pidfd.signal(process, signal.SIGSTOP)


def go_on(process: Identity) -> None:
    """SIGCONT."""
    assert pidfd.signal(process, signal.SIGCONT)


class Background:
    """A request in a thread."""

    def __init__(self, ask: Callable[[], Answer]) -> None:
        self.answers: list[Answer] = []
        self.thread = threading.Thread(target=lambda: self.answers.append(ask()), daemon=True)
        self.thread.start()

    def result(self, limit_s: float) -> Answer:
        """Its answer."""
        self.thread.join(limit_s)
        assert self.answers, f"no answer within {limit_s} s"
        return self.answers[0]


def reply(answer: Answer) -> Any:
    """The JSON of an answer that must be 200."""
    assert answer.status == 200, answer
    return json.loads(answer.body)
