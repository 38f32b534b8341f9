"""What the operator reads: one line for each state of an instance. Pure."""

import math
from collections.abc import Mapping

from dsv4ctl.model import Capacity, Instance, Phase, Role
from dsv4ctl.supervise.progress import Progress

DOING = {
    Phase.STARTING: "starting the engine",
    Phase.WEIGHTS: "loading weights",
    Phase.POOLS: "setting up the memory pools",
    Phase.KERNELS: "compiling kernels",
    Phase.GRAPHS: "capturing graphs",
    Phase.WARMUP: "warming up",
    Phase.PROOF: "proving it with one generation",
}
# A half is proved by its own word, and a router's log tells no phases: its port is bound a second after its start.
DOING_OF: Mapping[Role, Mapping[Phase, str]] = {
    Role.PREFILL: {Phase.PROOF: "proving it: its ranks register for the decode"},
    Role.DECODE: {Phase.PROOF: "proving it by its own word"},
    Role.ROUTER: {
        Phase.STARTING: "starting the router",
        Phase.WARMUP: "waiting until it has taken its workers in",
        Phase.PROOF: "proving it with one generation through it",
    },
}


def doing(phase: Phase, role: Role) -> str:
    """What an instance of this role does in this phase of its start."""
    return DOING_OF.get(role, {}).get(phase) or DOING[phase]


def loading(progress: Progress, role: Role, left_s: int | None) -> str:
    """`loading weights 31/46, about 40 s left`."""
    return doing(progress.phase, role) + _count(progress) + (f", about {duration(left_s)} left" if left_s else "")


def place(progress: Progress) -> str:
    """Where a start is, short: `weights 31/46`."""
    return progress.phase + _count(progress)


def ready(instance: Instance, capacity: Capacity | None) -> str:
    """`ready: MODEL on 127.0.0.1:30001, context 524288, 6.05 M KV tokens`."""
    parts = [f"ready: {instance.served_model_name} on {address(instance)}"]
    if context := (capacity and capacity.context_length) or instance.context_length:
        parts.append(f"context {context}")
    if capacity and capacity.max_total_tokens:
        parts.append(f"{tokens(capacity.max_total_tokens)} KV tokens")
    return ", ".join(parts)


def draining(left: int | None, at_most_s: float) -> str:
    """`draining, 3 requests left, at most 97 s`. `left` None: the engine does not tell."""
    count = "" if left is None else f", {left} request{'' if left == 1 else 's'} left"
    return f"draining{count}, at most {max(0, math.ceil(at_most_s))} s"


def address(instance: Instance) -> str:
    """Host and port as in a URL."""
    return f"[{instance.host}]:{instance.port}" if ":" in instance.host else f"{instance.host}:{instance.port}"


def tokens(count: int) -> str:
    """A count in the unit that people use for it: 980, 48.2 k, 6.05 M."""
    for size, unit in ((1_000_000, " M"), (1_000, " k")):
        if count >= size:
            return f"{count / size:.3g}{unit}"
    return str(count)


def duration(seconds: float) -> str:
    """Seconds up to two minutes, minutes from there."""
    return f"{round(seconds)} s" if seconds < 120 else f"{round(seconds / 60)} min"


def one_line(text: str, width: int) -> str:
    """The text on one line of at most `width` characters."""
    flat = " ".join(text.split())
    return flat if len(flat) <= width else flat[: width - 3] + "..."


def _count(progress: Progress) -> str:
    return f" {progress.done}/{progress.total}" if progress.total else ""
