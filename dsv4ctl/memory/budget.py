"""One GPU's memory, whole: every byte of it belongs to one figure."""

from dataclasses import dataclass

from dsv4ctl.memory import asked, pool, slack, weights
from dsv4ctl.memory.asked import Ask, Flags
from dsv4ctl.memory.figures import Figure, Kind, Part, estimate, exact, total
from dsv4ctl.memory.gpus import NOT_FREE_SPAN
from dsv4ctl.memory.pool import Pool
from dsv4ctl.memory.sizes import gib

# 0.1 GiB of free memory is 2 % of this, and 13 % of a pool of 0.8 GiB.
IMPRECISE_BELOW_BYTES = gib(5.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """The memory of one GPU of an engine. The figures of all parts, LEFT included, are its total, to the byte."""

    ask: Ask
    flags: Flags
    figures: tuple[Figure, ...]
    pool: Pool
    free_at_start_bytes: int
    weights_bytes: int
    slack_bytes: int

    @property
    def tokens(self) -> int:
        """max_total_num_tokens of one rank."""
        return self.pool.tokens

    @property
    def tokens_of_node(self) -> int:
        """Tokens of all pools of the engine: every rank of DP attention has its own, all others hold the same."""
        return self.tokens * self.ask.attention_dp

    @property
    def fitting(self) -> int:
        """Requests of the asked context that fit into the pools at once."""
        return self.tokens // self.ask.context_tokens * self.ask.attention_dp

    @property
    def offered_bytes(self) -> int:
        """What the fraction leaves for the pools; negative where the weights alone are above it."""
        return round(self.free_at_start_bytes * self.flags.fraction) - self.weights_bytes

    @property
    def left_bytes(self) -> int:
        """What nothing is planned for, if every estimate is right; negative: it does not fit."""
        return total(self.figures, Part.LEFT)

    @property
    def left_range_bytes(self) -> tuple[int, int]:
        """What is left if every estimate is at its high end, and if every one is at its low end."""
        return self.figures[-1].low_bytes, self.figures[-1].high_bytes

    @property
    def tokens_range(self) -> tuple[int, int]:
        """Tokens of one rank with the weights and what is outside at their high ends, and at their low ends."""
        few, many = (self._tokens_at(end) for end in ("high_bytes", "low_bytes"))
        return few, many

    @property
    def needed_slack_bytes(self) -> int:
        """What the slack must hold."""
        return total(self.figures, Part.SLACK)

    def _tokens_at(self, end: str) -> int:
        own = [f for f in self.figures if f.part in (Part.OUTSIDE, Part.WEIGHTS)]
        outside, loaded = (sum(getattr(f, end) for f in own if f.part is part) for part in (Part.OUTSIDE, Part.WEIGHTS))
        free = self.ask.gpu.total_bytes - outside
        return pool.of(self.ask, self.flags, max(0, round(free * self.flags.fraction) - loaded)).tokens

    def bytes_of(self, name: str) -> int:
        """The bytes of one figure; 0 where it has none."""
        return sum(one.bytes for one in self.figures if one.name == name)


def of(ask: Ask) -> Budget:
    """The budget of one GPU of the engine asked for. Always made: verdict.py says whether it can be."""
    flags = asked.flags(ask)
    outside = _outside(ask)
    free = ask.gpu.total_bytes - total(outside)
    own = _weights(ask)
    weights_bytes = total(own)
    offered = max(0, round(free * flags.fraction) - weights_bytes)
    made = pool.of(ask, flags, offered)
    pools = pool.figures(made)
    slack_bytes = free - weights_bytes - total(pools)
    taken = slack.figures(ask, flags, made, slack_bytes)
    return Budget(
        ask=ask,
        flags=flags,
        figures=(*outside, *own, *pools, *taken, _left(slack_bytes, taken)),
        pool=made,
        free_at_start_bytes=free,
        weights_bytes=weights_bytes,
        slack_bytes=slack_bytes,
    )


def _left(slack_bytes: int, taken: tuple[Figure, ...]) -> Figure:
    """What is left of the slack, and how little and how much it is at the ends of all estimates."""
    low, high = (slack_bytes - sum(ends) for ends in ([f.high_bytes for f in taken], [f.low_bytes for f in taken]))
    kind = Kind.EXACT if low == high else Kind.ESTIMATE
    left = slack_bytes - total(taken)
    return Figure(name="left", part=Part.LEFT, bytes=left, kind=kind, low_bytes=low, high_bytes=high)


def _outside(ask: Ask) -> tuple[Figure, ...]:
    """What is not free when the engine starts: driver, context and NCCL, and what others hold."""
    name, others = "driver and context", ask.occupied_bytes
    held = (exact("held by others", Part.OUTSIDE, others),) if others else ()
    if ask.measured.free_at_start_bytes is not None:
        # What others held at that start was in it; what they hold now is taken off once.
        taken = max(0, ask.gpu.total_bytes - ask.measured.free_at_start_bytes)
        return (estimate(name, Part.OUTSIDE, taken, (1.0, 1.0)).told(taken), *held)
    span = (0.95, 1.05) if ask.gpu.free_known else NOT_FREE_SPAN
    return (estimate(name, Part.OUTSIDE, ask.gpu.not_free_bytes, span), *held)


def _weights(ask: Ask) -> tuple[Figure, ...]:
    stages = ask.speculation.stages if ask.speculation else 0
    target = weights.target(ask.checkpoint, ask.tp, ask.attention_dp)
    drafts = weights.draft(ask.checkpoint, ask.tp, stages)
    if ask.measured.weights_bytes is not None:
        return (target.told(ask.measured.weights_bytes),)
    return (target, drafts) if stages else (target,)
