"""Memory plans -> lines and tables for people, and plain values for JSON. Pure: bars and colours belong to cli."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict

from dsv4ctl import modes
from dsv4ctl.memory import asked, explain, recommend, remedy, verdict
from dsv4ctl.memory.answers import Answer
from dsv4ctl.memory.budget import Budget
from dsv4ctl.memory.compare import Row
from dsv4ctl.memory.figures import Figure, Kind, Part, gib_text
from dsv4ctl.memory.foresee import Foreseen
from dsv4ctl.memory.marks import millions
from dsv4ctl.memory.recommend import Advice
from dsv4ctl.memory.spec import Unplanned
from dsv4ctl.quantity import count_text

NAME_WIDTH, NUMBER_WIDTH, KIND_WIDTH, RANGE_WIDTH = 26, 8, 8, 14
COMPARED = (
    "CONTEXT",
    "CHUNK",
    "FRACTION",
    "TOKENS",
    "AT ONCE",
    "8K AT ONCE",
    "COSTS SHORT REQUESTS",
    "LOGITS",
    "VERDICT",
)


def answer(found: Answer, *, explain: bool) -> str:
    """Everything about one role with one context: plan, recommendation, comparison, and the three questions."""
    faults = tuple(f"refused   {fault}" for fault in found.faults)
    if isinstance(found.found, Unplanned) or found.advice is None:
        return "\n".join((unplanned(found.found) if isinstance(found.found, Unplanned) else "", *faults))
    parts = ["\n".join((plan(found.found, found.shape.gpus), *faults))]
    parts += [advice(found.recommended)] if found.recommended else []
    parts += [comparison(found.rows)] if found.rows else []
    parts += [explained(found.found.budget, found.advice)] if explain else []
    return "\n\n".join(parts)


def plan(found: Foreseen, gpus: Sequence[int]) -> str:
    """One role's budget whole: the table, the tokens, and what to make of them."""
    made = found.budget
    ask = made.ask
    where = f"{ask.tp} x {ask.gpu.name}" + (f" (GPUs {modes.gpus_text(gpus)})" if gpus else "")
    head = f"{ask.role}: {ask.checkpoint.name} on {where}, context {count_text(ask.context_tokens)}"
    return "\n".join((head, *_table(made), "", *_outcome(found), *(f"warning: {w}" for w in found.verdict.warnings)))


def unplanned(found: Unplanned) -> str:
    """Why a role has no plan."""
    return f"{found.role}: cannot be planned: {found.why}; mem-fraction-static is left to the engine"


def advice(found: Advice) -> str:
    """The recommended flags, a sentence each."""
    ask = found.budget.ask
    head = f"recommended for {count_text(ask.context_tokens)} on {ask.tp} x {ask.gpu.name} ({ask.role}):"
    lines = (f"  {f'{one.option} {one.value}'.ljust(32)} {one.why}" for one in found.choices)
    tokens = f"  {found.budget.tokens:,} tokens a rank, {_requests(found.budget)}"
    config = (f"  {line}" for line in recommend.config_lines(found))
    return "\n".join((head, *lines, tokens, "in the config:", *config))


def comparison(rows: Sequence[Row]) -> str:
    """Contexts side by side, each with its recommended flags."""
    cells = [COMPARED, *(_compared(row, rows[0]) for row in rows)]
    widths = [max(len(line[n]) for line in cells) for n in range(len(COMPARED))]
    return "\n".join("  ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)).rstrip() for line in cells)


def explained(made: Budget, found: Advice) -> str:
    """The three questions with their answers."""
    pairs = zip(explain.QUESTIONS, explain.answers(made, found), strict=True)
    return "\n\n".join(f"{question}\n{answer}" for question, answer in pairs)


def line(found: Foreseen | Unplanned) -> str:
    """A plan in one line, as `plan` and `deploy` show it."""
    if isinstance(found, Unplanned):
        return f"memory of {unplanned(found)}"
    made = found.budget
    own = " (auto)" if found.auto else ""
    weights, kv, slack = (verdict.gib(n) for n in (made.weights_bytes, made.pool.used_bytes, made.slack_bytes))
    return (
        f"memory of {found.role}: weights {weights} GiB, KV {kv} GiB = {millions(made.tokens)} tokens "
        f"({_requests(made)}), slack {slack} GiB with mem-fraction-static {made.flags.fraction:g}{own}: "
        f"{found.verdict.answer}"
    )


def values(found: Foreseen | Unplanned) -> dict[str, object]:
    """A plan for JSON: every figure in bytes with its kind and range."""
    if isinstance(found, Unplanned):
        return {"role": found.role, "planned": False, "why": found.why}
    made = found.budget
    return {
        "role": found.role,
        "planned": True,
        "auto": found.auto,
        "from_mark": found.from_mark,
        **budget_values(made),
        "verdict": asdict(found.verdict),
        "way_out": found.way_out,
    }


def budget_values(made: Budget) -> dict[str, object]:
    """A budget for JSON."""
    ask = made.ask
    return {
        "gpu": ask.gpu.name,
        "checkpoint": ask.checkpoint.name,
        "checkpoint_source": ask.checkpoint.source,
        "engine_version": ask.engine_version,
        "tp": ask.tp,
        "attention_dp": ask.attention_dp,
        "context_tokens": ask.context_tokens,
        "flags": asdict(made.flags),
        "indexer": ask.indexer,
        "total_bytes": ask.gpu.total_bytes,
        "free_at_start_bytes": made.free_at_start_bytes,
        "slack_bytes": made.slack_bytes,
        "figures": [asdict(one) for one in made.figures],
        "bytes_per_token": made.pool.bytes_per_token,
        "tokens": made.tokens,
        "tokens_range": made.tokens_range,
        "tokens_of_node": made.tokens_of_node,
        "window_tokens": made.pool.window_tokens,
        "requests_at_once": made.fitting,
        "limit": verdict.limit(made),
        "lifted_by": [change.words for change in remedy.lifts(ask)],
    }


def answer_values(found: Answer) -> dict[str, object]:
    """Everything about one role with one context, for JSON."""
    return {
        **values(found.found),
        "gpus": found.shape.gpus,
        "faults": found.faults,
        "recommended": advice_values(found.recommended) if found.recommended else None,
        "compared": [row_values(row, found.rows[0]) for row in found.rows],
    }


def advice_values(found: Advice) -> dict[str, object]:
    """Recommended flags for JSON."""
    return {
        "choices": [asdict(one) for one in found.choices],
        "config": "".join(f"{line}\n" for line in recommend.config_lines(found)),
        "budget": budget_values(found.budget),
    }


def row_values(row: Row, first: Row) -> dict[str, object]:
    """A compared context for JSON."""
    return {
        "context_tokens": row.context_tokens,
        "answer": row.answer,
        "short_requests_at_once": row.short,
        "short_requests_in_pool": row.short_by_tokens,
        "cost_to_short_requests": row.cost(first),
        "budget": budget_values(row.budget),
    }


def _table(made: Budget) -> Iterator[str]:
    yield _row("", "GiB", "kind", "range, note")
    yield _row("total", gib_text(made.ask.gpu.total_bytes))
    yield from _part(made, Part.OUTSIDE)
    yield _row("free at start", gib_text(made.free_at_start_bytes))
    yield from _part(made, Part.WEIGHTS)
    yield _row("  KV pool", gib_text(made.pool.used_bytes), Kind.EXACT, f"{made.tokens:,} tokens")
    yield from (_figure(one, "    ") for one in made.figures if one.part is Part.POOL)
    yield _row("slack", gib_text(made.slack_bytes), "", f"1 - {made.flags.fraction:g} of what is free at start")
    yield from _part(made, Part.SLACK)
    yield from (_figure(one, "") for one in made.figures if one.part is Part.LEFT)


def _part(made: Budget, part: Part) -> Iterator[str]:
    yield from (_figure(one, "  ") for one in made.figures if one.part is part)


def _figure(one: Figure, indent: str) -> str:
    span = f"{gib_text(one.low_bytes)} to {gib_text(one.high_bytes)}" if one.kind is Kind.ESTIMATE else ""
    told = f"{span.ljust(RANGE_WIDTH)} {one.note}" if span and one.note else span or one.note
    return _row(f"{indent}{one.name}", gib_text(one.bytes), one.kind, told)


def _row(name: str, amount: str, kind: str = "", told: str = "") -> str:
    return f"{name.ljust(NAME_WIDTH)}{amount.rjust(NUMBER_WIDTH)}  {kind.ljust(KIND_WIDTH)}  {told}".rstrip()


def _outcome(found: Foreseen) -> Iterator[str]:
    made = found.budget
    few, many = made.tokens_range
    ranks = f", {made.tokens_of_node:,} on the node" if made.ask.attention_dp > 1 else ""
    yield f"tokens    {made.tokens:,} a rank ({few:,} to {many:,}){ranks}, {made.pool.bytes_per_token:,.2f} bytes each"
    yield f"requests  {_requests(made)}"
    yield f"flags     {_flags(found)}"
    yield f"limit     {_limit(made)}"
    yield f"verdict   {found.verdict.answer}: {'; '.join(found.verdict.reasons)}"
    if found.way_out:
        yield f"try       {found.way_out}"


def _requests(made: Budget) -> str:
    return f"{made.fitting} of {count_text(made.ask.context_tokens)} at once"


def _flags(found: Foreseen) -> str:
    made = found.budget
    ask, flags = made.ask, made.flags
    own = asked.flags(ask)
    given = (
        ("mem-fraction-static", f"{flags.fraction:g}", "auto" if found.auto else ""),
        ("chunked-prefill-size", str(own.chunk_tokens), _whose(ask.chunk_tokens)),
        ("max-running-requests", str(own.running_requests), _whose(ask.running_requests)),
        ("cuda-graph-max-bs-decode", str(flags.graph_batch), _whose(ask.graph_batch)),
        ("swa-full-tokens-ratio", _ratio(made), _whose(ask.window_ratio)),
        ("indexer", str(ask.indexer), ""),
    )
    return ", ".join(f"{name} {value}{f' ({whose})' if whose else ''}" for name, value, whose in given)


def _whose(given: float | None) -> str:
    return "SGLang's" if given is None else ""


def _ratio(made: Budget) -> str:
    ratio = made.flags.window_ratio
    return "from the requests" if ratio is None else f"{ratio:g}"


def _limit(made: Budget) -> str:
    lifts = [change.words for change in remedy.lifts(made.ask)]
    words = verdict.limit(made)
    return f"{words}; {' or '.join(lifts)} lifts it" if lifts and words.startswith("prefill logits") else words


def _compared(row: Row, first: Row) -> tuple[str, ...]:
    made = row.budget
    cost = row.cost(first)
    return (
        count_text(row.context_tokens),
        str(made.flags.chunk_tokens),
        f"{made.flags.fraction:.2f}",
        f"{made.tokens:,}",
        str(made.fitting),
        f"{row.short} of {row.short_by_tokens}",
        f"no compute, {cost:.0%} of concurrency" if cost > 0 else "no compute, no concurrency",
        f"{gib_text(made.bytes_of('prefill logits'))} GiB",
        str(row.answer),
    )
