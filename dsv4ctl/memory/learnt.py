"""Between plans and marks: what a plan says that an engine reports as well, and what the next plan takes of that."""

import json
from dataclasses import asdict, replace

from dsv4ctl.memory.asked import Measured
from dsv4ctl.memory.budget import Budget
from dsv4ctl.memory.marks import Amounts, Key, Mark
from dsv4ctl.memory.spec import Known
from dsv4ctl.model import HostSpec, RoleShape


def planned(budget: Budget) -> Amounts:
    """The amounts of a plan that an engine reports, too."""
    return Amounts(
        tokens=budget.tokens,
        free_at_start_bytes=budget.free_at_start_bytes,
        weights_bytes=budget.weights_bytes,
        graphs_bytes=budget.bytes_of("decode graphs") + budget.bytes_of("decode logits"),
        left_bytes=budget.free_at_start_bytes - budget.weights_bytes - budget.pool.used_bytes,
    )


def measured(mark: Mark) -> Measured:
    """What the next plan of the same key takes instead of its estimates.

    What was free while others held memory says nothing of a host where they do not.
    """
    return Measured(
        free_at_start_bytes=None if mark.occupied_bytes else mark.reported.free_at_start_bytes,
        weights_bytes=mark.reported.weights_bytes,
        graphs_bytes=mark.reported.graphs_bytes,
    )


def key(spec: HostSpec, shape: RoleShape, known: Known, *, host: str) -> Key:
    """The key of one role: everything that its memory depends on but the fraction, which is a result of it."""
    checkpoint, gpu = known.checkpoint, known.gpu
    size = f" ({checkpoint.name}, {checkpoint.experts_bytes} bytes of experts)" if checkpoint else ""
    memory = replace(spec.memory, mem_fraction_static=None)
    parts = (shape.role, shape.tp, asdict(memory), spec.engine.args, sorted(spec.engine.environment))
    return Key(
        host=host,
        engine_version=known.engine_version,
        model=f"{spec.engine.model}{size}",
        gpu=gpu.name if gpu else "",
        flags=json.dumps(parts, sort_keys=True),
    )
