"""The smallest change that makes a config fit that does not."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from dsv4ctl.memory import budget, recommend, verdict
from dsv4ctl.memory.asked import Ask, Indexer, flags
from dsv4ctl.memory.gpus import Generation
from dsv4ctl.memory.sizes import floor_to
from dsv4ctl.memory.verdict import Answer

CONTEXT_STEP_TOKENS = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What to type, and what would be asked then."""

    words: str
    ask: Ask


def of(ask: Ask) -> Change | None:
    """The first change that fits, from those that cost nothing to a shorter context and more ranks; None: none does."""
    return next((change for change in _changes(ask) if _fits(change.ask)), None)


def lifts(ask: Ask) -> tuple[Change, ...]:
    """What makes a chunk's logits smaller with the fraction as it is: a smaller chunk, and kernels that cut them."""
    if ask.indexer is Indexer.DEEPGEMM:
        return ()
    now = flags(ask)
    needed = budget.of(ask).bytes_of("prefill logits")
    smaller = (replace(ask, chunk_tokens=chunk) for chunk in recommend.CHUNKS if chunk < now.chunk_tokens)
    chunk = next((one for one in smaller if _fits(one)), None)
    found = []
    if chunk is not None and budget.of(chunk).bytes_of("prefill logits") < needed:
        found.append(Change(words=f"--chunked-prefill-size {chunk.chunk_tokens}", ask=chunk))
    found += [change for change in _deepgemm(ask) if _fits(change.ask)]
    return tuple(found)


def _fits(ask: Ask) -> bool:
    return verdict.of(budget.of(ask)).answer is not Answer.DOES_NOT_FIT


def _changes(ask: Ask) -> Iterator[Change]:
    longest = ask.checkpoint.model.longest_tokens
    if ask.context_tokens > longest and not ask.switches.longer_context:
        yield from _with_fraction(replace(ask, context_tokens=longest), f"--context-length {longest}")
    yield from _fraction(ask)
    now = flags(ask)
    for running in (64, 32, 16, 8):
        if running < now.running_requests:
            fewer = replace(ask, running_requests=running, graph_batch=min(running, ask.graph_batch or running))
            yield from _with_fraction(fewer, f"--max-running-requests {running}")
    for chunk in recommend.CHUNKS:
        if 0 < chunk < now.chunk_tokens or now.chunk_tokens < 0:
            yield from _with_fraction(replace(ask, chunk_tokens=chunk), f"--chunked-prefill-size {chunk}")
    if ask.gpu.generation is Generation.SM120 and ask.indexer is not Indexer.DEEPGEMM:
        yield from _deepgemm(ask)
    for ratio in recommend.RATIOS:
        if now.window_ratio is not None and ratio < now.window_ratio:
            yield from _with_fraction(replace(ask, window_ratio=ratio), f"--swa-full-tokens-ratio {ratio:g}")
    yield from _context(ask)
    for tp in (4, 8):
        if tp > ask.tp and ask.attention_dp == 1:
            yield from _with_fraction(replace(ask, tp=tp), f"--mode single-tp{tp}")


def _fraction(ask: Ask) -> Iterator[Change]:
    """The fraction alone: the nearest hundredth that fits."""
    now = flags(ask).fraction
    near = sorted(range(30, 98), key=lambda hundredths: abs(hundredths / 100 - now))
    for hundredths in near:
        changed = replace(ask, fraction=hundredths / 100)
        if _fits(changed):
            yield Change(words=f"--mem-fraction-static {hundredths / 100:.2f}", ask=changed)
            return


def _with_fraction(ask: Ask, words: str) -> Iterator[Change]:
    """A change with the fraction as it is, else with the one recommended for it."""
    yield Change(words=words, ask=ask)
    share = recommend.fraction(ask)
    if share is not None and share != ask.fraction:
        yield Change(words=f"{words} --mem-fraction-static {share:.2f}", ask=replace(ask, fraction=share))


def _deepgemm(ask: Ask) -> Iterator[Change]:
    changed = replace(ask, switches=replace(ask.switches, indexer=Indexer.DEEPGEMM))
    words = "SGLANG_OPT_USE_TILELANG_INDEXER=0 and SGLANG_FP8_PAGED_MQA_LOGITS_TORCH=0 in [engine.environment]"
    yield Change(words=words, ask=changed)


def _context(ask: Ask) -> Iterator[Change]:
    """The longest context that fits, in steps of 1024 tokens, by bisection."""
    low, high = 0, min(ask.context_tokens, ask.checkpoint.model.longest_tokens) // CONTEXT_STEP_TOKENS
    longest = _shorter(ask, high)
    if not _fits(longest):
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if _fits(_shorter(ask, middle)) else (low, middle)
        longest = _shorter(ask, low) if low else ask
    if longest.context_tokens < ask.context_tokens:
        yield Change(words=f"--context-length {longest.context_tokens}", ask=longest)


def _shorter(ask: Ask, steps: int) -> Ask:
    return replace(ask, context_tokens=floor_to(CONTEXT_STEP_TOKENS, max(1, steps) * CONTEXT_STEP_TOKENS))
