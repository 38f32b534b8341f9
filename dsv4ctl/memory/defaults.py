"""What SGLang takes for itself when a flag is not given: chunk, batches with a graph, requests, and the fraction.

Source: arg_groups/memory_hook.py, cuda_graph_hook.py and deepseek_v4_hook.py of 0.5.23. The rule knows nothing of the
context: it gives the same fraction for 8k and for 1M.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

from dsv4ctl.model import Role

# deepseek_v4_hook.py writes these for V4 when the flags are absent.
RUNNING_REQUESTS = 256
WINDOW_RATIO = 0.1
MAX_PREFILL_TOKENS = 16384
# The rule keeps at least this much of a GPU of more than 60 GiB.
FLOOR_MIB = 10 * 1024


class _Size(NamedTuple):
    """GPUs of one size: the chunk, and the largest batch with a graph for fewer than 4 ranks and for more."""

    below_gib: float
    chunk_tokens: int
    few_ranks: int
    many_ranks: int


_SIZES = (
    _Size(20, 2048, 8, 8),
    _Size(35, 4096, 48, 160),
    _Size(60, 4096, 32, 160),
    _Size(160, 8192, 256, 512),
    _Size(math.inf, 16384, 512, 512),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """The flags that the rule looks at, None where they are not given. `chunk_tokens` -1: prompts are not cut."""

    role: Role
    tp: int
    attention_dp: int = 1
    chunk_tokens: int | None = None
    running_requests: int | None = None
    graph_batch: int | None = None
    draft_tokens: int = 1
    decode_graphs: bool = True


def chunk_tokens(gpu_mib: int) -> int:
    """--chunked-prefill-size when it is not given."""
    return _size(gpu_mib).chunk_tokens


def graph_batch(gpu_mib: int, tp: int, running_requests: int | None) -> int:
    """The largest decode batch that gets a graph when it is not given: by class, and no more than may run."""
    size = _size(gpu_mib)
    own = size.few_ranks if tp < 4 else size.many_ranks
    return min(own, running_requests or own)


def _size(gpu_mib: int) -> _Size:
    return next(size for size in _SIZES if gpu_mib < size.below_gib * 1024)


def fraction(gpu_mib: int, given: Given) -> float:
    """--mem-fraction-static when it is not given, to three digits."""
    reserved = 512 + 1.5 * _activation_tokens(gpu_mib, given) + 1024 * given.tp / 8 + _graphs_mib(gpu_mib, given)
    if gpu_mib > 60 * 1024:
        reserved = max(reserved, FLOOR_MIB)
    return round((gpu_mib - reserved) / gpu_mib, 3)


def _activation_tokens(gpu_mib: int, given: Given) -> int:
    if given.role is Role.DECODE:
        running = given.running_requests or _graph_batch(gpu_mib, given)
        return max(running * given.draft_tokens, 2048)
    chunk = chunk_tokens(gpu_mib) if given.chunk_tokens is None else given.chunk_tokens
    return max(chunk if chunk > 0 else MAX_PREFILL_TOKENS, 2048)


def _graphs_mib(gpu_mib: int, given: Given) -> float:
    if given.role is Role.PREFILL:
        return 0.0
    batch = _graph_batch(gpu_mib, given)
    reserved = 2.0 * batch if given.decode_graphs else 0.0
    if given.attention_dp > 1:
        reserved += (4.5 if batch > 300 else 3.0) * batch * given.attention_dp
    return reserved


def _graph_batch(gpu_mib: int, given: Given) -> int:
    return given.graph_batch or graph_batch(gpu_mib, given.tp, given.running_requests)


def captured(largest: int, *, speculative: bool) -> tuple[int, ...]:
    """The decode batches that get a graph, up to `largest`."""
    if speculative:
        steps = [*range(1, 9), *range(10, 33, 2), *range(40, 65, 4), *range(72, 257, 8), *range(272, largest + 1, 16)]
    else:
        steps = [1, 2, 4, 8, 12, *range(16, 257, 8), *range(272, 512, 16), *range(512, largest + 1, 32)]
    own = [batch for batch in steps if batch <= largest]
    return tuple(own if largest in own else [*own, largest])
