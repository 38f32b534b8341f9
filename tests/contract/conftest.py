"""The engines under contract: the stand-in always, the real one where DSV4CTL_REAL names what tests/real/setup made."""

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dsv4ctl.rehearsal import environment
from tests.contract.engines import Build, Server, free_ports, start

Start = Callable[..., Server]
Shared = Callable[..., Server]

REAL = os.environ.get("DSV4CTL_REAL", "")
REAL_FLAGS = (
    "--device cpu --attention-backend torch_native --sampling-backend pytorch --load-format dummy --dtype bfloat16 "
    "--context-length 2048 --max-total-tokens 4096 --max-running-requests 4 --disable-cuda-graph "
    "--disable-overlap-schedule --enable-metrics --sleep-on-idle"
)


def real(folder: Path) -> Build:
    """The real SGLang on CPU."""
    libraries = folder / "syslibs"
    return Build(
        name="sglang",
        python=folder / "venv/bin/python",
        model=folder / "model",
        tp=1,
        flags=tuple(REAL_FLAGS.split()),
        environment=(
            ("SGLANG_USE_CPU_ENGINE", "1"),
            ("HF_HUB_OFFLINE", "1"),
            ("TRANSFORMERS_OFFLINE", "1"),
            ("SGLANG_HOST_IP", "127.0.0.1"),
            # Threads that wait for each other on cores that are busy cost more than they do.
            ("OMP_NUM_THREADS", "1"),
            ("LD_LIBRARY_PATH", f"{libraries}/usr/lib/x86_64-linux-gnu:{libraries}/lib/x86_64-linux-gnu"),
        ),
        stream_tokens=1500,
        start_limit_s=3000,
        phases=("starting", "weights", "pools", "warmup"),
        prefill_flags=("--disaggregation-transfer-backend", "mooncake_tcp"),
        decode_flags=(
            *("--disaggregation-transfer-backend", "mooncake_tcp"),
            *("--disaggregation-decode-retraction-backup", "cpu_tensor"),
        ),
    )


def standin(folder: Path) -> Build:
    """The stand-in engine, two ranks of it, on GPUs that nobody looks at."""
    return Build(
        name="stand-in",
        python=environment.install(folder / "venv", base_python=sys.executable),
        model=environment.make_model(folder / "model"),
        tp=2,
        flags=("--context-length", "2048", "--enable-metrics"),
        environment=(),
        stream_tokens=300,
        start_limit_s=120,
        slow=(("import_s", 1.5),),
        phases=("starting", "weights", "pools", "kernels", "graphs", "warmup"),
        prefill_flags=("--disaggregation-transfer-backend", "nixl"),
        decode_flags=("--disaggregation-transfer-backend", "nixl"),
    )


@pytest.fixture(
    scope="package",
    params=[
        "standin",
        pytest.param(
            "real",
            marks=pytest.mark.skipif(
                not REAL, reason="DSV4CTL_REAL names no folder with a real SGLang; `make real` makes one"
            ),
        ),
    ],
)
def build(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Build:
    """The engine under test."""
    return real(Path(REAL)) if request.param == "real" else standin(tmp_path_factory.mktemp("standin"))


@pytest.fixture(scope="package")
def begin(build: Build, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Start]:
    """Start an engine; whatever of it is left at the end of the module is ended by identity."""
    servers: list[Server] = []
    ports = free_ports()

    def one(*words: str, port: int | None = None, **behaviour: Any) -> Server:
        folder = tmp_path_factory.mktemp("engine") / "own"
        http, rendezvous = next(ports)
        paced = {"load_s": 0.3, **behaviour}
        servers.append(start(build, folder, (port or http, rendezvous), *words, **paced))
        return servers[-1]

    yield one
    for server in servers:
        server.end()


@pytest.fixture(scope="package")
def shared(begin: Start) -> Shared:
    """A server that tests share, ready or as soon as it answers on a path; started again only when it has ended."""
    current: list[Server] = []

    def ready(path: str = "/ready") -> Server:
        if not (current and current[-1].alive()):
            current.append(begin())
            current[-1].wait_for(path)
        return current[-1]

    return ready


@pytest.fixture
def server(shared: Shared) -> Server:
    """A ready server with a key from a file."""
    return shared()
