"""The KV pools that a budget of bytes buys, sub-pool by sub-pool: the engine's own arithmetic."""

from dataclasses import dataclass

from dsv4ctl.memory import layout
from dsv4ctl.memory.asked import Ask, Flags
from dsv4ctl.memory.figures import Figure, Part, exact
from dsv4ctl.memory.layout import PAGE_TOKENS, Layout, PerToken
from dsv4ctl.memory.models import WINDOW_TOKENS
from dsv4ctl.memory.sizes import ceil_to, floor_to

# A window pool of no more than this cannot hold one request, and the engine refuses it.
LEAST_WINDOW_TOKENS = WINDOW_TOKENS + PAGE_TOKENS
# SGLANG_SWA_EVICTION_INTERVAL, and cached prefixes for each running request whose last window is kept.
_EVICTION_TOKENS = 128
_TAILS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """The pools of one GPU. `tokens`: max_total_num_tokens; `offered_bytes`: what they were sized from."""

    tokens: int
    window_tokens: int
    bytes_per_token: float
    offered_bytes: int
    per_token: PerToken
    state_of_requests_bytes: int
    window_capped: bool

    @property
    def used_bytes(self) -> int:
        """What the pools take of what was offered."""
        window = self.window_tokens * self.per_token.window_token if self.window_capped else 0
        grown = self.tokens * self.bytes_per_token + window * self.per_token.inflation
        return min(self.offered_bytes, round(grown) + self.state_of_requests_bytes)


def layout_of(ask: Ask) -> Layout:
    """The pools' layout of the engine asked for."""
    found, _ = layout.of(ask.engine_version)
    return layout.uniform(found) if ask.uniform_rows else found


def of(ask: Ask, flags: Flags, offered_bytes: int) -> Pool:
    """The pools that the engine makes of `offered_bytes`; no tokens where the fixed parts leave nothing."""
    lay, model, speculative = layout_of(ask), ask.checkpoint.model, ask.speculation is not None
    state_bytes = ask.switches.state_bytes
    costs = layout.per_token(lay, model, state_bytes=state_bytes, speculative=speculative)
    fixed = layout.state_of_requests_bytes(
        lay, model, flags.running_rank, state_bytes=state_bytes, speculative=speculative
    )
    capped = flags.window_ratio is None
    window = capped_window_tokens(ask, flags) if capped else 0
    each = costs.full(0.0 if flags.window_ratio is None else flags.window_ratio)
    left = offered_bytes - fixed - window * costs.window_token * costs.inflation
    if left <= 0:
        # The engine makes no pool at all then, and ends.
        fixed = window = 0
    tokens = floor_to(PAGE_TOKENS, max(0.0, left) / each)
    if ask.max_total_tokens is not None:
        tokens = min(tokens, floor_to(PAGE_TOKENS, ask.max_total_tokens))
    return Pool(
        tokens=tokens,
        window_tokens=window if flags.window_ratio is None else floor_to(PAGE_TOKENS, int(tokens * flags.window_ratio)),
        bytes_per_token=each,
        offered_bytes=max(0, offered_bytes),
        per_token=costs,
        state_of_requests_bytes=fixed,
        window_capped=capped,
    )


def capped_window_tokens(ask: Ask, flags: Flags) -> int:
    """The window pool sized from the requests, as V4.1 does: what may be live at once, and cached prefixes' ends."""
    # Twice the per-step allocation of speculation; 262 for 6 draft tokens.
    step = 2 * (PAGE_TOKENS + ask.draft_tokens) if ask.speculation else PAGE_TOKENS
    each = WINDOW_TOKENS + _EVICTION_TOKENS * ask.draft_tokens + PAGE_TOKENS + step
    tails = _TAILS * flags.running_rank * LEAST_WINDOW_TOKENS
    live = flags.running_rank * each + 2 * flags.chunk_rank + PAGE_TOKENS
    return ceil_to(PAGE_TOKENS, live + tails)


def least_window_tokens(ask: Ask, flags: Flags) -> int:
    """What the window pool must hold for all running requests and two chunks, cached prefixes aside."""
    each = WINDOW_TOKENS + _EVICTION_TOKENS * ask.draft_tokens + 2 * PAGE_TOKENS
    return flags.running_rank * each + 2 * flags.chunk_rank


def figures(pool: Pool) -> tuple[Figure, ...]:
    """The sub-pools, and the remainder that is less than a page; together what was offered and is not left unused."""
    costs, tokens = pool.per_token, pool.tokens
    # Sized by ratio, the window is charged as that share of every token; floor_to hides less than a page of it.
    window = pool.window_tokens if pool.window_capped else _charged_window(pool)
    parts = (
        ("window KV", costs.window * window, f"{pool.window_tokens} tokens"),
        ("window state", costs.window_state * window, ""),
        ("KV compressed by 4", costs.c4 * tokens, ""),
        ("KV compressed by 128", costs.c128 * tokens, ""),
        ("KV of ratios 1 and 2", costs.low * tokens, ""),
        ("indexer keys", costs.keys * tokens, ""),
    )
    plain = sum(amount for _, amount, _ in parts)
    found = [exact(name, Part.POOL, int(amount), note=note) for name, amount, note in parts if int(amount)]
    if (drafts := int(plain * (costs.inflation - 1))) > 0:
        found.append(exact("draft's KV", Part.POOL, drafts))
    if pool.state_of_requests_bytes:
        found.append(exact("state of requests", Part.POOL, pool.state_of_requests_bytes, note="fixed"))
    rest = pool.used_bytes - sum(one.bytes for one in found)
    return (*found, exact("less than a page", Part.POOL, rest))


def _charged_window(pool: Pool) -> float:
    per_token = pool.bytes_per_token / pool.per_token.inflation - pool.per_token.compressed
    return pool.tokens * per_token / pool.per_token.window_token
