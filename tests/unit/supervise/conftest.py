"""A supervisor as a real process, with a systemd of the test's own: a datagram socket that keeps what it is told."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from dsv4ctl import procs, record
from dsv4ctl.model import Instance, Limits, Role, RunState
from tests import ports

ENGINE = Path(__file__).with_name("script_engine.py")
# A slow machine that is shared may take its time; what is measured is said in the tests that measure.
PATIENCE_S = 30.0


@dataclass
class Bench:
    """One supervisor, its folders, and everything it said."""

    folder: Path
    instance: Instance
    environment: dict[str, str]
    messages: list[tuple[float, dict[str, str]]] = field(default_factory=list)
    prefix: tuple[str, ...] = ()
    process: subprocess.Popen[bytes] | None = None

    def start(self, **behaviour: Any) -> "Bench":
        """Start the supervisor for a script engine that behaves like this."""
        behaviour = {"port": self.instance.port, "host": self.instance.host, **behaviour}
        return self.start_engine(sys.executable, str(ENGINE), json.dumps(behaviour))

    def start_engine(self, *argv: str) -> "Bench":
        """Start the supervisor for any engine."""
        file = self.folder / "instance.json"
        file.write_text(record.dump_instance(self.instance))
        self.process = subprocess.Popen(
            [*self.prefix, sys.executable, "-P", "-m", "dsv4ctl.supervise", str(file), "--", *argv],
            env=self.environment,
            stderr=(self.folder / "journal").open("ab"),
        )
        return self

    def limit(self, **limits: int) -> "Bench":
        """Change time limits."""
        self.instance = replace(self.instance, limits=replace(self.instance.limits, **limits))
        return self

    @property
    def pid(self) -> int:
        """The supervisor's pid."""
        assert self.process is not None
        return self.process.pid

    @property
    def statuses(self) -> list[str]:
        """Every STATUS, in order."""
        return [said["STATUS"] for _, said in list(self.messages) if "STATUS" in said]

    @property
    def journal(self) -> str:
        """What the supervisor wrote to stderr so far."""
        return (self.folder / "journal").read_text(errors="replace")

    @property
    def state(self) -> RunState:
        """state.json now."""
        return record.load_state((self.folder / "run" / "state.json").read_text())

    def said(self, assignment: str) -> float | None:
        """When an assignment was sent (monotonic), None if it was not."""
        name, _, value = assignment.partition("=")
        return next((at for at, said in list(self.messages) if said.get(name) == value), None)

    def wait_for(self, what: Callable[[], object]) -> None:
        """Wait until something holds."""
        end = time.monotonic() + PATIENCE_S
        while not what():
            assert time.monotonic() < end, f"{self.statuses}\n{self.journal}"
            time.sleep(0.01)

    def wait_status(self, text: str) -> None:
        """Wait until a STATUS contains this."""
        self.wait_for(lambda: any(text in status for status in self.statuses))

    def wait_ready(self) -> "Bench":
        """Wait for READY=1."""
        self.wait_for(lambda: self.said("READY=1") or self._ended())
        assert self.said("READY=1"), f"{self.statuses}\n{self.journal}"
        return self

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the supervisor."""
        os.kill(self.pid, number)

    def end(self) -> int:
        """Wait for the supervisor's own end: its exit status."""
        assert self.process is not None
        return self.process.wait(PATIENCE_S)

    def stop(self) -> int:
        """TERM, and wait."""
        self.signal(signal.SIGTERM)
        return self.end()

    def _ended(self) -> bool:
        assert self.process is not None
        return self.process.poll() is not None


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    """A supervisor's surroundings; whatever is still there at the end of the test is ended."""
    port = ports.unused()
    instance = Instance(
        name="server", role=Role.SERVER, unit="dsv4-server.service", argv=(), environment=(), host="127.0.0.1",
        port=port, rendezvous_port=port + 1, tp=1, gpus=(), gpu_uuids=(), model="some/model", served_model_name="dsv4",
        context_length=None, user=None, api_key_file=None, secrets_file=None, limits=Limits(), digest="d1",
    )  # fmt: skip
    for folder in ("run", "lib/starts/server"):
        (tmp_path / folder).mkdir(parents=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        environment = {
            **os.environ,
            "NOTIFY_SOCKET": str(tmp_path / "notify"),
            "RUNTIME_DIRECTORY": str(tmp_path / "run"),
            "STATE_DIRECTORY": str(tmp_path / "lib/starts/server"),
            "DSV4CTL_TEST": str(tmp_path),
        }
        made = Bench(folder=tmp_path, instance=instance, environment=environment)
        listening = threading.Thread(target=_listen, args=(systemd, made.messages), daemon=True)
        listening.start()
        yield made
        _end(made)
        systemd.shutdown(socket.SHUT_RDWR)
        listening.join()


@contextlib.contextmanager
def unit_cgroup(unit: str) -> Iterator[tuple[Path, str]]:
    """A cgroup as systemd makes it for a unit, below the one that this test runs in: its folder, and its path."""
    here = procs.own_cgroup().rstrip("/")
    parent = procs.cgroup_root() / here[1:] / f"dsv4-test-{uuid.uuid4().hex[:8]}"
    try:
        (parent / unit).mkdir(parents=True)
    except OSError as error:
        pytest.skip(f"cannot make a cgroup: {error}")
    try:
        yield parent / unit, f"{here}/{parent.name}/{unit}"
    finally:
        for folder in (parent / unit, parent):
            _remove(folder)


def _remove(cgroup: Path) -> None:
    for _ in range(200):
        with contextlib.suppress(OSError):
            cgroup.rmdir()
            return
        time.sleep(0.01)


def _listen(systemd: socket.socket, messages: list[tuple[float, dict[str, str]]]) -> None:
    while text := systemd.recv(65536):
        at = time.monotonic()
        messages.append((at, dict(line.split("=", 1) for line in text.decode().splitlines())))


def _end(made: Bench) -> None:
    """End the supervisor, and everything that carries this test's mark in its environment."""
    if made.process is not None:
        made.process.kill()
        made.process.wait()
    for pid in marked(made.folder):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def marked(folder: Path) -> list[int]:
    """The processes that were started with this test's environment."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdecimal() and f"DSV4CTL_TEST={folder}".encode() in (entry / "environ").read_bytes():
                found.append(int(entry.name))
    return found
