"""Whether a budget can be: what speaks against it, in sentences, and whether that is certain."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from dsv4ctl.memory import layout, pool
from dsv4ctl.memory.asked import Indexer
from dsv4ctl.memory.budget import IMPRECISE_BELOW_BYTES, Budget
from dsv4ctl.memory.figures import Part, size_text
from dsv4ctl.memory.gpus import Generation
from dsv4ctl.memory.sizes import GIB
from dsv4ctl.memory.weights import Experts
from dsv4ctl.quantity import count_text

# Beyond it the torch fallback of the indexer gathers tens of GB.
TORCH_LIMIT_TOKENS = 65536


class Answer(StrEnum):
    """Fits even if every estimate is at its high end; fits if they are right; does not fit."""

    FITS = "fits"
    TIGHT = "tight"
    DOES_NOT_FIT = "does not fit"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The answer and its reasons. `certain`: no estimate could save it, so that a deploy is refused."""

    answer: Answer
    reasons: tuple[str, ...]
    certain: bool = False
    warnings: tuple[str, ...] = ()


def of(budget: Budget) -> Verdict:
    """Judge a budget."""
    warnings = tuple(_warnings(budget))
    if impossible := tuple(_impossible(budget)):
        return Verdict(answer=Answer.DOES_NOT_FIT, reasons=impossible, certain=True, warnings=warnings)
    if too_small := tuple(_too_small(budget)):
        certain = budget.tokens_range[1] < budget.ask.context_tokens
        return Verdict(answer=Answer.DOES_NOT_FIT, reasons=too_small, certain=certain, warnings=warnings)
    worst, best = budget.left_range_bytes
    if budget.left_bytes < 0:
        return Verdict(answer=Answer.DOES_NOT_FIT, reasons=(_short(budget),), certain=best < 0, warnings=warnings)
    if worst < 0:
        words = f"{_free(budget)}; {gib(-worst)} GiB would be missing if every estimate were at its high end"
        return Verdict(answer=Answer.TIGHT, reasons=(words,), warnings=warnings)
    words = f"{_free(budget)}, {gib(worst)} GiB even if every estimate is at its high end"
    return Verdict(answer=Answer.FITS, reasons=(words,), warnings=warnings)


def limit(budget: Budget) -> str:
    """What bounds the context of this engine: the pool, or what a long prompt needs of the slack."""
    name, context = largest(budget), count_text(budget.ask.context_tokens)
    figure = next((f for f in budget.figures if f.name == name), None)
    of_pool = budget.ask.context_tokens / max(1, budget.tokens)
    of_slack = figure.bytes / max(1, budget.slack_bytes) if figure else 0.0
    cut = name == "prefill logits" and budget.ask.indexer is Indexer.DEEPGEMM
    if figure is None or cut or of_pool >= of_slack:
        return f"the KV pool, of which one request of {context} takes {of_pool:.0%}"
    return f"{name} against slack: {figure.note}, of the {gib(budget.slack_bytes)} GiB that the fraction leaves free"


def gib(amount: int) -> str:
    """Bytes in GiB, one decimal."""
    return f"{amount / GIB:.1f}"


def largest(budget: Budget) -> str:
    """The figure of the slack that grows with the context and takes most of it."""
    grows = ("prefill logits", "request table", "decode logits", "index tables", "sparse gather", "decode partials")
    return max(grows, key=budget.bytes_of)


def _free(budget: Budget) -> str:
    count = budget.fitting
    fitting = f"{count} request{'s' * (count != 1)} of {count_text(budget.ask.context_tokens)} tokens at once"
    return f"{fitting}; {gib(budget.left_bytes)} GiB of the slack are left"


def _short(budget: Budget) -> str:
    """What is too large for the slack, by name."""
    name = largest(budget)
    share = f"{name} {size_text(budget.bytes_of(name))}"
    needed, slack = gib(budget.needed_slack_bytes), gib(budget.slack_bytes)
    return (
        f"it is {name} against slack: {needed} GiB are needed ({share}) and mem-fraction-static "
        f"{budget.flags.fraction:g} leaves {slack} GiB"
    )


def _impossible(budget: Budget) -> Iterator[str]:
    ask, longest = budget.ask, budget.ask.checkpoint.model.longest_tokens
    if ask.context_tokens > longest and not ask.switches.longer_context:
        yield (
            f"context {count_text(ask.context_tokens)} is above the model's {count_text(longest)}: ask for "
            f"--context-length {longest} at most"
        )
    if ask.indexer is Indexer.TORCH and ask.context_tokens > TORCH_LIMIT_TOKENS:
        yield (
            f"the torch indexer gathers {size_text(budget.bytes_of('prefill logits'))} at this context: leave "
            "SGLANG_OPT_USE_TILELANG_INDEXER unset, or set it and SGLANG_FP8_PAGED_MQA_LOGITS_TORCH both to 0"
        )
    if ask.fp4_indexer and ask.indexer is not Indexer.DEEPGEMM:
        yield (
            "--enable-deepseek-v4-fp4-indexer needs DeepGEMM: set SGLANG_OPT_USE_TILELANG_INDEXER and "
            "SGLANG_FP8_PAGED_MQA_LOGITS_TORCH to 0, or leave the option out; it gains no tokens"
        )
    window = budget.pool.window_tokens
    if budget.tokens and window <= pool.LEAST_WINDOW_TOKENS and not budget.pool.window_capped:
        least = (pool.LEAST_WINDOW_TOKENS + layout.PAGE_TOKENS) / budget.tokens
        yield (
            f"the window pool holds {window} tokens, and one request needs more than {pool.LEAST_WINDOW_TOKENS}: "
            f"raise --swa-full-tokens-ratio to {math.ceil(least * 10000) / 10000:g}"
        )


def _too_small(budget: Budget) -> Iterator[str]:
    """What depends on weights and free memory, whose ends decide whether it is certain."""
    ask, weights_bytes, free_bytes = budget.ask, budget.weights_bytes, budget.free_at_start_bytes
    if weights_bytes >= free_bytes:
        yield (
            f"the weights take {gib(weights_bytes)} GiB and {ask.gpu.name} has {gib(free_bytes)} GiB free: use more "
            "ranks, or a smaller checkpoint"
        )
    elif budget.offered_bytes <= 0:
        least = math.ceil(weights_bytes / free_bytes * 1000) / 1000
        yield (
            f"mem-fraction-static {budget.flags.fraction:g} is below the weights: they take {gib(weights_bytes)} of "
            f"{gib(free_bytes)} GiB, so it must be above {least:.3f}"
        )
    elif budget.tokens < ask.context_tokens:
        context = count_text(ask.context_tokens)
        yield f"the KV pool holds {budget.tokens} tokens, fewer than one request of {context}"
    elif budget.fitting < ask.requests:
        context = count_text(ask.context_tokens)
        yield f"the KV pool holds {budget.fitting} requests of {context} at once, and {ask.requests} are asked for"


def _warnings(budget: Budget) -> Iterator[str]:
    ask = budget.ask
    if warning := layout.of(ask.engine_version)[1]:
        yield warning
    if 0 < budget.offered_bytes < IMPRECISE_BELOW_BYTES:
        yield (
            f"the budget of the KV pool is {gib(budget.offered_bytes)} GiB: below {gib(IMPRECISE_BELOW_BYTES)} GiB a "
            "tenth of a GiB more or less in weights or free memory changes the pool by percents"
        )
    least = pool.least_window_tokens(ask, budget.flags)
    if pool.LEAST_WINDOW_TOKENS < budget.pool.window_tokens < least:
        yield (
            f"the window pool holds {budget.pool.window_tokens} tokens, and {budget.flags.running_rank} running "
            f"requests may need {least}: fewer will run at once"
        )
    if ask.checkpoint.experts is Experts.NVFP4 and ask.gpu.generation in (Generation.SM90, Generation.SM120):
        yield (
            "left alone, SGLang takes MoE kernels for this NVFP4 checkpoint that run on SM100 only: set "
            'engine.args = ["--moe-runner-backend", "flashinfer_cutlass"]'
        )
    if not ask.checkpoint.fitted:
        yield f"no log of {ask.checkpoint.name} confirms its weights; they may be a fifth less or a twelfth more"
    outside = [f for f in budget.figures if f.part is Part.OUTSIDE]
    if not ask.gpu.free_known and all(f.kind != "measured" for f in outside):
        yield f"what is free on {ask.gpu.name} when an engine starts is not published; taken as on others"
