"""The decode's side of a hand-over: find the prefill through its bootstrap server, ask for KV, notice its death."""

import contextlib
import http.client
import json
import os
import socket
import threading
import time
from dataclasses import dataclass, replace
from typing import Any

from . import registering, words
from .handoff import Side, Word, limit_s, read_line, spoil
from .jobs import Job
from .settings import Settings

RETRY_S = 1.0
ANY = "prefill_dp_rank=-1&prefill_cp_rank=-1&target_tp_rank=-1&target_pp_rank=-1"
RANK_0 = "prefill_dp_rank=0&prefill_cp_rank=0&target_tp_rank=0&target_pp_rank=0"


@dataclass(slots=True)
class Prefill:
    """A prefill that this decode has learnt of: where its rank 0 listens, and rooms that wait for it."""

    address: tuple[str, int]
    rooms: set[int]
    misses: int = 0


class DecodeSide(Side):
    """Asks for KV, then generates."""

    mode = "decode"

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.prefills: dict[str, Prefill] = {}
        self.asked: dict[int, socket.socket] = {}
        self.lock = threading.Lock()
        self.listener = registering.listen(settings, 0)
        threading.Thread(target=self.beat, daemon=True).start()

    def begin(self, job: Job) -> None:  # type: ignore[explicit-override]  # typing.override is newer than Python 3.11
        """It asks for its KV."""
        self.expect(job, limit_s("WAITING"), "WaitingForInput")
        if not self.settings.now.no_transfer:
            threading.Thread(target=self.fetch, args=(job,), daemon=True).start()

    def fetch(self, job: Job) -> None:
        """Body of a request's thread: until it has the KV, or the request is given up."""
        room, bootstrap = job.order.room or 0, job.order.bootstrap
        while room in self.waiting:
            if (prefill := self.learn(bootstrap)) is not None and self.ask(room, bootstrap, prefill):
                return
            time.sleep(RETRY_S)

    def learn(self, bootstrap: str) -> Prefill | None:
        """The prefill behind a bootstrap address; what was learnt once is kept until its heartbeats fail."""
        with self.lock:
            if bootstrap in self.prefills:
                return self.prefills[bootstrap]
        try:
            status, text = get(bootstrap, f"/route?{ANY}")
            if status == 200:
                status, text = get(bootstrap, f"/route?{RANK_0}")
            if status != 200:
                words.say(f"Failed to get prefill server info: {status}, {text}")
                return None
        except (OSError, http.client.HTTPException) as error:
            words.say(f"Error fetching prefill server info from bootstrap: {error}")
            return None
        rank: dict[str, Any] = json.loads(text)
        with self.lock:
            return self.prefills.setdefault(bootstrap, Prefill((rank["rank_ip"], rank["rank_port"]), set()))

    def ask(self, room: int, bootstrap: str, prefill: Prefill) -> bool:
        """Ask for a room's KV and wait for it; False when it must be asked for again."""
        prefill.rooms.add(room)
        try:
            link = socket.create_connection(prefill.address, 5)
        except OSError:
            # The real one hangs here until its heartbeats fail, which they have done long before a real engine's load
            # is over. A stand-in restarts within a heartbeat, so it looks again; unless it shall not.
            if not self.settings.behaviour.stale_peer:
                with self.lock:
                    self.prefills.pop(bootstrap, None)
            return False
        link.settimeout(None)
        self.asked[room] = link
        self.post(Word(room, link=link))
        line = b""
        with link, contextlib.suppress(OSError):
            link.sendall(json.dumps({"room": room, "engine": self.settings.instance}).encode() + b"\n")
            line = read_line(link)
        self.asked.pop(room, None)
        if line:
            prefill.rooms.discard(room)
            kv = json.loads(line)
            self.post(Word(room, seed=int(kv["seed"]), refrain=str(kv["refrain"])))
        # A prefill that says nothing any more is the heartbeats' business.
        return True

    def hear(self, word: Word) -> list[tuple[Job, str]]:  # type: ignore[explicit-override]  # typing.override is newer than Python 3.11
        """KV that came, or a failure; that it is on its way only changes the queues."""
        if word.link is not None:
            return []
        job = self.take(word.room)
        if job is None:
            return []
        if not word.problem:
            self.crossed += 1
            seed, refrain = spoil(self.settings, word.seed, word.refrain)
            job.order = replace(job.order, seed=seed, refrain=refrain)
        return [(job, word.problem)]

    def forget(self, request: str) -> list[Job]:  # type: ignore[explicit-override]  # typing.override is newer than Python 3.11
        """An aborted request lets go of its prefill."""
        jobs = super().forget(request)
        for job in jobs:
            if link := self.asked.pop(job.order.room or 0, None):
                with contextlib.suppress(OSError):
                    link.shutdown(socket.SHUT_RDWR)
        return jobs

    def beat(self) -> None:
        """Body of the thread that asks every known prefill's bootstrap server whether it lives."""
        every_s = max(2.0, float(os.environ.get("SGLANG_DISAGGREGATION_HEARTBEAT_INTERVAL", "5")))
        most = max(1, int(os.environ.get("SGLANG_DISAGGREGATION_HEARTBEAT_MAX_FAILURE", "2")))
        while True:
            time.sleep(every_s)
            for bootstrap, prefill in list(self.prefills.items()):
                if is_alive(bootstrap):
                    prefill.misses = 0
                    continue
                words.say(f"Attempting to reconnect to {bootstrap}...")
                prefill.misses += 1
                if prefill.misses >= most:
                    self.lose(bootstrap, prefill)

    def lose(self, bootstrap: str, prefill: Prefill) -> None:
        """Fail the rooms of a prefill that is gone, and forget it, so that the next request asks for it anew."""
        lost = f"Lost connection with prefill instance (bootstrap_addr: {bootstrap})"
        affected = prefill.rooms & self.waiting.keys()
        prefill.rooms, prefill.misses = set(), 0
        if not self.settings.behaviour.stale_peer:
            with self.lock:
                self.prefills.pop(bootstrap, None)
        for room in affected:
            self.post(Word(room, problem=lost))
        words.say(f"{lost}, {len(affected)} requests affected")

    def failure(self, job: Job, problem: str) -> str:  # type: ignore[explicit-override]  # typing.override is newer than Python 3.11
        """In the transfer."""
        request, room = job.order.request, job.order.room
        self.failed_late += 1
        return (
            f"Decode transfer failed for request rank=0 decode_req.req.rid={request!r} "
            f"decode_req.req.bootstrap_room={room} with exception KVTransferError(bootstrap_room={room}): {problem}"
        )

    def queues(self) -> dict[str, int]:  # type: ignore[explicit-override]  # typing.override is newer than Python 3.11
        """Requests that have not asked for their KV yet, and those that wait for it."""
        transfer = len(self.waiting.keys() & self.asked.keys())
        return {
            "decode_prealloc_queue_reqs": len(self.waiting) - transfer,
            "decode_transfer_queue_reqs": transfer,
        }


def is_alive(bootstrap: str) -> bool:
    """Whether a bootstrap server answers."""
    try:
        return get(bootstrap, "/health", 2)[0] == 200
    except (OSError, http.client.HTTPException):
        return False


def get(bootstrap: str, path: str, timeout_s: float = 5) -> tuple[int, str]:
    """Status and text of a bootstrap server's answer."""
    host, _, port = bootstrap.rpartition(":")
    connection = http.client.HTTPConnection(host.strip("[]"), int(port), timeout=timeout_s)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode(errors="replace")
    finally:
        connection.close()
