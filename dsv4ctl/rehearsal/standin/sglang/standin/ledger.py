"""The memory of the played GPUs: /run/standin-gpus/<uuid>/<pid> holds the bytes that a process has there."""

import os
from pathlib import Path

GIB = 2**30

# Pid -> the device node that it has open, as CUDA keeps it open until the process ends.
_opened: dict[int, int] = {}


def folder() -> Path:
    """Where the ledger lies; played only where this folder exists."""
    return Path(os.environ.get("DSV4CTL_STANDIN_GPUS") or "/run/standin-gpus")


def visible() -> tuple[str, ...]:
    """The GPUs that CUDA_VISIBLE_DEVICES names."""
    return tuple(word.strip() for word in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if word.strip())


def gpu_of(rank: int) -> Path | None:
    """The folder of a rank's GPU, or None where no GPUs are played; raises RuntimeError as CUDA would."""
    if not folder().is_dir() or "CUDA_VISIBLE_DEVICES" not in os.environ:
        return None
    gpus = visible()
    if not gpus:
        raise RuntimeError("No CUDA GPUs are available")
    if rank >= len(gpus):
        raise RuntimeError("CUDA error: invalid device ordinal")
    return folder() / gpus[rank]


def hold(gpu: Path | None, gib: float) -> None:
    """Say that we hold so much of a GPU, written whole."""
    if gpu is None:
        return
    if not gpu.exists():
        gpu.mkdir(exist_ok=True)
        # Engines of several users share a GPU.
        gpu.chmod(0o1777)
    _open_device(gpu)
    fresh = gpu / f".{os.getpid()}"
    fresh.write_text(f"{int(gib * GIB)}\n", encoding="ascii")
    fresh.rename(gpu / str(os.getpid()))


def release(gpu: Path | None) -> None:
    """Take our own entry out."""
    if gpu is not None:
        (gpu / str(os.getpid())).unlink(missing_ok=True)


def _open_device(gpu: Path) -> None:
    """Open the played driver's node of a GPU: /dev/nvidia3 where the ledger has a link 3 to this GPU."""
    names = [link.name for link in folder().iterdir() if link.is_symlink() and link.readlink().name == gpu.name]
    node = next((Path(f"/dev/nvidia{name}") for name in (*names, gpu.name) if name.isdecimal()), None)
    if os.getpid() not in _opened and node is not None and node.exists():
        _opened[os.getpid()] = os.open(node, os.O_RDWR)
