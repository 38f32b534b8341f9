"""Engines whose memory the tests plan, small enough to see what differs."""

from typing import Any

from dsv4ctl.memory import gpus, weights
from dsv4ctl.memory.asked import Ask, Speculation
from dsv4ctl.memory.layout import BEFORE, FIRST, NOW
from dsv4ctl.model import Role

EAGLE = Speculation(algorithm="EAGLE", draft_tokens=4)
DSPARK = Speculation(algorithm="DSPARK", draft_tokens=6)
# A version of each layout of the pools.
VERSIONS = {NOW: "0.5.23", BEFORE: "0.5.19", FIRST: "0.5.12"}


def ask(gpu: str = "rtx-pro-6000", checkpoint: str = "fp4", **flags: Any) -> Ask:
    """One server with 4 ranks of V4-Flash for 128k and 64 requests; `flags` replace single values."""
    usual: dict[str, Any] = {
        "role": Role.SERVER,
        "tp": 4,
        "context_tokens": 131_072,
        "running_requests": 64,
        "gpu": gpus.find(gpu),
        "checkpoint": weights.find(checkpoint),
    }
    return Ask(**(usual | flags))
