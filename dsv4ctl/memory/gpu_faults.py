"""What is wrong with an instance's GPUs for one engine: sizes that differ, and memory that others hold of some."""

from collections.abc import Iterator, Mapping, Sequence

from dsv4ctl.memory.sizes import GIB
from dsv4ctl.model import Gpu

# The engine refuses ranks of which one has less than this share of the free memory of another.
BALANCE = 0.9


def faults(gpus: Sequence[Gpu], occupied_bytes: Mapping[int, int]) -> Iterator[str]:
    """Why the engine would refuse these GPUs, each with the way out. `occupied_bytes`: held by others, by GPU index."""
    if not gpus:
        return
    yield from _unequal(gpus)
    free = {gpu.index: gpu.total_bytes - occupied_bytes.get(gpu.index, 0) for gpu in gpus}
    fullest, emptiest = min(free, key=lambda one: free[one]), max(free, key=lambda one: free[one])
    held = occupied_bytes.get(fullest, 0)
    if held and free[fullest] < BALANCE * free[emptiest]:
        have = f"GPU {fullest} has {free[fullest] / GIB:.1f} GiB free and GPU {emptiest} {free[emptiest] / GIB:.1f}"
        yield (
            f"{have}: others hold {held / GIB:.1f} GiB on GPU {fullest}, and the engine refuses ranks that differ by a "
            "tenth; end them (nvidia-smi shows them), or choose other --gpus"
        )


def _unequal(gpus: Sequence[Gpu]) -> Iterator[str]:
    small, large = min(gpus, key=lambda gpu: gpu.total_bytes), max(gpus, key=lambda gpu: gpu.total_bytes)
    if small.total_bytes < BALANCE * large.total_bytes:
        yield (
            f"GPU {small.index} ({small.name}) has {small.total_bytes / GIB:.1f} GiB and GPU {large.index} "
            f"({large.name}) {large.total_bytes / GIB:.1f}: the engine refuses ranks that differ by a tenth; choose "
            "GPUs of one size with --gpus"
        )
