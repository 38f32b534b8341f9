"""What the memory of a played GPU holds: the arithmetic of SGLang 0.5.23 for DeepSeek-V4-Flash, in GiB and tokens."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .settings import Settings

GPU_GIB = 96.0
# The driver's own reserve and the CUDA context are not free.
FREE_GIB = 94.0
# The routed experts in FP4 and the rest that is divided over the ranks; what stands whole on every rank.
SHARDED_GIB, REPLICATED_GIB = 137.0625 + 5.3, 3.7
GRAPHS_GIB = 1.24
DEFAULT_RUNNING = 256
# Layers: all with a sliding window, 21 compressed by 4, 20 by 128; bytes per token as the pool configurator counts.
LAYERS, C4, C128 = 43, 21, 20
COMPRESSED_BYTES = C4 * (585 + 132) / 4 + C128 * 864 / 128
WINDOW_BYTES = 585 * LAYERS + C4 * (8 / 256) * (4 * 512 + 4 * 128) * 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """One rank's memory. `free_gib` after the dist phase, after the weights, after the pools, after the graphs."""

    weights_gib: float
    pool_gib: float
    graphs_gib: float
    tokens: int
    running: int
    context: int

    @property
    def free_after_weights(self) -> float:
        """GiB."""
        return FREE_GIB - self.weights_gib

    @property
    def free_after_pools(self) -> float:
        """GiB."""
        return self.free_after_weights - self.pool_gib

    @property
    def free_after_graphs(self) -> float:
        """GiB."""
        return self.free_after_pools - self.graphs_gib


def fraction(tp: int, chunk: int, running: int | None) -> float:
    """SGLang's default of --mem-fraction-static for a GPU of this size: three digits."""
    mib = GPU_GIB * 1024
    batch = min(256 if tp < 4 else 512, running or 512)
    reserved = max(512 + 1.5 * max(chunk, 2048) + tp / 8 * 1024 + 2 * batch, 10 * 1024)
    return round((mib - reserved) / mib, 3)


def work_out(settings: "Settings") -> Figures:
    """The figures of a server. Weights beyond FREE_GIB do not fit, and with no token left there is no pool."""
    context = int(settings["context_length"] or settings.model.max_positions)
    running = int(settings["max_running_requests"])
    if not settings.on_gpu:
        tokens = int(settings["max_total_tokens"] or 65536)
        return Figures(weights_gib=0.0, pool_gib=0.0, graphs_gib=0.0, tokens=tokens, running=running, context=context)
    weights = REPLICATED_GIB + SHARDED_GIB / settings.tp
    budget = FREE_GIB * settings["mem_fraction_static"] - weights
    tokens = _tokens(budget, running, settings["swa_full_tokens_ratio"] or 0.1)
    # A prefill decodes nothing, so it captures nothing.
    without = settings["disable_cuda_graph"] or settings["disable_decode_cuda_graph"] or settings.mode == "prefill"
    graphs = 0.0 if without else GRAPHS_GIB
    tokens = min(tokens, int(settings["max_total_tokens"] or tokens))
    return Figures(
        weights_gib=weights, pool_gib=budget, graphs_gib=graphs, tokens=tokens, running=running, context=context
    )


def _tokens(budget_gib: float, running: int, ratio: float) -> int:
    """Tokens of the full pool: whole pages of 256, after the compression state that each request slot costs."""
    slots = -(-((running + 1) * 128 + 129) // 128) * 128
    state = 1024 * 4 * C128 * slots
    return int((budget_gib * 2**30 - state) / (COMPRESSED_BYTES + ratio * WINDOW_BYTES)) // 256 * 256


def no_room(given: float, weights: float) -> str:
    """The real engine's words for weights, in GiB, that leave nothing for the KV cache."""
    least = 1 - (FREE_GIB - weights) / FREE_GIB
    return (
        f"ValueError: Loaded weights leave no GPU memory for the KV cache under --mem-fraction-static={given}. "
        f"Raise --mem-fraction-static above {math.ceil(least * 1000) / 1000:.3f} "
        f"(minimum viable = 1 - available/pre = {least:.4f}). "
        "If using speculative decoding, draft weights are now counted."
    )
