"""One scheduler process: import, title, load, then the loop that makes tokens (rank 0) or waits (the other ranks)."""

import contextlib
import json
import mmap
import os
import select
import signal
import socket
import time
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from . import ledger, messages, misdeeds, phases, titles, words
from .messages import Abort, AskState, Flush, Generate, Output, Pipe, Shutdown
from .settings import Settings

SEGMENT_BYTES = 16 * 1024 + 12
DECODE_LOG_EVERY = 40


def main(settings: Settings, rank: int, ready: Pipe, requests: Pipe | None, outputs: Pipe) -> None:
    """Entry of the spawned process."""
    time.sleep(settings.behaviour.import_s)
    misdeeds.halfway(settings, "import", rank)
    # Only now: a parent that died during the imports has left an orphan.
    titles.die_with_parent()
    titles.retitle("sglang::scheduler" + (f"_TP{rank}" if settings.tp > 1 else ""))
    prefix = f" TP{rank}" if settings.tp > 1 else ""
    try:
        loading = phases.load(settings, rank)
        if not rank:
            misdeeds.leave_children(settings)
        ready.send({"status": "ready", "tokens": loading.figures.tokens, "seconds": loading.seconds})
        Scheduler(loading, requests, outputs).run()
        ledger.release(loading.gpu)
    except Exception:
        # Whatever ends a scheduler is logged and told to the server.
        words.say(f"Scheduler hit an exception: {misdeeds.trace()}", prefix)
        _tell(settings)


def _tell(settings: Settings) -> None:
    """SIGQUIT to the server; the real engine sends it to whoever is its parent by then, be it pid 1."""
    if os.getppid() == settings.pid:
        os.kill(settings.pid, signal.SIGQUIT)


@dataclass(slots=True)
class Job:
    """A request on its way."""

    order: Generate
    done: int = 0


@dataclass(slots=True)
class Scheduler:
    """The loop of one rank after the load."""

    loading: phases.Load
    requests: Pipe | None
    outputs: Pipe
    running: dict[str, Job] = field(default_factory=dict)
    waiting: deque[Job] = field(default_factory=deque)
    steps: int = 0
    made: int = 0
    segment: mmap.mmap | None = None

    @property
    def settings(self) -> Settings:
        """The server's settings."""
        return self.loading.settings

    def run(self) -> None:
        """Serve until Shutdown; raises RuntimeError when a peer is gone."""
        self.tell_load()
        step = time.monotonic()
        while True:
            wait_s = max(0.0, step - time.monotonic()) if self.running else None
            watched: list[Any] = [*self.loading.peers, *([] if self.requests is None else [self.requests])]
            readable, _, _ = select.select(watched, [], [], wait_s)
            if any(_is_over(peer) for peer in self.loading.peers if peer in readable):
                return
            if self.requests is not None and self.requests in readable and not self.obey(self.requests.recv()):
                return
            if self.running and time.monotonic() >= step:
                step = time.monotonic() + self.settings.behaviour.token_s
                self.generate()

    def obey(self, message: object) -> bool:
        """Carry out what the server asks for; False after Shutdown."""
        match message:
            case Generate():
                self.admit(message)
            case Abort(request):
                self.abort(request)
            case AskState(request):
                self.outputs.send(Output(request, value=self.state()))
            case Flush(request):
                self.loading.say("Cache flushed successfully!")
                self.outputs.send(Output(request, value=True))
            case Shutdown():
                for peer in self.loading.peers:
                    peer.sendall(b"q")
                return False
        return True

    def admit(self, order: Generate) -> None:
        """Take a request in, or queue it."""
        if order.purpose == messages.WARMUP:
            misdeeds.halfway(self.settings, "warmup", self.loading.rank)
        self.waiting.append(Job(order))
        self.fill()
        self.loading.say(
            f"Prefill batch, #new-seq: 1, #new-token: {order.prompt_tokens}, #cached-token: 0, token usage: 0.00, "
            f"#running-req: {len(self.running) - 1}, #queue-req: {len(self.waiting)}, #pending-token: 0, "
            f"{self.graph_words()}, input throughput (token/s): {order.prompt_tokens / 0.05:.2f}"
        )

    def fill(self) -> None:
        """Start waiting requests while there is room."""
        while self.waiting and len(self.running) < self.loading.figures.running:
            job = self.waiting.popleft()
            self.running[job.order.request] = job
        self.tell_load()

    def abort(self, request: str) -> None:
        """End one request, or all when it is ''."""
        for job in [*self.running.values(), *self.waiting]:
            if request in ("", job.order.request):
                self.running.pop(job.order.request, None)
                if job in self.waiting:
                    self.waiting.remove(job)
                self.outputs.send(Output(job.order.request, finish="abort"))
        self.fill()

    def generate(self) -> None:
        """One token for every running request that is not held up."""
        for job in list(self.running.values()):
            if not self.held(job):
                self.advance(job)
        self.steps += 1
        if self.steps % DECODE_LOG_EVERY == 0:
            self.loading.say(
                f"Decode batch, #running-req: {len(self.running)}, #token: {self.used()}, token usage: "
                f"{self.used() / self.loading.figures.tokens:.2f}, {self.graph_words()}, "
                f"gen throughput (token/s): {self.throughput():.2f}, #queue-req: {len(self.waiting)}"
            )
        self.tell_load()

    def held(self, job: Job) -> bool:
        """Whether the behaviour keeps a user's request from going on."""
        asked = self.settings.behaviour
        too_early = time.monotonic() < self.settings.started + asked.generation_works_after_s
        return job.order.purpose == messages.USER and (asked.health_but_no_generation or too_early)

    def advance(self, job: Job) -> None:
        """One token of one request."""
        order = job.order
        job.done += 1
        self.made += 1
        over = job.done >= order.tokens
        token = (order.seed + 7919 * job.done) % 512
        self.outputs.send(Output(order.request, token=token, finish="length" if over else ""))
        if over:
            del self.running[order.request]
            self.fill()

    def graph_words(self) -> str:
        """How a batch line says whether a graph ran."""
        return f"{'cuda' if self.settings.on_gpu else 'cpu'} graph: {bool(self.loading.figures.graphs_gib)}"

    def used(self) -> int:
        """Tokens in the pool."""
        return sum(job.order.prompt_tokens + job.done for job in self.running.values())

    def throughput(self) -> float:
        """Tokens per second now."""
        return len(self.running) / self.settings.behaviour.token_s if self.settings.behaviour.token_s else 0.0

    def state(self) -> dict[str, Any]:
        """What /server_info tells of this scheduler."""
        figure = self.loading.figures
        return {
            "memory_usage": {
                "weight": round(figure.weights_gib, 3),
                "kvcache": round(figure.pool_gib, 3),
                "startup_available": round(figure.free_after_graphs, 3),
                "token_capacity": figure.tokens,
                "token_capacity_swa": None,
                "graph": {"prefill": 0.0, "decode": figure.graphs_gib},
            },
            "effective_max_running_requests_per_dp": figure.running,
            "last_gen_throughput": self.throughput(),
        }

    def tell_load(self) -> None:
        """Write the load where the server reads it without asking; rank 0 only."""
        if self.loading.rank:
            return
        figure = self.loading.figures
        load = {
            "server": self.settings.pid,
            "num_running_reqs": len(self.running),
            "num_waiting_reqs": len(self.waiting),
            "num_used_tokens": self.used(),
            "max_total_num_tokens": figure.tokens,
            "max_running_requests": figure.running,
            "gen_throughput": self.throughput(),
            "generated": self.made,
            "weight_gb": round(figure.weights_gib, 3),
            "kv_cache_gb": round(figure.pool_gib, 3),
            "graph_gb": figure.graphs_gib,
            "available_gb": round(figure.free_after_graphs, 3),
        }
        if self.segment is None:
            self.segment = _segment(self.settings.loads_file)
        self.segment[:] = json.dumps(load).encode().ljust(SEGMENT_BYTES, b"\0")


def _segment(path: Path) -> mmap.mmap:
    """The shared segment, mapped for life as by the real engine."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    os.truncate(descriptor, SEGMENT_BYTES)
    with contextlib.closing(os.fdopen(descriptor, "r+b", buffering=0)) as file:
        return mmap.mmap(file.fileno(), SEGMENT_BYTES)


def _is_over(peer: socket.socket) -> bool:
    """Whether rank 0 passes a Shutdown on. A peer that only closes its end is gone, and no rank goes on without it."""
    if not peer.recv(1):
        raise RuntimeError("[../gloo/transport/tcp/pair.cc:538] Connection closed by peer [127.0.0.1]")
    return True
