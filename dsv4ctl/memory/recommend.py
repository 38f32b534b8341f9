"""Flags for an asked context: the largest KV pool that still leaves the slack named here, and a reason for each."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from dsv4ctl.memory import asked, budget, defaults, pool, verdict
from dsv4ctl.memory.asked import Ask, Indexer
from dsv4ctl.memory.budget import Budget
from dsv4ctl.memory.figures import size_text
from dsv4ctl.memory.gpus import Generation
from dsv4ctl.memory.sizes import GIB, gib
from dsv4ctl.model import Role
from dsv4ctl.quantity import count_text

# Kept free beyond what is planned for: graphs and activations are estimates, and their high ends lie 4 to 5 GiB up.
MARGIN_BYTES = gib(4.0)
# Where the pool would be too small for what is asked, less is kept rather than nothing served.
SMALLER_MARGINS_BYTES = (gib(2.5), gib(1.5), gib(0.75))
# SGLang's own rule never reserves less than 10 GiB of such a GPU; fractions of 0.93 and more were seen to lose a rank.
LEAST_SLACK_BYTES = gib(11.0)
LEAST_SLACK_SHARE = 0.1
LARGE_GPU_BYTES = gib(60.0)
# Speculation keeps this share of what is free besides.
SPECULATION_SHARE = 0.02
HIGHEST, LOWEST = 0.97, 0.30
CHUNKS = (16384, 8192, 4096, 2048)
# The table of running requests stays at 128 MiB: 64 requests of 512k, 32 of 1M.
TABLE_POSITIONS = 2**25
MOST_RUNNING, FEWEST_RUNNING = 64, 8
RATIOS = (0.05, 0.02)


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A recommended value: its key in the config ('' for an environment variable), how it is given, and why."""

    key: str
    option: str
    value: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """The recommended flags, and the budget with them."""

    choices: tuple[Choice, ...]
    budget: Budget


def fraction(ask: Ask) -> float | None:
    """The largest fraction, in hundredths, that leaves the slack for these flags; None where no fraction has a pool.

    With the full margin if the pool then holds what is asked, else with the largest smaller one that does.
    """
    with_margins = (_largest(ask, margin) for margin in (MARGIN_BYTES, *SMALLER_MARGINS_BYTES))
    found = [share for share in with_margins if share is not None]
    enough = (share for share in found if budget.of(replace(ask, fraction=share)).fitting >= ask.requests)
    return next(enough, found[0] if found else None)


def _largest(ask: Ask, margin_bytes: int) -> float | None:
    for hundredths in range(round(HIGHEST * 100), round(LOWEST * 100) - 1, -1):
        made = budget.of(replace(ask, fraction=hundredths / 100))
        if made.tokens and made.slack_bytes >= kept_slack_bytes(made, margin_bytes):
            return hundredths / 100
    return None


def kept_slack_bytes(made: Budget, margin_bytes: int = MARGIN_BYTES) -> int:
    """The slack that a recommendation leaves: what is needed and the margin, or the least for such a GPU."""
    margin = margin_bytes + (round(SPECULATION_SHARE * made.free_at_start_bytes) if made.ask.speculation else 0)
    least = _least_slack_bytes(made) if margin_bytes == MARGIN_BYTES else 0
    return max(least, made.needed_slack_bytes + margin)


def _least_slack_bytes(made: Budget) -> int:
    total_bytes = made.ask.gpu.total_bytes
    return LEAST_SLACK_BYTES if total_bytes > LARGE_GPU_BYTES else round(total_bytes * LEAST_SLACK_SHARE)


def config_lines(found: Advice) -> tuple[str, ...]:
    """The recommended flags as lines for the config.

    The fraction is left to the planner, which chooses the same with these flags, for each role of a mode its own.
    """
    lines = ["[memory]", f"context_length = {found.budget.ask.context_tokens}"]
    for key, value in ((one.key.removeprefix("memory."), one.value) for one in found.choices if one.key):
        lines.append(f'{key} = "auto"   # {value}' if key == "mem_fraction_static" else f"{key} = {value}")
    return tuple(lines)


def advise(ask: Ask) -> Advice:
    """Recommend every flag for the asked context; requests that are to run at once stay as they are asked for."""
    running = ask.running_requests or max(_running(ask), ask.requests)
    free = replace(ask, running_requests=running, graph_batch=None, chunk_tokens=None, window_ratio=None, fraction=None)
    free = replace(free, graph_batch=max(1, min(running, defaults.graph_batch(ask.gpu.total_mib, ask.tp, running))))
    free = replace(free, chunk_tokens=_chunk(free))
    free = replace(free, window_ratio=_ratio(free))
    share = fraction(free)
    made = budget.of(replace(free, fraction=share))
    return Advice(choices=tuple(_choices(made)), budget=made)


def _running(ask: Ask) -> int:
    most = TABLE_POSITIONS // ask.context_tokens * ask.attention_dp
    return max(FEWEST_RUNNING * ask.attention_dp, min(most, MOST_RUNNING * ask.attention_dp))


def _chunk(ask: Ask) -> int:
    """The largest chunk that costs no KV: with it the least slack is still enough. The smallest where none is."""
    own = defaults.chunk_tokens(ask.gpu.total_mib)
    for chunk in (size for size in CHUNKS if size <= own):
        share = _largest(replace(ask, chunk_tokens=chunk), MARGIN_BYTES)
        if share is None:
            continue
        made = budget.of(replace(ask, chunk_tokens=chunk, fraction=share))
        if made.needed_slack_bytes + MARGIN_BYTES <= _least_slack_bytes(made):
            return chunk
    return CHUNKS[-1]


def _ratio(ask: Ask) -> float | None:
    """A smaller window pool only where the KV would else not hold what is asked; None leaves the default."""
    if ask.checkpoint.model.window_from_requests or _holds(ask):
        return None
    for ratio in RATIOS:
        smaller = replace(ask, window_ratio=ratio)
        if _holds(smaller):
            return ratio
    return None


def _holds(ask: Ask) -> bool:
    share = fraction(ask)
    if share is None:
        return False
    made = budget.of(replace(ask, fraction=share))
    enough_window = made.pool.window_tokens >= pool.least_window_tokens(ask, made.flags)
    return made.fitting >= ask.requests and (ask.window_ratio is None or enough_window)


def _choices(made: Budget) -> Iterator[Choice]:
    ask, flags = made.ask, made.flags
    yield _choice("mem_fraction_static", f"{flags.fraction:.2f}", _why_fraction(made))
    if ask.role is not Role.DECODE:
        yield _choice("chunked_prefill_size", str(flags.chunk_tokens), _why_chunk(made))
    yield _choice("max_running_requests", str(flags.running_requests), _why_running(made))
    if ask.role is not Role.PREFILL:
        why = "no batch is larger than the requests that run, and each graph takes about 40 MiB"
        yield _choice("cuda_graph_max_bs_decode", str(flags.graph_batch), why)
    if ask.window_ratio is not None:
        yield _choice(
            "swa_full_tokens_ratio",
            f"{ask.window_ratio:g}",
            "the KV would else not hold what is asked; it costs cached prefixes, of which fewer can be reused",
        )
    elif not ask.checkpoint.model.window_from_requests:
        why = "the KV holds what is asked without shrinking the window pool, which would shorten what can be reused"
        yield _choice("swa_full_tokens_ratio", f"{defaults.WINDOW_RATIO:g}", why)
    if ask.role is not Role.DECODE:
        yield _indexer(made)


def _choice(name: str, value: str, why: str) -> Choice:
    return Choice(key=f"memory.{name}", option=f"--{name.replace('_', '-')}", value=value, why=why)


def _fixed(made: Budget, running: int) -> int:
    """Bytes of one GPU that so many running requests cost, whatever they do: their state and their table."""
    ask = replace(made.ask, running_requests=running)
    other = budget.of(ask)
    return other.pool.state_of_requests_bytes + other.bytes_of("request table")


def _why_fraction(made: Budget) -> str:
    needed, slack = verdict.gib(made.needed_slack_bytes), verdict.gib(made.slack_bytes)
    own = asked.flags(replace(made.ask, fraction=None)).fraction
    reason = f"estimates are good to {MARGIN_BYTES / GIB:.0f} GiB"
    if made.needed_slack_bytes + MARGIN_BYTES < _least_slack_bytes(made):
        reason = "SGLang's own rule never leaves less than 10 GiB of such a GPU"
    return f"leaves {slack} GiB where {needed} are needed: {reason}; SGLang would take {own:g} whatever the context"


def _why_running(made: Budget) -> str:
    own, asked_for = (_fixed(made, count) for count in (defaults.RUNNING_REQUESTS, made.flags.running_requests))
    return (
        f"their table and state take {size_text(asked_for)} a GPU whether they run or not; "
        f"SGLang's {defaults.RUNNING_REQUESTS} would take {size_text(own)}"
    )


def _why_chunk(made: Budget) -> str:
    logits = made.bytes_of("prefill logits")
    own = defaults.chunk_tokens(made.ask.gpu.total_mib)
    if made.flags.chunk_tokens == own:
        return f"SGLang's own; its logits take {size_text(logits)} at {count_text(made.ask.context_tokens)}"
    whole = budget.of(replace(made.ask, chunk_tokens=own)).bytes_of("prefill logits")
    if whole <= logits:
        return f"SGLang's {own} would cost KV: each token of a chunk takes about 0.35 MiB for activations"
    return f"logits of a chunk take {size_text(logits)}, and {size_text(whole)} with SGLang's {own}"


def _indexer(made: Budget) -> Choice:
    ask = made.ask
    both = "SGLANG_OPT_USE_TILELANG_INDEXER and SGLANG_FP8_PAGED_MQA_LOGITS_TORCH"
    if ask.indexer is not Indexer.TILELANG:
        why = "cuts its logits to a fifth of what is free; nothing is to be set"
        if ask.gpu.generation is Generation.SM120:
            why = "cuts its logits to a fifth of what is free; keep both variables at 0"
        return Choice(key="", option="indexer", value=str(ask.indexer), why=why)
    cut = budget.of(replace(ask, switches=replace(ask.switches, indexer=Indexer.DEEPGEMM)))
    why = (
        f"the default on {ask.gpu.generation.upper()}, and it does not cut logits; DeepGEMM does "
        f"({size_text(cut.bytes_of('prefill logits'))} for this chunk), with {both} both 0, after a smoke test"
    )
    return Choice(key="", option="indexer", value=str(ask.indexer), why=why)
