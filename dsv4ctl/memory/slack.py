"""What must fit into the memory that the fraction leaves free: tables, graphs, activations, and the indexer's logits.

None of it is charged to the engine's pools. Graphs and activations are fits to a few logs and carry their range.
"""

from dsv4ctl.memory import defaults
from dsv4ctl.memory.asked import Ask, Flags, Indexer
from dsv4ctl.memory.figures import Figure, Part, estimate, exact, size_text, total
from dsv4ctl.memory.gpus import Generation
from dsv4ctl.memory.pool import Pool
from dsv4ctl.memory.sizes import MB, MIB, gib
from dsv4ctl.model import Role

# One extra page a layer and pool: 15.8 and 17.0 MB in two executed allocations.
PADDING_BYTES = 20 * MB
# NCCL's buffers and what torch's allocator keeps beside.
NCCL_BYTES, NCCL_SPAN = gib(0.5), (0.6, 1.6)
# 1.93 GiB for 36 graphs, 0.6 for 3; 2.63 for 12 with all else that a start takes besides. Half more with speculation.
GRAPHS_BYTES, GRAPH_BYTES, GRAPHS_SPAN = gib(0.5), 40 * MIB, (0.7, 1.8)
# A 780k prompt in chunks of 8192 fits beside graphs and logits into 6.6 GiB; SGLang's own rule allows 1.5 MiB a token.
ACTIVATIONS_BYTES, ACTIVATION_BYTES, ACTIVATIONS_SPAN = gib(1.0), round(0.35 * MIB), (0.6, 1.4)
# DeepGEMM takes at most so many rows at once where it is opt-in, and never more than 0.3 of a GPU for logits.
DEEPGEMM_ROWS = 4096
LOGITS_MOST_SHARE = 0.3
# Layers of ratio 1 have a column a token; 0.5.23 keeps their logits to about this.
V41_LOGITS_BYTES = gib(2.0)
NEVER_CUT_BYTES = 8 * MIB * 4
# The torch fallback gathers every query's keys, 644 to 772 bytes for each compressed column, in pieces of 1024 queries.
TORCH_ROWS, TORCH_BYTES, TORCH_SPAN = 1024, 708, (0.91, 1.09)


def figures(ask: Ask, flags: Flags, pool: Pool, slack_bytes: int) -> tuple[Figure, ...]:
    """Everything in a slack of `slack_bytes` that is not left; amounts of 0 are left out."""
    found = (
        estimate("NCCL and allocator", Part.SLACK, NCCL_BYTES, NCCL_SPAN),
        exact("request table", Part.SLACK, request_table_bytes(ask, flags), note=_table_note(ask, flags)),
        exact("window map", Part.SLACK, 8 * pool.tokens),
        estimate("pool padding", Part.SLACK, PADDING_BYTES if pool.tokens else 0, (0.75, 1.0)),
        *_graphs(ask, flags),
        _activations(ask, flags),
        *_tables(ask, flags),
        _page_split(ask, pool),
    )
    free = slack_bytes - total(found)
    return tuple(one for one in (*found, *_prefill_logits(ask, flags, free)) if one.bytes)


def request_table_bytes(ask: Ask, flags: Flags) -> int:
    """req_to_token: four bytes for every position of every request that may run, and of one more."""
    margin = 4 + (ask.draft_tokens if ask.speculation else 0)
    return 4 * (flags.running_rank + 1) * (ask.context_tokens + margin)


def logits_bytes(rows: int, context_tokens: int, ratio: int = 4) -> int:
    """The indexer's logits, FP32 over compressed columns: rows x context / ratio x 4 bytes, of one layer at a time."""
    return rows * _columns(context_tokens, ratio) * 4


def logits_note(rows: int, context_tokens: int, ratio: int = 4) -> str:
    """The same in numbers a reader can check: 64 x 131072 x 4 = 33.5 MB."""
    amount = logits_bytes(rows, context_tokens, ratio)
    return f"{rows} x {_columns(context_tokens, ratio)} x 4 = {size_text(amount)}"


def _columns(context_tokens: int, ratio: int) -> int:
    """Whole pages of 256 tokens."""
    return -(-context_tokens // 256) * 256 // ratio


def logits_limit_bytes(ask: Ask, flags: Flags, free_bytes: int) -> int | None:
    """What DeepGEMM cuts a chunk's logits to, with so much free at that moment; None for kernels that do not cut."""
    if ask.indexer is not Indexer.DEEPGEMM:
        return None
    total_bytes, share = ask.gpu.total_bytes, ask.switches.logits_share
    most = min(share * max(0, free_bytes), share * total_bytes * (1 - flags.fraction), LOGITS_MOST_SHARE * total_bytes)
    # Tensors of fewer than 8 M elements are never cut.
    return max(NEVER_CUT_BYTES, round(most))


def _table_note(ask: Ask, flags: Flags) -> str:
    return f"{flags.running_rank + 1} x {ask.context_tokens} x 4"


def _graphs(ask: Ask, flags: Flags) -> tuple[Figure, ...]:
    if ask.role is Role.PREFILL or not ask.decode_graphs:
        return ()
    speculative = ask.speculation is not None
    count = len(defaults.captured(flags.graph_batch, speculative=speculative))
    amount = round((GRAPHS_BYTES + GRAPH_BYTES * count) * (1.5 if speculative else 1.0))
    graphs = estimate("decode graphs", Part.SLACK, amount, GRAPHS_SPAN, note=f"{count} up to batch {flags.graph_batch}")
    if ask.measured.graphs_bytes is not None:
        # What the engine says of its graphs holds the logits, too.
        return (graphs.told(ask.measured.graphs_bytes),)
    rows = flags.graph_batch * ask.draft_tokens
    ratio = ask.checkpoint.model.index_ratio
    note = logits_note(rows, ask.context_tokens, ratio)
    logits = exact("decode logits", Part.SLACK, logits_bytes(rows, ask.context_tokens, ratio), note=note)
    return graphs, logits, _partials(ask, flags)


def _partials(ask: Ask, flags: Flags) -> Figure:
    """SM120's decode kernels split a long context and add up. The low end is the arithmetic, the high end padded."""
    heads = -(-ask.checkpoint.model.heads // max(1, ask.tp // ask.attention_dp))
    applies = ask.gpu.generation is Generation.SM120
    each = round(min(flags.graph_batch, 64) * (2 + ask.context_tokens / 8192) * 1028) if applies else 0
    padded = ask.checkpoint.model.heads / heads
    return estimate("decode partials", Part.SLACK, each * heads, (1.0, padded), note=f"{heads} heads")


def _activations(ask: Ask, flags: Flags) -> Figure:
    tokens = flags.chunk_rank if ask.role is not Role.DECODE else flags.running_rank * ask.draft_tokens
    amount = ACTIVATIONS_BYTES + ACTIVATION_BYTES * tokens
    return estimate("activations", Part.SLACK, amount, ACTIVATIONS_SPAN, note=f"{tokens} tokens at once")


def _tables(ask: Ask, flags: Flags) -> tuple[Figure, ...]:
    """What a chunk of a prompt of the whole context needs. A decode engine gets its KV from a prefill engine."""
    if ask.role is Role.DECODE:
        return ()
    rows = min(flags.chunk_rank, ask.context_tokens)
    amount = rows * ask.context_tokens * 3 // 64
    return exact("index tables", Part.SLACK, amount, note="pages and compressed pages of a chunk"), _gather(ask, rows)


def _prefill_logits(ask: Ask, flags: Flags, free_bytes: int) -> tuple[Figure, ...]:
    if ask.role is Role.DECODE:
        return ()
    name, rows, context = "prefill logits", min(flags.chunk_rank, ask.context_tokens), ask.context_tokens
    if ask.indexer is Indexer.TORCH:
        amount = min(rows, TORCH_ROWS) * context // 4 * TORCH_BYTES
        return (estimate(name, Part.SLACK, amount, TORCH_SPAN, note="torch gathers every query's keys"),)
    ratio = ask.checkpoint.model.index_ratio
    amount, whole = logits_bytes(rows, context, ratio), logits_note(rows, context, ratio)
    limit = logits_limit_bytes(ask, flags, free_bytes)
    if ratio == 1:
        limit = min(limit or V41_LOGITS_BYTES, V41_LOGITS_BYTES)
    if limit is None:
        return (exact(name, Part.SLACK, amount, note=f"{whole}, not cut by {ask.indexer}"),)
    if ask.gpu.generation is Generation.SM120 and ask.indexer is Indexer.DEEPGEMM:
        rows = min(rows, DEEPGEMM_ROWS)
    cut = min(logits_bytes(rows, context, ratio), limit)
    return (exact(name, Part.SLACK, cut, note=whole if cut == amount else f"{whole}, cut to {size_text(cut)}"),)


def _gather(ask: Ask, rows: int) -> Figure:
    """SM90 and SM100 gather what a sparse prefill reads: 256 bytes a token of context, and about twice that again."""
    sparse = ask.gpu.generation in (Generation.SM90, Generation.SM100, Generation.SM103)
    keys = 33 if ask.indexer is Indexer.DEEPGEMM and rows >= ask.switches.nonpaged_from_tokens else 0
    amount = ask.context_tokens * ((768 if sparse else 0) + keys)
    return estimate("sparse gather", Part.SLACK, amount, (0.5, 1.2))


def _page_split(ask: Ask, pool: Pool) -> Figure:
    """SM120 copies one layer's window into pages of another size, and keeps the copy."""
    applies = ask.gpu.generation is Generation.SM120 and not ask.switches.direct_window
    amount = round(pool.per_token.window / ask.checkpoint.model.layers * pool.window_tokens) if applies else 0
    return exact("window copy", Part.SLACK, amount, note="of one layer")
