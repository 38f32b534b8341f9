"""Bytes of KV cache that one token costs, by version of SGLang: the constants of its DSV4 pool configurator.

Executing the configurator of 0.5.23 gave what these expressions give in 299 of 299 random cases; the older two layouts
agree with the `bytes_per_full_token` of public logs of their time.
"""

import re
from dataclasses import dataclass, replace

from dsv4ctl.memory.models import INDEX_VALUES, LATENT_VALUES, Model
from dsv4ctl.memory.sizes import ceil_to

PAGE_TOKENS = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """How one version lays the pools out. Rows in bytes per token of their own pool.

    `state_page_tokens`: window tokens that share one ring of compression state. `window_extra`: layers that it adds to
    the window pool. `state_with_window`: the state of ratio 128 grows with the window pool, not with request slots.
    """

    versions: str
    window_row_bytes: float
    low_row_bytes: float
    c4_row_bytes: float
    c128_row_bytes: float
    state_page_tokens: int
    window_extra: int = 0
    state_with_window: bool = False


# Pages are rounded up to 576 bytes: 149,760 / 256, 37,440 / 64 and 1,728 / 2.
NOW = Layout(
    versions="0.5.23",
    window_row_bytes=585,
    low_row_bytes=585,
    c4_row_bytes=585,
    c128_row_bytes=864,
    state_page_tokens=256,
)
BEFORE = Layout(
    versions="0.5.15 to 0.5.22",
    window_row_bytes=584,
    low_row_bytes=584,
    c4_row_bytes=584,
    c128_row_bytes=584,
    state_page_tokens=128,
)
FIRST = replace(BEFORE, versions="up to 0.5.12", window_extra=1, state_with_window=True)
# --dsv4-attn-backend trtllm, on SM100 and SM103: rows of 512 bytes everywhere.
UNIFORM_ROW_BYTES = 512


def of(version: str) -> tuple[Layout, str]:
    """The layout of a version, and a warning where it is not certain; '' where it is."""
    match = re.match(r"0\.5\.(\d+)", version)
    patch = int(match[1]) if match else None
    if patch == 23:
        return NOW, ""
    if patch is not None and patch <= 12:
        return FIRST, _older(version, FIRST)
    if patch is not None and 15 <= patch <= 22:
        return BEFORE, _older(version, BEFORE)
    near = BEFORE if patch in (13, 14) else NOW
    return near, (
        f"the constants of SGLang {version or 'of this build'} are not known; those of {near.versions} are used, and "
        "tokens may be off by a factor of two"
    )


def _older(version: str, layout: Layout) -> str:
    return f"SGLang {version} lays its pools out as {layout.versions} did: a token costs more than in {NOW.versions}"


def uniform(layout: Layout) -> Layout:
    """The layout with the trtllm backend."""
    row = UNIFORM_ROW_BYTES
    return replace(layout, window_row_bytes=row, low_row_bytes=row, c4_row_bytes=row, c128_row_bytes=row)


@dataclass(frozen=True, slots=True, kw_only=True)
class PerToken:
    """Bytes of pool that each token of the full pool costs on one GPU, by sub-pool; window and state per window token.

    `inflation`: the draft's pool is charged as this factor on all of them.
    """

    c4: float
    c128: float
    low: float
    keys: float
    window: float
    window_state: float
    inflation: float = 1.0

    @property
    def compressed(self) -> float:
        """What a token of context truly costs: the compressed KV and the index keys."""
        return self.c4 + self.c128 + self.low + self.keys

    def full(self, ratio: float) -> float:
        """Bytes per token of the full pool, with `ratio` window tokens beside each; 0: the window is sized apart."""
        return self.inflation * (self.compressed + ratio * self.window_token)

    @property
    def window_token(self) -> float:
        """Bytes of one token of the window pool, its compression state included."""
        return self.window + self.window_state


def per_token(layout: Layout, model: Model, *, state_bytes: int, speculative: bool) -> PerToken:
    """What a token costs; `state_bytes`: 4 for FP32 compression state, 2 for BF16."""
    c4, c128 = model.layers_of(4), model.layers_of(128)
    low = {ratio: model.layers_of(ratio) for ratio in (1, 2)}
    ring4 = 16 if speculative else 8
    ring128 = 256 if speculative else 128
    state = c4 * ring4 / layout.state_page_tokens * 4 * (LATENT_VALUES + INDEX_VALUES) * state_bytes
    if layout.state_with_window:
        state += c128 * ring128 / layout.state_page_tokens * 2 * LATENT_VALUES * state_bytes
    inflates = speculative and not layout.window_extra
    return PerToken(
        c4=c4 * layout.c4_row_bytes / 4,
        c128=c128 * layout.c128_row_bytes / 128,
        low=sum(layers * layout.low_row_bytes / ratio for ratio, layers in low.items()),
        keys=model.index_key_bytes * (c4 / 4 + sum(layers / ratio for ratio, layers in low.items())),
        window=layout.window_row_bytes * (model.layers + layout.window_extra),
        window_state=state,
        inflation=(model.layers + 1) / model.layers if inflates else 1.0,
    )


def state_of_requests_bytes(layout: Layout, model: Model, slots: int, *, state_bytes: int, speculative: bool) -> int:
    """The compression state of ratio 128, a ring for each of `slots` requests and one more. Fixed: no token pays it."""
    c128 = model.layers_of(128)
    if layout.state_with_window or not c128:
        return 0
    ring = 256 if speculative else 128
    rows = ceil_to(128, (slots + 1) * ring + ring + 1)
    return rows * 2 * LATENT_VALUES * state_bytes * c128
