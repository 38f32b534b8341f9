"""The main process: start the children, bind, warm up, serve, and end as the real engine ends."""

import contextlib
import os
import resource
import select
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

from . import bootstrap, launch, misdeeds, settings, tree, warmup, web, words
from .engine import Engine
from .settings import Settings

WATCHDOG_S = 1.0
BIND_FAILED = 3


def serve(arguments: Sequence[str]) -> None:
    """Everything between the command line and the end; leaves by sys.exit or by a signal."""
    told = settings.read(arguments)
    # Kept for the life of the process.
    _heap = misdeeds.at_start(told)
    if told.behaviour.ignore_sigterm:
        # A handler and not SIG_IGN, which every child would inherit.
        signal.signal(signal.SIGTERM, lambda _signal, _frame: None)
    time.sleep(told.behaviour.import_s)
    try:
        run(told)
    finally:
        tree.kill_below()


def run(told: Settings) -> None:
    """One server, from its first log line to its last."""
    began = time.monotonic()
    _raise_limits()
    words.say(f"server_args={told.values!r}")
    _leave_files()
    bootstrap.start(told)
    children, said = launch.start(told)
    seconds = {**said[0]["seconds"], "all": time.monotonic() - began}
    engine = Engine(settings=told, children=children, seconds=seconds, tokens=said[0]["tokens"])
    engine.answering.set()
    words.say(
        f"Engine startup timings (s): load_weight={seconds['weights']:.2f}, "
        f"kv_cache_allocation={seconds['pools']:.2f}, scheduler_e2e={sum(said[0]['seconds'].values()):.2f}, "
        f"cuda_graph={{prefill=0.00, decode={seconds['graphs']:.2f}}}, tokenizer_e2e={seconds['all']:.2f}"
    )
    Loop(engine).run()
    sys.exit(0)


def _raise_limits() -> None:
    """The soft limit of open files goes up as far as it may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 65535
    if soft < wanted:
        with contextlib.suppress(ValueError, OSError):
            highest = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
            resource.setrlimit(resource.RLIMIT_NOFILE, (highest, hard))


def _leave_files() -> None:
    """The entries in TMPDIR for messages between processes, which the real engine leaves behind at every end."""
    import tempfile  # noqa: PLC0415 -- only the main process needs it

    for _ in range(5):
        descriptor, _name = tempfile.mkstemp(prefix="tmp")
        os.close(descriptor)


@dataclass(slots=True)
class Loop:
    """The main thread while serving: what the real engine's event loop does."""

    engine: Engine
    stop_asked: bool = False
    quit_asked: bool = False
    due: dict[str, float] = field(default_factory=dict)
    threads: list[threading.Thread] = field(default_factory=list)

    def run(self) -> None:
        """Serve until a stop; returns when everything is closed."""
        with self.signals():
            site = self.open()
            while not self.over(site):
                self.turn()
            self.close(site)

    @contextlib.contextmanager
    def signals(self) -> Iterator[None]:
        """Signals become bytes in a pipe that the loop waits for."""
        engine = self.engine
        engine.wake_reader, engine.wake_writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(engine.wake_writer, warn_on_full_buffer=False)
        if not engine.settings.behaviour.ignore_sigterm:
            signal.signal(signal.SIGTERM, self.on_term)
        signal.signal(signal.SIGQUIT, self.on_quit)
        yield
        signal.set_wakeup_fd(-1)

    def on_term(self, _signal: int, _frame: FrameType | None) -> None:
        """SIGTERM: drain; before the first request the HTTP server's own handler acts, which does not."""
        if self.engine.loop_began is None:
            self.stop_asked = True
            return
        words.say("SIGTERM received. signum=None frame=None. Draining requests and shutting down...")
        # No line of the real engine's: what a test of the order of stops wants to know.
        sent = self.engine.load()["disaggregation"].get("prefill_inflight_queue_reqs", 0)
        words.say(f"stand-in: {self.engine.open_requests} requests open at SIGTERM, {sent} of them being sent")
        self.engine.draining = True

    def on_quit(self, number: int, frame: FrameType | None) -> None:
        """SIGQUIT: crash; before the first request the launch phase's handler acts."""
        if self.engine.loop_began is None:
            launch.quit_in_launch(number, frame)
        self.quit_asked = True

    def open(self) -> web.Site:
        """Bind and let the warm-up begin; ends the process with status 3 where the port is taken."""
        engine = self.engine
        told = engine.settings
        words.uvicorn(f"Started server process [{os.getpid()}]")
        words.uvicorn("Waiting for application startup.")
        time.sleep(told.behaviour.bind_late_s)
        self.threads.append(threading.Thread(target=warmup.run, args=(engine,)))
        self.threads[0].start()
        words.uvicorn("Application startup complete.")
        try:
            site = web.Site(engine)
        except web.CannotBind as error:
            words.uvicorn(str(error), "ERROR")
            words.uvicorn("Waiting for application shutdown.")
            # The warm-up goes on meanwhile, against whatever answers on that port.
            self.threads[0].join()
            words.uvicorn("Application shutdown complete.")
            tree.kill_below()
            sys.exit(BIND_FAILED)
        shown = f"[{told['host']}]" if ":" in told["host"] else told["host"]
        words.uvicorn(f"Uvicorn running on http://{shown}:{told['port']} (Press CTRL+C to quit)")
        return site

    def turn(self) -> None:
        """Wait for a signal, a message or the next thing that is due, and hand messages on."""
        wait_s = max(0.0, min(self.due.values(), default=0.0) - time.monotonic())
        texts, wake = self.engine.children.texts, self.engine.wake_reader
        watched: list[Any] = [wake, texts]
        readable, _, _ = select.select(watched, [], [], wait_s)
        if wake in readable:
            with contextlib.suppress(BlockingIOError):
                os.read(wake, 512)
        if texts in readable:
            self.hear()

    def hear(self) -> None:
        """Every message that is there; a detokenizer that is gone is the watchdog's business."""
        texts = self.engine.children.texts
        try:
            while texts.poll():
                self.engine.hear(texts.recv())
        except (EOFError, OSError):
            time.sleep(0.05)

    def over(self, site: web.Site) -> bool:
        """Do what is due; True when the server shall end."""
        if self.quit_asked:
            self.engine.crash()
        if self.is_due("watchdog", WATCHDOG_S):
            self.engine.look()
        self.misbehave(site)
        return self.stop_asked or self.drained()

    def drained(self) -> bool:
        """Whether a SIGTERM has been noticed, and nothing is left to wait for."""
        engine, asked = self.engine, self.engine.settings.behaviour
        if engine.loop_began is None or not self.is_due("drain", asked.drain_poll_s) or not engine.draining:
            return False
        if asked.join_children_forever_on_term:
            for _name, process in engine.children.named:
                process.join()
        return engine.drained()

    def is_due(self, name: str, every_s: float) -> bool:
        """Whether a repeated thing is due; the first time after `every_s`."""
        now = time.monotonic()
        if now < self.due.setdefault(name, now + every_s):
            return False
        self.due[name] = now + every_s
        return True

    def misbehave(self, site: web.Site) -> None:
        """What the behaviour asks for after so many seconds of serving."""
        asked, ready = self.engine.settings.behaviour, self.engine.ready_at
        if ready is None:
            return
        for name, after_s in (
            ("lose_port", asked.lose_port),
            ("exit", asked.exit_while_serving_after_s),
            ("abort", asked.abort_after_s),
        ):
            if after_s is None or time.monotonic() < self.due.setdefault(name, ready + after_s):
                continue
            self.due[name] = float("inf")
            match name:
                case "lose_port":
                    site.close()
                case "exit":
                    words.say("RuntimeError: the behaviour file asks for an end while serving")
                    tree.kill_below()
                    os._exit(1)
                case "abort":
                    os.abort()

    def close(self, site: web.Site) -> None:
        """The ordered end."""
        if not self.stop_asked:
            self.engine.end_schedulers()
        words.uvicorn("Shutting down")
        site.close()
        if self.engine.open_calls:
            words.uvicorn("Waiting for connections to close. (CTRL+C to force quit)")
        while self.engine.open_calls:
            time.sleep(0.05)
        words.uvicorn("Waiting for application shutdown.")
        self.threads[0].join()
        words.uvicorn("Application shutdown complete.")
        words.uvicorn(f"Finished server process [{os.getpid()}]")
        if self.stop_asked:
            # The HTTP server's own handler passes the signal on once it has shut down.
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGTERM)
