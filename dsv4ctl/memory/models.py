"""DeepSeek-V4 models by the shapes that memory depends on. Sources: their config.json, and SGLang's own defaults."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from dsv4ctl.memory.sizes import gib

# One KV head of 448 values and 64 rotary ones; SGLang keeps the first as FP8, the others as BF16.
LATENT_VALUES = 512
INDEX_VALUES = 128
WINDOW_TOKENS = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """The shape of a model. `sources`: compression ratio -> layers that keep KV compressed by it. `index_ratio`: the
    indexer's logits have one column for so many tokens.

    `dense_bytes`: what is no routed expert, as loaded, with one rank; `sharded_bytes` of it are divided over the ranks.
    Both were fitted to logs for V4-Flash, see weights.py. `fitted`: whether logs of this model confirm them.
    """

    name: str
    layers: int
    sources: tuple[tuple[int, int], ...]
    heads: int
    hidden: int
    experts: int
    expert_width: int
    draft_experts: int
    longest_tokens: int
    dense_bytes: int
    sharded_bytes: int
    index_key_bytes: int = 132
    index_ratio: int = 4
    window_from_requests: bool = False
    engram_bytes: int = 0
    fitted: bool = False

    def layers_of(self, ratio: int) -> int:
        """Layers that keep KV compressed by `ratio`."""
        return dict(self.sources).get(ratio, 0)

    @property
    def parameters_of_experts(self) -> int:
        """Parameters of the routed experts of all layers, those of draft layers aside."""
        return self.layers * self.parameters_of_a_layer(self.experts)

    def parameters_of_a_layer(self, experts: int) -> int:
        """Parameters of one layer's routed experts: three matrices each."""
        return experts * 3 * self.hidden * self.expert_width


V4_FLASH = Model(
    name="V4-Flash",
    layers=43,
    sources=((4, 21), (128, 20)),
    heads=64,
    hidden=4096,
    experts=256,
    expert_width=2048,
    draft_experts=256,
    longest_tokens=1_048_576,
    dense_bytes=gib(9.0),
    sharded_bytes=gib(5.3),
    fitted=True,
)
# What is no expert: 805.4 GiB of checkpoint less experts and draft, grown in the load as V4-Flash's.
V4_PRO = Model(
    name="V4-Pro",
    layers=61,
    sources=((4, 30), (128, 31)),
    heads=128,
    hidden=7168,
    experts=384,
    expert_width=3072,
    draft_experts=384,
    longest_tokens=1_048_576,
    dense_bytes=gib(29.5),
    sharded_bytes=gib(17.4),
)
# Index keys are FP4 whatever the flags say. What is no expert: 94.0 GiB on each of three ranks, less the experts.
V41_FLASH = Model(
    name="V4.1-Flash",
    layers=40,
    sources=((1, 1), (2, 3)),
    heads=64,
    hidden=5120,
    experts=384,
    expert_width=2304,
    draft_experts=128,
    longest_tokens=1_048_576,
    dense_bytes=gib(8.4),
    sharded_bytes=gib(6.0),
    index_key_bytes=68,
    index_ratio=1,
    window_from_requests=True,
    engram_bytes=gib(189.0),
)
MODELS = (V4_FLASH, V4_PRO, V41_FLASH)


def of_config(config: Mapping[str, object]) -> Model | None:
    """The model that a checkpoint's config.json describes; None for any that is no DeepSeek-V4 of a known build."""
    if not is_v4(config):
        return None
    layers, hidden = config.get("num_hidden_layers"), config.get("hidden_size")
    known = next((one for one in MODELS if (one.layers, one.hidden) == (layers, hidden)), None)
    if known is None:
        return None
    changed = replace(
        known,
        sources=_sources(config.get("compress_ratios"), known),
        experts=_whole(config.get("n_routed_experts"), known.experts),
        expert_width=_whole(config.get("moe_intermediate_size"), known.expert_width),
        longest_tokens=_whole(config.get("max_position_embeddings"), known.longest_tokens),
    )
    return replace(changed, fitted=known.fitted and _shape(changed) == _shape(known))


def is_v4(config: Mapping[str, object]) -> bool:
    """Whether a config.json says DeepSeek-V4 in its model type or its architectures."""
    architectures = config.get("architectures")
    names = [config.get("model_type"), *(architectures if isinstance(architectures, list) else [])]
    return any("deepseekv4" in name.lower().replace("_", "") for name in names if isinstance(name, str))


def _shape(model: Model) -> tuple[object, ...]:
    return model.sources, model.experts, model.expert_width


def _sources(ratios: object, known: Model) -> tuple[tuple[int, int], ...]:
    """Layers per ratio, from the list that has one entry a layer. In V4.1 only some of them keep KV of their own."""
    if not isinstance(ratios, list) or known.window_from_requests:
        return known.sources
    own = ratios[: known.layers]
    return tuple((ratio, own.count(ratio)) for ratio in (4, 128))


def _whole(value: object, otherwise: int) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else otherwise
