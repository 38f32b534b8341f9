"""On a machine with a real GPU, without pytest: an engine double that is hard to find, found and ended from outside.

    python tests/gpu/held.py

The double's worker left its session, renamed itself, ignores SIGTERM and holds memory of GPU 0; its main process has
been killed. A notebook beside it holds memory as well. Prints what was seen, and fails where a promise does not hold.
"""

import ctypes
import mmap
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from dsv4ctl import census, ending, free, gpus, inquiry, settle
from dsv4ctl.blame import gpus as memory
from dsv4ctl.blame import words
from dsv4ctl.clock import RealClock
from dsv4ctl.free import AwaitGpus
from dsv4ctl.inquiry import Wanted

HELD_BYTES = 8 * 2**30


def allocate() -> object:
    """Take memory of GPU 0 by the driver's own interface, which needs no framework."""
    cuda = ctypes.CDLL("libcuda.so.1")
    device, context, pointer = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
    for status in (
        cuda.cuInit(0),
        cuda.cuDeviceGet(ctypes.byref(device), 0),
        cuda.cuCtxCreate_v2(ctypes.byref(context), 0, device),
        cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(HELD_BYTES)),
    ):
        if status:
            raise SystemExit(f"cuda says {status}")
    return cuda, context, pointer


def worker(*, engine: Path | None) -> None:
    """Hold memory for ever; with `engine`, as a process of an engine's environment that hides."""
    held: list[object] = []
    if engine is not None:
        with engine.open("rb") as file:
            held.append(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        if os.fork():
            signal.pause()
        os.setsid()
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        Path("/proc/self/comm").write_text("kv-offload/0")
    elif os.fork():
        # No child of whoever tears down: those are spared as his own.
        os._exit(0)
    held.append(allocate())
    print("up", os.getpid(), flush=True)  # noqa: T201 -- for whoever started us
    while held:
        time.sleep(60)


def started(*more: str) -> tuple[subprocess.Popen[str], int]:
    """Start a worker; its first process, and the pid that holds the memory."""
    process = subprocess.Popen([sys.executable, __file__, *more], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, int(process.stdout.readline().split()[1])


def say(*what: object) -> None:
    """One line of the protocol."""
    print(*what, flush=True)  # noqa: T201 -- this is a program that prints what it sees


def library(folder: Path) -> Path:
    """An environment with SGLang in it, as far as /proc tells."""
    package = folder / "lib/python3.11/site-packages/sglang"
    package.mkdir(parents=True)
    (folder / "pyvenv.cfg").touch()
    (package / "native.so").write_bytes(b"x" * 4096)
    return package / "native.so"


def main() -> None:
    """The whole scene."""
    view = gpus.read(timeout_s=60)
    say(
        "driver", view.driver, "GPUs", len(view.gpus), view.problem, "first pid namespace", census.first_pid_namespace()
    )
    first = view.gpus[0]
    say("idle:", first.name, "used", first.used_bytes, "reserved", first.reserved_bytes, repr(memory.busy(first)))
    assert not memory.busy(first)
    wanted = Wanted(gpus=frozenset({first.uuid}))
    with tempfile.TemporaryDirectory() as folder:
        process, pid = started("--engine", str(library(Path(folder))))
        _, other = started("--notebook")
        process.kill()
        process.wait()
        say("worker", pid, "nodes", sorted(census.device_nodes(pid)), "environment", census.environment_of(pid))
        found = inquiry.look(wanted)
        for suspect in found.blame.suspects:
            say(f"{suspect.verdict}:", words.suspect(suspect))
        assert {s.process.pid: s.verdict.value for s in found.blame.suspects if s.process} == {
            pid: "stray",
            other: "foreign",
        }
        assert len(found.blame.trees) == 1
        began = time.monotonic()
        ending.end(free.ends(found, term_s=0.5), RealClock(), lambda _: None)
        say(f"ended in {time.monotonic() - began:.2f} s")
        step = AwaitGpus(gpus=((first.index, first.uuid),), limit_s=3.0, reason="")
        say("gate while the notebook holds on:", *settle.not_idle(gpus.read(), step).values())
        assert settle.not_idle(gpus.read(), step)
        os.kill(other, signal.SIGKILL)
        say(f"back at the baseline after {settle.await_gpus(step, RealClock(), say):.2f} s")
        say("used now", gpus.read().gpus[0].used_bytes)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--engine"]:
        worker(engine=Path(sys.argv[2]))
    elif sys.argv[1:2] == ["--notebook"]:
        worker(engine=None)
    else:
        main()
