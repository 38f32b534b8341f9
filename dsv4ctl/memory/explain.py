"""The operator's three questions, answered in plain words with the numbers of this host."""

from dataclasses import replace

from dsv4ctl.memory import asked, budget, compare, recommend, remedy, verdict
from dsv4ctl.memory.budget import Budget
from dsv4ctl.memory.figures import Kind, size_text
from dsv4ctl.memory.recommend import Advice
from dsv4ctl.memory.verdict import Answer, gib
from dsv4ctl.quantity import count_text

QUESTIONS = (
    "Is the KV cache as large as it can be?",
    "Can we serve 512k, or 1M?",
    "Does a longer context slow everybody else?",
)
LONG_CONTEXTS = (512 * 1024, 1024 * 1024)


def answers(made: Budget, advice: Advice) -> tuple[str, ...]:
    """One answer a question, in the order of QUESTIONS."""
    return as_large(made, advice), long_contexts(made), others(made)


def as_large(made: Budget, advice: Advice) -> str:
    """Whether the pool could be larger, and what stands in its way."""
    best, now = advice.budget, made.flags.fraction
    own = asked.flags(replace(made.ask, fraction=None)).fraction
    here = (
        f"It holds {made.tokens:,} tokens a rank. Of {gib(made.free_at_start_bytes)} GiB that are free at start, with "
        f"mem-fraction-static {now:g}, weights take {gib(made.weights_bytes)}, KV {gib(made.pool.offered_bytes)}, and "
        f"{gib(made.slack_bytes)} are slack, of which {gib(made.needed_slack_bytes)} are needed ({_trust(made)}): "
        f"{gib(made.left_bytes)} GiB are left. "
    )
    if best.tokens > made.tokens * 1.01:
        more = best.tokens / max(1, made.tokens) - 1
        return here + (
            f"It could be {more:.0%} larger, {best.tokens:,} tokens, with {_flags(advice)}. More than that would rely "
            "on estimates. More ranks help only by weights: nothing of the KV is sharded by tensor parallelism."
        )
    return here + (
        f"Yes: what is recommended holds {best.tokens:,}. More would take from the slack that a long prompt needs "
        f"(SGLang by itself would take {own:g}, whatever the context)."
    )


def long_contexts(made: Budget) -> str:
    """Whether 512k and 1M can be served, how many at once, and what limits them."""
    return " ".join(_long(made, context) for context in LONG_CONTEXTS)


def _long(made: Budget, context: int) -> str:
    longest = made.ask.checkpoint.model.longest_tokens
    if context > longest:
        return f"{count_text(context)}: no, the model ends at {count_text(longest)}."
    best = recommend.advise(replace(made.ask, context_tokens=context)).budget
    found = verdict.of(best)
    if found.answer is Answer.DOES_NOT_FIT:
        return f"{count_text(context)}: no. {_sentence(found.reasons[0])}."
    at_once = f"{best.fitting} at once, with {_recommended(best)}"
    now = budget.of(replace(made.ask, context_tokens=context))
    return f"{count_text(context)}: yes, {at_once}. {_as_configured(now)}"


def _as_configured(now: Budget) -> str:
    found = verdict.of(now)
    if found.answer is not Answer.DOES_NOT_FIT:
        return f"The flags as they are would do, too; what bounds them is {verdict.limit(now)}."
    lifts = " or ".join(change.words for change in remedy.lifts(now.ask))
    return f"Not with the flags as they are: {found.reasons[0]}{f'; {lifts} lifts it' if lifts else ''}."


def others(made: Budget) -> str:
    """What a longer --context-length costs the requests that are short."""
    longest = made.ask.checkpoint.model.longest_tokens
    short, long = compare.rows(made.ask, (compare.SHORT_TOKENS * 16, longest))
    table, logits = (size_text(long.budget.bytes_of(name)) for name in ("request table", "decode logits"))
    names = count_text(compare.SHORT_TOKENS), count_text(short.context_tokens), count_text(longest)
    share, chunk = longest / max(1, long.budget.tokens), long.budget.flags.chunk_tokens
    return (
        "In compute, no: attention reads what a request really holds, not --context-length. What the length costs is "
        f"memory set aside: at {names[2]} {table} for the request table and {logits} for the logits of decode graphs. "
        f"In concurrency: the pool holds {short.short_by_tokens} requests of {names[0]} with {names[1]} and "
        f"{long.short_by_tokens} with {names[2]}, of which {short.short} and {long.short} run at once. While a request "
        f"of {names[2]} is in, it holds {share:.0%} of the pool, and its prompt is computed in chunks of {chunk}, each "
        "of them a pause for the others."
    )


def _trust(made: Budget) -> str:
    measured = any(one.kind is Kind.MEASURED for one in made.figures)
    return "partly measured here" if measured else "an estimate"


def _flags(advice: Advice) -> str:
    return " ".join(f"{one.option} {one.value}" for one in advice.choices if one.key)


def _recommended(best: Budget) -> str:
    flags = best.flags
    return (
        f"--mem-fraction-static {flags.fraction:.2f} --chunked-prefill-size {flags.chunk_tokens} "
        f"--max-running-requests {flags.running_requests}"
    )


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]
