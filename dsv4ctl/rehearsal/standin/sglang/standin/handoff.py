"""The prefill's side of a hand-over, and what both sides have in common. One line of JSON each way over a socket.

A decode connects to the port of a prefill's rank 0 and says for which room it wants KV and which engine it is; when
the prefill has computed that room it answers with the KV, here what all tokens follow from, on the same connection.
"""

import contextlib
import json
import os
import queue
import random
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from . import registering, words
from .jobs import SPOILED, Job
from .settings import Settings

HELLO_S = 5.0


@dataclass(frozen=True, slots=True)
class Word:
    """What a thread tells the scheduler of a room: a link to its decode, KV, that it is sent, or what went wrong."""

    room: int
    link: socket.socket | None = None
    seed: int = 0
    refrain: str = ""
    is_sent: bool = False
    problem: str = ""


class Side:
    """A rank 0 of a pair. `waiting`: requests, by room, that cannot go on without the other side."""

    mode = ""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.waiting: dict[int, Job] = {}
        self.timers: dict[int, threading.Timer] = {}
        self.said: queue.SimpleQueue[Word] = queue.SimpleQueue()
        self.reader, self.writer = socket.socketpair()
        self.crossed = 0
        self.failed_early = 0
        self.failed_late = 0
        self.latency_ms = 0.0

    def fileno(self) -> int:
        """Readable when a thread has said something."""
        return self.reader.fileno()

    def post(self, word: Word) -> None:
        """Called by threads."""
        self.said.put(word)
        self.writer.send(b"\0")

    def expect(self, job: Job, limit_s: float, state: str) -> None:
        """Let a request wait for the other side, but not for ever."""
        room = job.order.room or 0
        self.waiting[room] = job
        self.timers[room] = threading.Timer(limit_s, self.post, (Word(room, problem=late(room, limit_s, state)),))
        self.timers[room].daemon = True
        self.timers[room].start()

    def met(self) -> list[tuple[Job, str]]:
        """Requests that can go on, or must end for the reason given, since the last call."""
        self.reader.recv(4096)
        found: list[tuple[Job, str]] = []
        with contextlib.suppress(queue.Empty):
            while True:
                found += self.hear(self.said.get_nowait())
        return found

    def hear(self, word: Word) -> list[tuple[Job, str]]:
        """What a word makes possible; each side has its own."""
        raise NotImplementedError

    def take(self, room: int) -> Job | None:
        """The request of a room, which waits no longer."""
        if timer := self.timers.pop(room, None):
            timer.cancel()
        return self.waiting.pop(room, None)

    def forget(self, request: str) -> list[Job]:
        """Requests that were aborted while they waited for the other side: one, or all when it is ''."""
        rooms = [room for room, job in self.waiting.items() if request in ("", job.order.request)]
        return [job for room in rooms if (job := self.take(room))]

    def away(self) -> int:
        """Requests that wait for the other side."""
        return len(self.waiting)

    def begin(self, job: Job) -> None:
        """A request came from the router; each side has its own first step."""
        raise NotImplementedError

    def leave(self, job: Job) -> str | None:  # noqa: ARG002 -- the prefill's side wants it
        """All tokens of a request are made: '' when it may end, None when it stays, else why it fails."""
        return ""

    def failure(self, job: Job, problem: str) -> str:
        """The real engine's words for a request that does not cross, which is counted."""
        raise NotImplementedError

    def queues(self) -> dict[str, int]:
        """Lengths of the queues that /v1/loads tells."""
        raise NotImplementedError


def spoil(settings: Settings, seed: int, refrain: str) -> tuple[int, str]:
    """What the tokens follow from, or something else if wrong tokens were asked for."""
    match settings.now.wrong_tokens:
        case "repeated":
            return SPOILED, ""
        case "other":
            return random.getrandbits(32), ""
    return seed, refrain


def late(room: int, limit_s: float, state: str) -> str:
    """The real engine's words for a room whose other side never came."""
    return f"Request {room} timed out after {limit_s:.1f}s in KVPoll.{state}"


def limit_s(name: str) -> float:
    """SGLANG_DISAGGREGATION_BOOTSTRAP_TIMEOUT or …_WAITING_TIMEOUT."""
    return float(os.environ.get(f"SGLANG_DISAGGREGATION_{name}_TIMEOUT", "300"))


class PrefillSide(Side):
    """Waits for decodes, computes, sends."""

    mode = "prefill"

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.links: dict[int, socket.socket] = {}
        self.sending: dict[int, Job] = {}
        self.sent: set[int] = set()
        self.first_peer = ""
        self.listener = registering.listen(settings, 0)
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self) -> None:
        """Body of the thread that decodes connect to."""
        while True:
            link = self.listener.accept()[0]
            with contextlib.suppress(OSError, ValueError):
                link.settimeout(HELLO_S)
                hello = json.loads(read_line(link))
                link.settimeout(None)
                if self.knows(str(hello["engine"])):
                    self.post(Word(int(hello["room"]), link=link))

    def knows(self, peer: str) -> bool:
        """Whether a decode is served; one that keeps a stale peer serves only the first engine that ever came."""
        self.first_peer = self.first_peer or peer
        if self.settings.behaviour.stale_peer and peer != self.first_peer:
            words.say(f"KV sender keeps agent {self.first_peer}; {peer} at the same address gets nothing")
            return False
        return True

    def begin(self, job: Job) -> None:  # type: ignore[explicit-override]  # typing.override is newer than Python 3.11
        """It waits for its decode."""
        room = job.order.room or 0
        self.expect(job, limit_s("BOOTSTRAP"), "Bootstrapping")
        if room in self.links:
            self.post(Word(room))

    def hear(self, word: Word) -> list[tuple[Job, str]]:  # type: ignore[explicit-override]  # typing.override is newer than Python 3.11
        """With a link to its decode a request can be computed; what it lacks may come in either order."""
        if word.is_sent:
            self.sent.add(word.room)
            return [(job, "")] if (job := self.sending.pop(word.room, None)) else []
        if word.link is not None:
            self.links[word.room] = word.link
        if not word.problem and word.room not in self.links:
            return []
        job = self.take(word.room)
        return [(job, word.problem)] if job else []

    def leave(self, job: Job) -> str | None:  # type: ignore[explicit-override]  # typing.override is newer than Python 3.11
        """Send the KV of a computed request."""
        room = job.order.room
        if room is None or room not in self.links:
            return ""
        asked = self.settings.now
        if asked.no_transfer or (asked.transfer_s and room not in self.sent):
            self.sending[room] = job
            self.send(room, asked.transfer_s)
            return None
        self.sent.discard(room)
        began = time.monotonic()
        with self.links.pop(room) as link:
            if is_gone(link):
                return f"Decode instance could be dead, remote session {room} is not alive"
            seed, refrain = spoil(self.settings, job.order.seed, job.order.refrain)
            kv = {"room": room, "seed": seed, "refrain": refrain, "engine": self.settings.instance}
            link.sendall(json.dumps(kv).encode() + b"\n")
        self.crossed += 1
        self.latency_ms = (time.monotonic() - began + asked.transfer_s) * 1000
        return ""

    def send(self, room: int, seconds: float) -> None:
        """Let the time pass that sending takes, unless nothing shall ever be sent."""
        if not self.settings.now.no_transfer:
            timer = threading.Timer(seconds, self.post, (Word(room, is_sent=True),))
            timer.daemon = True
            timer.start()

    def away(self) -> int:  # type: ignore[explicit-override]  # typing.override is newer than Python 3.11
        """Those without a decode, and those that are being sent."""
        return len(self.waiting) + len(self.sending)

    def forget(self, request: str) -> list[Job]:  # type: ignore[explicit-override]  # typing.override is newer than Python 3.11
        """An aborted request lets go of its decode."""
        rooms = [room for room, job in self.sending.items() if request in ("", job.order.request)]
        jobs = [*super().forget(request), *map(self.sending.pop, rooms)]
        for job in jobs:
            if link := self.links.pop(job.order.room or 0, None):
                link.close()
        return jobs

    def failure(self, job: Job, problem: str) -> str:  # type: ignore[explicit-override]  # typing.override is newer than Python 3.11
        """Before the transfer, or in it."""
        stage = "transfer" if job.done else "bootstrap"
        self.failed_late += bool(job.done)
        self.failed_early += not job.done
        request, room = job.order.request, job.order.room
        error = f"KVTransferError(bootstrap_room={room}): {problem}"
        return (
            f"Prefill {stage} failed for request rank=0 req.rid={request!r} req.bootstrap_room={room} "
            f"with exception {error}"
        )

    def queues(self) -> dict[str, int]:  # type: ignore[explicit-override]  # typing.override is newer than Python 3.11
        """Requests without a decode, and requests whose KV is not sent yet."""
        return {
            "prefill_bootstrap_queue_reqs": len(self.waiting),
            "prefill_inflight_queue_reqs": len(self.sending),
        }


def read_line(link: socket.socket) -> bytes:
    """One line; empty at the end of a connection."""
    with link.makefile("rb") as file:
        return file.readline()


def is_gone(link: socket.socket) -> bool:
    """Whether the other side has closed its end."""
    with contextlib.suppress(BlockingIOError):
        try:
            return not link.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except ConnectionError:
            return True
    return False


def side_of(settings: Settings, decode: Callable[[Settings], Side]) -> Side | None:
    """The side that rank 0 of a server is on; None for one that serves alone."""
    match settings.mode:
        case "prefill":
            return PrefillSide(settings)
        case "decode":
            return decode(settings)
    return None
