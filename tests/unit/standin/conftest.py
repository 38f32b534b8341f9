"""The stand-in engine at a quick pace; each test's own servers are ended after it."""

import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dsv4ctl.clock import until
from dsv4ctl.rehearsal import environment
from tests.contract.engines import CLOCK, Build, Server, free_ports, start

Begin = Callable[..., Server]

QUICK = {"import_s": 0.0, "load_s": 0.1, "warmup_s": 0.05, "drain_poll_s": 0.05, "crash_settle_s": 0.1, "token_s": 0.0}


@pytest.fixture(scope="package")
def build(tmp_path_factory: pytest.TempPathFactory) -> Build:
    """The stand-in engine with two ranks on two GPUs of a ledger."""
    folder = tmp_path_factory.mktemp("standin")
    return Build(
        name="stand-in",
        python=environment.install(folder / "venv", base_python=sys.executable),
        model=environment.make_model(folder / "model"),
        tp=2,
        flags=(),
        environment=(("CUDA_VISIBLE_DEVICES", "GPU-a,GPU-b"),),
        stream_tokens=100,
        start_limit_s=20,
    )


@pytest.fixture(scope="package")
def ports() -> Iterator[tuple[int, int]]:
    """Ports of this package."""
    return free_ports()


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    """Where the stand-in says what it holds of its GPUs."""
    (tmp_path / "gpus").mkdir()
    return tmp_path / "gpus"


@pytest.fixture
def begin(ledger: Path, build: Build, ports: Iterator[tuple[int, int]], tmp_path: Path) -> Iterator[Begin]:
    """Start the stand-in with a behaviour; it is ended after the test."""
    servers: list[Server] = []
    # On a busy machine a rank may outlive the short time that a crash takes here, and be waited for.
    played = (("DSV4CTL_STANDIN_GPUS", str(ledger)), ("SGLANG_CUDA_COREDUMP_BEFORE_CRASH", "0"))

    def one(*words: str, engine: Build = build, at: tuple[int, int] | None = None, **keys: Any) -> Server:
        engine = replace(engine, environment=played + engine.environment)
        servers.append(start(engine, tmp_path / f"engine{len(servers)}", at or next(ports), *words, **QUICK | keys))
        return servers[-1]

    yield one
    for server in servers:
        server.end()


@pytest.fixture
def ready(begin: Begin) -> Begin:
    """Start the stand-in and wait for its ready line."""

    def one(*words: str, **keys: Any) -> Server:
        server = begin(*words, **keys)
        assert until(lambda: "fired up" in server.said() or None, CLOCK, 20, 0.02), server.said()
        server.note_segments()
        return server

    return one
