"""The server between its HTTP threads and its children: requests under way, status, and what a crash or a stop does."""

import contextlib
import json
import os
import queue
import signal
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from . import messages, tree, words
from .launch import Children
from .messages import Abort, AskState, Flush, Generate, Output, Shutdown
from .settings import Settings

SCHEDULER_EXIT_S = 15.0
DISCONNECT_LOOK_S = 0.25
HEALTH_CHECK = "HEALTH_CHECK_"


class Status(StrEnum):
    """The real engine's own words."""

    STARTING = "Starting"
    UP = "Up"
    UNHEALTHY = "UnHealthy"


class ClientGone(Exception):
    """The client closed its connection before the answer was there."""


@dataclass(slots=True, kw_only=True)
class Engine:
    """One server. `answering` is cleared while the real engine's event loop would be blocked."""

    settings: Settings
    children: Children
    seconds: dict[str, float]
    tokens: int
    status: Status = Status.STARTING
    draining: bool = False
    loop_began: float | None = None
    ready_at: float | None = None
    last_word: float = 0.0
    answering: threading.Event = field(default_factory=threading.Event)
    open: dict[str, queue.SimpleQueue[Output]] = field(default_factory=dict)
    asked: dict[str, queue.SimpleQueue[Output]] = field(default_factory=dict)
    sending: threading.Lock = field(default_factory=threading.Lock)
    wake_reader: int = -1
    wake_writer: int = -1
    calls: set[int] = field(default_factory=set)
    arrived: dict[tuple[str, str], int] = field(default_factory=dict)

    @property
    def open_calls(self) -> int:
        """HTTP requests that are not answered yet."""
        return len(self.calls)

    @property
    def open_requests(self) -> int:
        """Requests that are not finished, health checks aside."""
        return sum(not request.startswith(HEALTH_CHECK) for request in list(self.open))

    def load(self) -> dict[str, Any]:
        """What rank 0 has last written; a segment that is being written is read again."""
        for _ in range(50):
            try:
                return dict(json.loads(self.settings.loads_file.read_bytes().rstrip(b"\0")))
            except ValueError:
                time.sleep(0.002)
        raise OSError("the load segment stays unreadable")

    def tell(self, message: object) -> None:
        """Send to rank 0; that it is gone is the watchdog's business."""
        with self.sending, contextlib.suppress(OSError):
            self.children.orders.send(message)

    def hear(self, output: Output) -> None:
        """Hand a message of the detokenizer to whom it is for."""
        self.last_word = time.time()
        if waiting := self.asked.pop(output.request, None):
            waiting.put(output)
        elif (stream := self.open.get(output.request)) is not None:
            stream.put(output)
            if output.finish:
                del self.open[output.request]

    def generate(self, order: Generate, client_here: Callable[[], bool]) -> Iterator[Output]:
        """Every output of a request; raises ClientGone. The request stays open until rank 0 has ended it."""
        self.begin_loop()
        stream: queue.SimpleQueue[Output] = queue.SimpleQueue()
        self.open[order.request] = stream
        self.tell(order)
        finished = False
        while not finished:
            try:
                output = self.next(stream, client_here)
            except ClientGone:
                self.tell(Abort(order.request))
                raise
            finished = bool(output.finish)
            yield output

    def ask(self, message: AskState | Flush, client_here: Callable[[], bool]) -> Any:  # noqa: ANN401 -- JSON
        """Ask rank 0 and wait for its answer, for ever if it hangs; raises ClientGone."""
        self.begin_loop()
        answer: queue.SimpleQueue[Output] = queue.SimpleQueue()
        self.asked[message.request] = answer
        self.tell(message)
        return self.next(answer, client_here).value

    def next(self, stream: queue.SimpleQueue[Output], client_here: Callable[[], bool]) -> Output:
        """The next output; raises ClientGone."""
        while True:
            with contextlib.suppress(queue.Empty):
                output = stream.get(timeout=DISCONNECT_LOOK_S)
                self.answering.wait()
                return output
            if not client_here():
                raise ClientGone

    def begin_loop(self) -> None:
        """With the first request the real engine installs its signal handlers and starts to look for a stop."""
        if self.loop_began is None:
            self.loop_began = time.monotonic()

    def health(self, path: str) -> int:
        """HTTP status of /health and /health_generate: never faster than 1 s, 503 after 20 s without any word."""
        if self.draining:
            words.say("Health check request received during shutdown. Returning 503.")
            return 503
        if self.status is Status.STARTING:
            return 503
        if path == "/health" and not _switch("SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION"):
            return 200
        return self.health_by_token(hangs=path != "/health" and self.settings.now.health_but_no_generation)

    def health_by_token(self, *, hangs: bool) -> int:
        """Inject a request of one token; any word from the schedulers counts, unless it shall never come."""
        limit_s = int(os.environ.get("SGLANG_HEALTH_CHECK_TIMEOUT", "20"))
        self.begin_loop()
        request, began = f"{HEALTH_CHECK}{uuid.uuid4().hex}", time.time()
        self.open[request] = queue.SimpleQueue()
        self.tell(Generate(request, 1, 1, 0, messages.HEALTH))
        while time.time() < began + limit_s:
            time.sleep(1)
            self.answering.wait()
            if self.last_word > began and not hangs:
                self.open.pop(request, None)
                self.status = Status.UP
                return 200
        words.say(
            f"Health check failed. Server couldn't get a response from detokenizer for last {limit_s} seconds. "
            f"tic start time: {_clock(began)}. last_heartbeat time: {_clock(self.last_word)}"
        )
        self.open.pop(request, None)
        self.status = Status.UNHEALTHY
        return 503

    def drained(self) -> bool:
        """Whether a draining server may end now."""
        if self.status is Status.UNHEALTHY:
            words.say("Signal SIGTERM received while health check failed. Force exiting.")
            self.diagnose()
            return True
        if os.environ.get("SGL_FORCE_SHUTDOWN", "").lower() in ("1", "true"):
            words.say("Signal SIGTERM received while force shutdown flag set. Force exiting.")
            return True
        requests = list(self.open)
        words.say(
            f"Gracefully exiting... Remaining number of requests {len(requests)}. "
            f"Remaining requests remaining_rids={requests}."
        )
        return not requests

    def end_schedulers(self) -> None:
        """Ask the ranks to end, wait, and kill what is left of the tree."""
        self.answering.clear()
        self.tell(Shutdown())
        deadline = time.monotonic() + SCHEDULER_EXIT_S
        while time.monotonic() < deadline and self.living():
            time.sleep(0.02)
        if left := self.living():
            words.say(f"Schedulers still alive 15s after ShutdownReq, killing them before they released: {left}")
        words.say(f"kill_process_tree called: parent_pid={os.getpid()}, include_parent=False, pid={os.getpid()}")
        tree.kill_below()
        self.answering.set()

    def living(self) -> list[int]:
        """Pids of the schedulers that still run."""
        return [process.pid or 0 for process in self.children.schedulers if process.is_alive()]

    def look(self) -> None:
        """The watchdog: a child that ended by a signal or with an error makes us send ourselves SIGQUIT."""
        for name, process in self.children.named:
            if not process.is_alive() and process.exitcode:
                words.say(
                    f"Subprocess {name} (pid={process.pid}) crashed with exit code {process.exitcode}. "
                    "Triggering SIGQUIT for cleanup..."
                )
                os.kill(os.getpid(), signal.SIGQUIT)
                return

    def crash(self) -> None:
        """The end after SIGQUIT: diagnostics with the event loop blocked, then SIGKILL to the tree and ourselves."""
        words.say("SIGQUIT received. signum=None, frame=None. It usually means one child failed.")
        self.diagnose()
        words.say(f"kill_process_tree called: parent_pid={os.getpid()}, include_parent=True, pid={os.getpid()}")
        tree.kill_all()

    def diagnose(self) -> None:
        """What the real engine does before it dies; nobody is answered meanwhile."""
        dumps, cores = _switch("SGLANG_PYSPY_DUMP_BEFORE_CRASH"), _switch("SGLANG_CUDA_COREDUMP_BEFORE_CRASH")
        if not (dumps or cores):
            return
        self.answering.clear()
        words.say("Sleeping 5 seconds before crash diagnostics to let GPU activity settle.")
        time.sleep(self.settings.behaviour.crash_settle_s)
        if not (left := self.living()):
            words.say("No live scheduler processes found; skipping py-spy and CUDA coredump.")
            return
        for pid in left if dumps else ():
            words.say(f"Pyspy dump for PID {pid} (py-spy dump --native --pid {pid}):\nThe stand-in engine has none.")
        wait_s = float(os.environ.get("SGLANG_CUDA_COREDUMP_BEFORE_CRASH_WAIT_SECS", "60"))
        if cores and wait_s > 0:
            words.say(f"Waiting {wait_s:.1f} seconds for CUDA coredumps before exiting.")
            time.sleep(wait_s)
        self.answering.set()


def _switch(name: str) -> bool:
    """A SGLANG_* switch that is on unless it is turned off."""
    return os.environ.get(name, "1").lower() in ("1", "true", "yes", "y")


def _clock(at: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(at))
