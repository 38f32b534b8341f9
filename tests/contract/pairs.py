"""A prefill, a decode and the real router between them, for the contract tests of a pair."""

import json
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

from dsv4ctl import pidfd, probe, procs
from dsv4ctl.clock import until
from dsv4ctl.engine.counters import Counts, parse_counts
from dsv4ctl.model import Identity
from dsv4ctl.probe import Answer
from dsv4ctl.rehearsal import router
from tests import needs
from tests.contract.engines import CLOCK, MODEL_NAME, Build, Server, free_ports, start

# The least that the engines take; so that a death is noticed soon.
HEARTBEAT = (("SGLANG_DISAGGREGATION_HEARTBEAT_INTERVAL", "2"),)
ALL_RANKS = "prefill_dp_rank=-1&prefill_cp_rank=-1&target_tp_rank=-1&target_pp_rank=-1"
# Below the ephemeral ports, and above those that the engines of the other tests have.
APART = 8_100
ROUTER_FLAGS = (
    "--health-check-endpoint /ready --health-check-interval-secs 1 --health-check-timeout-secs 3 "
    "--health-failure-threshold 2 --health-success-threshold 1 --policy round_robin --disable-circuit-breaker"
)
QUICK = {"import_s": 0.0, "load_s": 0.3, "warmup_s": 0.1, "drain_poll_s": 0.2, "token_s": 0.02}


@dataclass(slots=True, kw_only=True)
class Router:
    """A started router."""

    port: int
    process: subprocess.Popen[bytes]
    identity: Identity

    @property
    def url(self) -> str:
        """Where clients ask."""
        return f"http://127.0.0.1:{self.port}"

    def status(self, path: str) -> int | None:
        """The status of a GET; None when nobody answers."""
        return probe.get(f"{self.url}{path}", "", timeout_s=5).status

    def post(self, path: str, payload: dict[str, object], *, timeout_s: float = 60) -> Answer:
        """POST."""
        return probe.post(f"{self.url}{path}", payload, "", timeout_s=timeout_s)

    def end(self) -> None:
        """End it by identity."""
        left = pidfd.end_all(lambda: (self.identity,) if procs.alive(self.identity) else (), CLOCK, 10)
        self.process.wait(10)
        assert left == ()


@dataclass(slots=True, kw_only=True)
class Pair:
    """Starts the parts; each starts again on its own ports. `seen` is what was looked at while they started."""

    build: Build
    router_python: Path
    folder: Path
    ports: Iterator[tuple[int, int]]
    prefill_port: int
    decode_port: int
    router_port: int
    parts: list[Server | Router] = field(default_factory=list)
    seen: dict[str, Any] = field(default_factory=dict)
    current: dict[str, Server] = field(default_factory=dict)
    router: Router = field(init=False)

    @property
    def bootstrap_port(self) -> int:
        """The prefill's."""
        return self.prefill_port + APART

    @property
    def prefill(self) -> Server:
        """The prefill that runs."""
        return self.current["prefill"]

    @property
    def decode(self) -> Server:
        """The decode that runs."""
        return self.current["decode"]

    def start(self, mode: str, port: int | None = None, **behaviour: Any) -> Server:
        """Start a prefill or a decode, or with another port a second one of it."""
        own = {"prefill": self.prefill_port, "decode": self.decode_port}[mode]
        flags = {"prefill": self.build.prefill_flags, "decode": self.build.decode_flags}[mode]
        bootstrap = ("--disaggregation-bootstrap-port", str(self.bootstrap_port))
        words = ("--disaggregation-mode", mode, *(bootstrap if mode == "prefill" else ()), *flags)
        server = self.begin(port or own, *words, **behaviour)
        if port is None:
            self.current[mode] = server
        return server

    def begin(self, port: int, *words: str, **behaviour: Any) -> Server:
        """Start any engine of this build."""
        engine = replace(self.build, environment=self.build.environment + HEARTBEAT)
        folder = self.folder / f"engine{len(self.parts)}"
        server = start(engine, folder, (port, next(self.ports)[1]), *words, **QUICK | behaviour)
        self.parts.append(server)
        return server

    def router_argv(self) -> list[str]:
        """The command of the router between the two."""
        argv = [str(self.router_python), "-m", "sglang_router.launch_router", "--host", "127.0.0.1"]
        argv += ["--port", str(self.router_port), "--prometheus-host", "127.0.0.1"]
        argv += ["--prometheus-port", str(self.router_port + APART), *ROUTER_FLAGS.split(), "--pd-disaggregation"]
        argv += ["--prefill", f"http://127.0.0.1:{self.prefill_port}", str(self.bootstrap_port)]
        return [*argv, "--decode", f"http://127.0.0.1:{self.decode_port}"]

    def start_router(self) -> None:
        """Start the router, whatever runs behind it."""
        with (self.folder / f"router{len(self.parts)}").open("wb") as log:
            process = subprocess.Popen(
                self.router_argv(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={"PATH": os.environ["PATH"], "HOME": str(self.folder), "NO_PROXY": "*"},
                start_new_session=True,
            )
        identity = procs.identity(process.pid)
        assert identity is not None
        self.router = Router(port=self.router_port, process=process, identity=identity)
        self.parts.append(self.router)

    def bootstrap(self, path: str) -> int | None:
        """The status of a GET at the prefill's bootstrap server."""
        return probe.get(f"http://127.0.0.1:{self.bootstrap_port}{path}", "", timeout_s=5).status

    def route(self) -> dict[str, Any]:
        """What the prefill says of itself once all its ranks are registered."""
        answer = probe.get(f"http://127.0.0.1:{self.bootstrap_port}/route?{ALL_RANKS}", "", timeout_s=5)
        assert answer.status == 200, answer
        return dict(json.loads(answer.body))

    def watch(self, server: Server) -> set[tuple[int | None, int | None, int | None]]:
        """Statuses of bootstrap /health, /route and the server's /ready while it starts."""
        seen = set()
        while (ready := server.status("/ready")) != 200:
            assert server.alive(), server.said()[-3000:]
            seen.add((self.bootstrap("/health"), self.bootstrap(f"/route?{ALL_RANKS}"), ready))
            CLOCK.sleep(0.02)
        server.note_segments()
        return seen

    def workers(self) -> set[str]:
        """The kinds of the healthy workers that the router knows."""
        answer = probe.get(f"{self.router.url}/workers", "", timeout_s=5)
        listed = json.loads(answer.body)["workers"] if answer.status == 200 else []
        return {worker["worker_type"] for worker in listed if worker["is_healthy"]}

    def wait_for_router(self, status: int, limit_s: float = 30) -> None:
        """Wait until the router says that it is ready, or that it is not."""
        assert until(lambda: self.router.status("/readiness") == status or None, CLOCK, limit_s, 0.1), status

    def heal(self) -> None:
        """Start again what has ended, and wait until the router is ready."""
        if not procs.alive(self.router.identity):
            self.start_router()
        for mode in ("prefill", "decode"):
            if not self.current[mode].alive():
                self.start(mode)
                self.current[mode].wait_for()
        self.wait_for_router(200)

    def complete(self, prompt: str, tokens: int = 6, **more: object) -> Answer:
        """A greedy completion through the router."""
        asked = {"model": MODEL_NAME, "prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True}
        return self.router.post("/v1/completions", {**asked, **more})

    def end(self) -> None:
        """End all that was started."""
        for part in self.parts:
            part.end()


def counts(server: Server) -> Counts:
    """What an engine has counted, as dsv4ctl reads it."""
    found = parse_counts(server.get("/metrics").body.decode())
    assert found is not None
    return found


def metric(server: Server, name: str) -> float:
    """The sum of a metric over its labels; 0 where there is none yet."""
    lines = server.get("/metrics").body.decode().splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(f"sglang:{name}{{"))


def queues(server: Server) -> dict[str, Any]:
    """What an engine tells of its half of the pair."""
    return dict(json.loads(server.get("/v1/loads").body)["loads"][0]["disaggregation"])


def unstarted(build: Build, folder: Path, *, first: int) -> Pair:
    """A pair with the real router, of which nothing runs yet; `first`: which of the free ports are its own."""
    ports = islice(free_ports(), first, None)
    return Pair(
        build=build,
        router_python=router.python(needs.the_router()),
        folder=folder,
        ports=ports,
        prefill_port=next(ports)[0],
        decode_port=next(ports)[0],
        router_port=next(ports)[0],
    )
