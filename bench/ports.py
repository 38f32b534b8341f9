"""Port -> owning unit on a busy host: ours beside lsof, fuser, ss -p and psutil, in one run."""

import os
import signal
import socket
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from dsv4ctl import procs, sockets

FILES_EACH = 50
REPEATS = 3
COUNTS = (100, 1000, 2000, 4000)


@contextmanager
def busy_host(processes: int) -> Iterator[None]:
    """A host with that many more processes, each with 50 open files; all are ended by the pidfd of our own child."""
    files = [os.open("/dev/null", os.O_RDONLY) for _ in range(FILES_EACH)]
    started = [subprocess.Popen(["/bin/sleep", "600"], pass_fds=files) for _ in range(processes)]
    try:
        yield
    finally:
        for process in started:
            process.send_signal(signal.SIGKILL)
        for process in started:
            process.wait()
        for file in files:
            os.close(file)


def rows() -> Iterator[tuple[str, str, str]]:
    """Figure, goal, measured: on hosts of four sizes, each tool in the same run."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        flat = {}
        for count in COUNTS:
            with busy_host(count):
                flat[count] = _median(lambda: _owning_unit(port))
                measured = f"{flat[count]:.1f} ms; {_beside_others(port, flat[count])}"
            goal = "at most 1/20 of lsof, fuser, psutil" if count == 2000 else "-"
            yield f"port -> owning unit, {count} processes x {FILES_EACH} files", goal, measured
        told = ", ".join(f"{ms:.1f} ms with {count}" for count, ms in flat.items())
        yield "port -> unit as the host grows", "flat from 100 to 4,000 processes", told


def _beside_others(port: int, ours_ms: float) -> str:
    others: dict[str, Callable[[], object]] = {
        "lsof": lambda: _run("lsof", "-nP", f"-iTCP:{port}", "-sTCP:LISTEN"),
        "fuser": lambda: _run("fuser", f"{port}/tcp"),
        "ss -p": lambda: _run("ss", "-ltnpH", f"sport = :{port}"),
        "psutil.net_connections": lambda: psutil.net_connections("tcp"),
    }
    return ", ".join(_against(name, look, ours_ms) for name, look in others.items())


def _against(name: str, look: Callable[[], object], ours_ms: float) -> str:
    """`1/163 of lsof (1144 ms)`."""
    try:
        took = _median(look)
    except FileNotFoundError:
        return f"{name} is not installed"
    return f"1/{took / ours_ms:.0f} of {name} ({took:.0f} ms)"


def _owning_unit(port: int) -> list[str]:
    return [procs.unit_of_cgroup(listener.cgroup) for listener in sockets.listeners(port)]


def _run(program: str, *words: str) -> None:
    path = next((p for f in ("/usr/bin", "/usr/sbin", "/bin", "/sbin") if (p := Path(f) / program).exists()), None)
    if path is None:
        raise FileNotFoundError(program)
    subprocess.run([path, *words], capture_output=True, check=False)


def _median(look: Callable[[], object]) -> float:
    """Median of a few runs, in milliseconds. Raises FileNotFoundError for a tool that is not installed."""
    took = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        look()
        took.append(1000 * (time.perf_counter() - began))
    return statistics.median(took)
