"""The stand-in engine's ledger for a real GPU: put in place of its own, it takes the memory that the other only notes.

By the driver's own interface, which needs no framework. The engine's processes are spawned afresh and may use CUDA; one
that was forked from a process with CUDA may not, so it runs this file anew, in its place.
"""

import ctypes
import importlib
import os
import signal
import sys
import time
from pathlib import Path

GIB = 2**30
# What the stand-in counts for a CUDA context, which takes about as much by itself.
CONTEXT_GIB = 0.5

# Our pid, once we have a context; what we have allocated.
_made: list[int] = []
_held: list[tuple[int, int]] = []


def gpu_of(rank: int) -> Path | None:
    """Which of the GPUs that CUDA shows us: the last part is its number."""
    return Path(str(rank))


def hold(gpu: Path | None, gib: float) -> None:
    """Have so much of a GPU allocated, the context included."""
    if gpu is None:
        return
    if _made and _made[0] != os.getpid():
        words = (sys.executable, "-m", "sglang.standin.ledger", gpu.name, str(gib))
        os.execv(sys.executable, words)  # noqa: S606 -- the interpreter that runs us
    cuda = ctypes.CDLL("libcuda.so.1")
    if not _made:
        _enter(cuda, int(gpu.name))
    missing = int((gib - CONTEXT_GIB) * GIB) - sum(size for _, size in _held)
    if missing > 0:
        pointer = ctypes.c_uint64()
        _check(cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(missing)))
        _held.append((pointer.value, missing))


def release(gpu: Path | None) -> None:
    """The driver takes it back with the process."""


def _enter(cuda: ctypes.CDLL, number: int) -> None:
    device, context = ctypes.c_int(), ctypes.c_void_p()
    _check(cuda.cuInit(0))
    _check(cuda.cuDeviceGet(ctypes.byref(device), number))
    _check(cuda.cuCtxCreate_v2(ctypes.byref(context), 0, device))
    _made.append(os.getpid())


def _check(status: int) -> None:
    if status:
        raise RuntimeError(f"CUDA error: {status}")


def main() -> None:
    """Be the process that survives its server: no title that tells, deaf to SIGTERM, with memory of a GPU."""
    titles = importlib.import_module("sglang.standin.titles")

    titles.retitle("kv-offload/0")
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    hold(Path(sys.argv[1]), float(sys.argv[2]))
    time.sleep(300)


if __name__ == "__main__":
    main()
