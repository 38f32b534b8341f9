"""One scheduler process: import, title, load, then the loop that makes tokens (rank 0) or waits (the other ranks)."""

import os
import select
import signal
import socket
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from . import handoff, ledger, messages, misdeeds, phases, receiving, registering, shown, titles, words
from .handoff import Side
from .jobs import Job
from .messages import Abort, AskState, Flush, Generate, Output, Pipe, Shutdown
from .settings import Settings

DECODE_LOG_EVERY = 40


@dataclass(frozen=True, slots=True)
class Pipes:
    """What connects a scheduler with its server and the detokenizer. Only rank 0 has `requests`."""

    ready: Pipe
    requests: Pipe | None
    outputs: Pipe


def main(settings: Settings, rank: int, pipes: Pipes) -> None:
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
            misdeeds.get_stuck(settings)
        side = None if rank else handoff.side_of(settings, receiving.DecodeSide)
        registering.register(settings, rank)
        pipes.ready.send({"status": "ready", "tokens": loading.figures.tokens, "seconds": loading.seconds})
        Scheduler(loading, pipes.requests, pipes.outputs, side).run()
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
class Scheduler:
    """The loop of one rank after the load. `side` is that of rank 0 in a pair."""

    loading: phases.Load
    requests: Pipe | None
    outputs: Pipe
    side: Side | None = None
    running: dict[str, Job] = field(default_factory=dict)
    waiting: deque[Job] = field(default_factory=deque)
    steps: int = 0
    counters: shown.Counters = field(default_factory=shown.Counters)
    segment: shown.Segment | None = None

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
            asked = [one for one in (self.requests, self.side) if one is not None]
            watched: list[Any] = [*self.loading.peers, *asked]
            readable, _, _ = select.select(watched, [], [], wait_s)
            if any(_is_over(peer) for peer in self.loading.peers if peer in readable):
                return
            if self.requests is not None and self.requests in readable and not self.obey(self.requests.recv()):
                return
            if self.side is not None and self.side in readable:
                self.meet(self.side)
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
                self.outputs.send(Output(request, value=shown.state(self.loading.figures, self.throughput())))
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
        job = Job(order)
        if self.side is None or order.is_fake:
            self.take(job)
        elif order.room is None:
            self.refuse(job)
        else:
            self.side.begin(job)
            self.tell_load()

    def take(self, job: Job) -> None:
        """Start a request that needs nothing from the other side, or has it."""
        order = job.order
        self.waiting.append(job)
        self.fill()
        if self.settings.mode == "decode":
            return
        self.counters.computed += order.prompt_tokens
        pair = "#bootstrap-req: 0, #inflight-req: 1, #optimistic-req: 0, " if self.side else ""
        self.loading.say(
            f"Prefill batch, #new-seq: 1, #new-token: {order.prompt_tokens}, #cached-token: 0, token usage: 0.00, "
            f"#running-req: {len(self.running) - 1}, #queue-req: {len(self.waiting)}, #pending-token: 0, {pair}"
            f"{self.graph_words()}, input throughput (token/s): {order.prompt_tokens / 0.05:.2f}"
        )

    def refuse(self, job: Job) -> None:
        """A request that no router has given a room."""
        request = job.order.request
        if self.settings.now.die_on_bare_generate:
            raise misdeeds.SchedulerFailed("AssertionError: bootstrap_room is None")
        problem = f"Invalid request: Disaggregated request received without bootstrap room id. req.rid={request!r}"
        self.loading.say(problem)
        self.outputs.send(Output(request, finish="abort", problem=problem, status=400))

    def meet(self, side: Side) -> None:
        """What the other side makes possible, or impossible."""
        for job, problem in side.met():
            if problem:
                self.fail(side, job, problem)
            elif job.is_over:
                self.end(job)
            else:
                self.take(job)
        self.tell_load()

    def fail(self, side: Side, job: Job, problem: str) -> None:
        """End a request that does not cross."""
        text = side.failure(job, problem)
        self.loading.say(text)
        self.outputs.send(Output(job.order.request, finish="abort", problem=text, status=500))

    def fill(self) -> None:
        """Start waiting requests while there is room."""
        while self.waiting and len(self.running) < self.loading.figures.running:
            job = self.waiting.popleft()
            self.running[job.order.request] = job
        self.tell_load()

    def abort(self, request: str) -> None:
        """End one request, or all when it is ''."""
        away = self.side.forget(request) if self.side else []
        for job in [*self.running.values(), *self.waiting, *away]:
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
        asked = self.settings.now
        too_early = time.monotonic() < self.settings.started + asked.generation_works_after_s
        hung = asked.health_but_no_generation or (asked.decode_never_answers and self.settings.mode == "decode")
        return job.order.purpose == messages.USER and (hung or too_early)

    def advance(self, job: Job) -> None:
        """One token of one request."""
        job.done += 1
        self.counters.stepped += 1
        if job.is_over:
            del self.running[job.order.request]
            self.end(job)
        else:
            self.outputs.send(Output(job.order.request, token=job.token(), text=job.text()))

    def end(self, job: Job) -> None:
        """A request has its last token; a prefill hands over before it says so."""
        problem = self.side.leave(job) if self.side else ""
        if problem and self.side:
            self.fail(self.side, job, problem)
        elif problem is not None:
            self.count(job)
            self.outputs.send(Output(job.order.request, token=job.token(), text=job.text(), finish="length"))
            self.fill()

    def count(self, job: Job) -> None:
        """A request is finished."""
        if job.order.purpose != messages.HEALTH:
            self.counters.requests += 1
            self.counters.prompt_tokens += job.order.prompt_tokens
            self.counters.generated += job.done

    def graph_words(self) -> str:
        """How a batch line says whether a graph ran."""
        return f"{'cuda' if self.settings.on_gpu else 'cpu'} graph: {bool(self.loading.figures.graphs_gib)}"

    def used(self) -> int:
        """Tokens in the pool."""
        return sum(job.order.prompt_tokens + job.done for job in self.running.values())

    def throughput(self) -> float:
        """Tokens per second now."""
        return len(self.running) / self.settings.behaviour.token_s if self.settings.behaviour.token_s else 0.0

    def tell_load(self) -> None:
        """Write the load where the server reads it without asking; rank 0 only."""
        if self.loading.rank:
            return
        if self.segment is None:
            self.segment = shown.Segment(self.settings.loads_file, self.settings.pid, self.loading.figures)
        waiting = len(self.waiting) + (self.side.away() if self.side else 0)
        load = shown.Load(running=len(self.running), waiting=waiting, used=self.used(), throughput=self.throughput())
        self.segment.tell(load, self.counters, self.side)


def _is_over(peer: socket.socket) -> bool:
    """Whether rank 0 passes a Shutdown on. A peer that only closes its end is gone, and no rank goes on without it."""
    if not peer.recv(1):
        raise RuntimeError("[../gloo/transport/tcp/pair.cc:538] Connection closed by peer [127.0.0.1]")
    return True
