"""What a scheduler shows of itself: its load, in a segment that the server reads without asking, and its state."""

import contextlib
import json
import mmap
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .figures import Figures
from .handoff import Side

SEGMENT_BYTES = 16 * 1024 + 12


@dataclass(slots=True)
class Counters:
    """Everything that only grows. A health check's token is computed, and is no request."""

    requests: int = 0
    prompt_tokens: int = 0
    generated: int = 0
    computed: int = 0
    stepped: int = 0

    def told(self, side: Side | None) -> dict[str, float]:
        """By the names of the metrics; those of a transfer are there once there was one, as in the real engine."""
        told: dict[str, float] = {
            "num_requests_total": self.requests,
            "prompt_tokens_total": self.prompt_tokens,
            "generation_tokens_total": self.generated,
        }
        if side is None:
            return told
        told["num_bootstrap_failed_reqs_total"] = side.failed_early
        told["num_transfer_failed_reqs_total"] = side.failed_late
        kinds = ("latency_ms", "total_mb") if side.mode == "prefill" else ("bootstrap_ms", "alloc_ms")
        crossed = {f"kv_transfer_{kind}_count": float(side.crossed) for kind in kinds}
        return {**told, **(crossed if side.crossed else {})}


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """A moment of a scheduler."""

    running: int
    waiting: int
    used: int
    throughput: float


class Segment:
    """The shared segment, mapped for life as by the real engine."""

    def __init__(self, path: Path, server: int, figure: Figures) -> None:
        self.fixed = {
            "server": server,
            "max_total_num_tokens": figure.tokens,
            "max_running_requests": figure.running,
            "weight_gb": round(figure.weights_gib, 3),
            "kv_cache_gb": round(figure.pool_gib, 3),
            "graph_gb": figure.graphs_gib,
            "available_gb": round(figure.free_after_graphs, 3),
        }
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        os.truncate(descriptor, SEGMENT_BYTES)
        with contextlib.closing(os.fdopen(descriptor, "r+b", buffering=0)) as file:
            self.mapped = mmap.mmap(file.fileno(), SEGMENT_BYTES)

    def tell(self, load: Load, counters: Counters, side: Side | None) -> None:
        """Write a moment."""
        told = {
            **self.fixed,
            "num_running_reqs": load.running,
            "num_waiting_reqs": load.waiting,
            "num_used_tokens": load.used,
            "gen_throughput": load.throughput,
            "counters": counters.told(side),
            "disaggregation": _pair(side),
        }
        self.mapped[:] = json.dumps(told).encode().ljust(SEGMENT_BYTES, b"\0")


def _pair(side: Side | None) -> dict[str, Any]:
    if side is None:
        return {}
    return {"mode": side.mode, **side.queues(), "kv_transfer_latency_ms": round(side.latency_ms, 3)}


def state(figure: Figures, throughput: float) -> dict[str, Any]:
    """What /server_info tells of a scheduler."""
    return {
        "memory_usage": {
            "weight": round(figure.weights_gib, 3),
            "kvcache": round(figure.pool_gib, 3),
            "startup_available": round(figure.free_after_graphs, 3),
            "token_capacity": figure.tokens,
            "token_capacity_swa": None,
            "graph": {"prefill": 0.0, "decode": figure.graphs_gib},
        },
        "effective_max_running_requests_per_dp": figure.running,
        "last_gen_throughput": throughput,
    }
