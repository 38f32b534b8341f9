"""Classes of GPUs by the names that NVML gives them: size, generation, and what is free when an engine starts."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from difflib import get_close_matches
from enum import StrEnum

from dsv4ctl.memory.sizes import MIB, gib
from dsv4ctl.model import Gpu

# Driver, CUDA context and NCCL of an engine that has loaded nothing yet: 95.59 GiB less the 94.0 GiB of public logs on
# RTX PRO 6000, 1.6 to 2.0 GiB on H20.
NOT_FREE_BYTES = gib(1.6)
NOT_FREE_SPAN = (0.8, 1.3)


class Generation(StrEnum):
    """CUDA's compute capability, which decides on the kernels that SGLang takes."""

    SM89 = "sm89"
    SM90 = "sm90"
    SM100 = "sm100"
    SM103 = "sm103"
    SM120 = "sm120"


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuClass:
    """One kind of GPU. `total_mib` is what `nvidia-smi --query-gpu=memory.total` says; `pattern` finds NVML's name.

    `free_known`: what is free at start stands in public logs of this kind, and is not only taken to be like others.
    """

    name: str
    pattern: str
    total_mib: int
    generation: Generation
    not_free_bytes: int = NOT_FREE_BYTES
    free_known: bool = False

    @property
    def total_bytes(self) -> int:
        """All of its memory."""
        return self.total_mib * MIB

    @property
    def free_at_start_bytes(self) -> int:
        """What an engine finds free before it loads weights, on an otherwise empty GPU."""
        return self.total_bytes - self.not_free_bytes


CLASSES = (
    GpuClass(
        name="rtx-pro-6000",
        pattern=r"RTX PRO 6000",
        total_mib=97887,
        generation=Generation.SM120,
        not_free_bytes=97887 * MIB - gib(94.0),
        free_known=True,
    ),
    GpuClass(
        name="h20",
        pattern=r"\bH20\b",
        total_mib=97871,
        generation=Generation.SM90,
        not_free_bytes=97871 * MIB - gib(93.6),
        free_known=True,
    ),
    GpuClass(name="h100", pattern=r"\bH100\b", total_mib=81559, generation=Generation.SM90),
    GpuClass(name="h200", pattern=r"\bH200\b", total_mib=143771, generation=Generation.SM90),
    GpuClass(name="b200", pattern=r"\bG?B200\b", total_mib=183359, generation=Generation.SM100),
    GpuClass(name="b300", pattern=r"\bG?B300\b", total_mib=275040, generation=Generation.SM103),
    GpuClass(name="l20", pattern=r"\bL20\b", total_mib=46068, generation=Generation.SM89),
    # The GPUs of the rehearsal, whose engine plays an RTX PRO 6000.
    GpuClass(
        name="stand-in",
        pattern=r"\bStand-in\b",
        total_mib=98304,
        generation=Generation.SM120,
        not_free_bytes=gib(2.0),
        free_known=True,
    ),
)


def find(name: str) -> GpuClass:
    """The class of this name. Raises ValueError with the names there are."""
    wanted = name.lower().replace(" ", "-").replace("_", "-")
    known = {one.name: one for one in CLASSES if one.name != "stand-in"}
    if wanted in known:
        return known[wanted]
    near = get_close_matches(wanted, known, n=1)
    raise ValueError(f"{f'did you mean {near[0]}? ' if near else ''}known are {', '.join(known)}")


def of(gpu: Gpu) -> GpuClass | None:
    """The class of a GPU as NVML names it, with the size that NVML tells; None for a kind that is not known."""
    for one in CLASSES:
        if re.search(one.pattern, gpu.name, re.IGNORECASE):
            return replace(one, total_mib=gpu.total_bytes // MIB)
    return None


def of_all(gpus: Iterable[Gpu]) -> GpuClass | None:
    """The class of an instance's GPUs: that of the smallest, which sizes all; None when one is not known."""
    kinds = [of(gpu) for gpu in gpus]
    known = [kind for kind in kinds if kind is not None]
    if not known or len(known) != len(kinds):
        return None
    return min(known, key=lambda kind: kind.total_mib)
