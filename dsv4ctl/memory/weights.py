"""Checkpoints, and what their weights take on one GPU.

W = experts / tp + sharded / tp + replicated. The split of what is no expert (5.3 GiB sharded, 3.7 GiB whole on every
rank) was fitted to two public logs of V4-Flash and checked on four others: -5 % to +3 %.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from enum import StrEnum

from dsv4ctl.memory import models
from dsv4ctl.memory.figures import Figure, Part, estimate, exact
from dsv4ctl.memory.models import V4_FLASH, V4_PRO, V41_FLASH, Model
from dsv4ctl.memory.sizes import GIB, gib

# Observed less planned weights, of all logs of V4-Flash.
SPAN = (0.95, 1.02)
# V4.1 may keep its n-gram tables in host memory or on a disk, and nobody has published a log of V4-Pro.
SPAN_UNFITTED = (0.80, 1.08)
SPAN_DRAFT = (0.88, 1.12)
# What is no expert takes 9.0 GiB loaded and 8.2 GiB in the files of V4-Flash.
LOADED_PER_STORED = 1.1
SHARDED_SHARE = 5.3 / 9.0
# A draft's part that is whole on every rank (1.06 GiB observed with FP8 on 8 ranks), and its layers' part that is not
# experts.
DRAFT_WHOLE_BYTES = gib(0.3)
DRAFT_DENSE_BYTES = gib(0.1)
# The preview has one for EAGLE, 0731 and V4.1 have three stages for DSPARK.
DRAFT_LAYERS = (1, 3)


class Experts(StrEnum):
    """The format of the routed experts, by which checkpoints of one model differ."""

    FP4 = "fp4"
    NVFP4 = "nvfp4"
    FP8 = "fp8"


# With scales: one byte for 32 values, one for 16 and a little, four for 128 x 128.
BYTES_PER_PARAMETER: Mapping[Experts, float] = {Experts.FP4: 0.53125, Experts.NVFP4: 0.5625, Experts.FP8: 1.00024}


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """What the files of a checkpoint hold, in bytes. None where only the whole is known; `draft_layers` 0: not told."""

    total_bytes: int
    experts_bytes: int | None = None
    draft_bytes: int | None = None
    engram_bytes: int | None = None
    draft_layers: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A model with its experts in one format. `experts_bytes`: all of them; `draft_bytes`: of a checkpoint's own draft,
    None where its files do not tell. `source` says where the sizes are from."""

    model: Model
    experts: Experts
    experts_bytes: int
    dense_bytes: int
    sharded_bytes: int
    source: str
    draft_bytes: int | None = None
    engram_bytes: int = 0
    fitted: bool = False

    @property
    def name(self) -> str:
        """The model and the format, such as V4-Flash FP4."""
        return f"{self.model.name} {self.experts.upper()}"


def known(model: Model, experts: Experts) -> Checkpoint:
    """The published checkpoint of a model in this format."""
    return Checkpoint(
        model=model,
        experts=experts,
        experts_bytes=round(model.parameters_of_experts * BYTES_PER_PARAMETER[experts]),
        dense_bytes=model.dense_bytes,
        sharded_bytes=model.sharded_bytes,
        engram_bytes=model.engram_bytes,
        source="published sizes",
        fitted=model.fitted,
    )


CHECKPOINTS: Mapping[str, Checkpoint] = {
    **{f"v4-flash-{experts}": known(V4_FLASH, experts) for experts in Experts},
    "v4-pro": known(V4_PRO, Experts.FP4),
    "v4.1-flash": known(V41_FLASH, Experts.FP4),
}
DEFAULT = "v4-flash-fp4"


def find(name: str) -> Checkpoint:
    """A published checkpoint by its name; `fp4`, `nvfp4` and `fp8` are V4-Flash's. Raises ValueError with the names."""
    wanted = name.lower().replace("_", "-")
    full = f"v4-flash-{wanted}" if wanted in tuple(Experts) else wanted
    if full in CHECKPOINTS:
        return CHECKPOINTS[full]
    near = get_close_matches(full, CHECKPOINTS, n=1)
    raise ValueError(f"{f'did you mean {near[0]}? ' if near else ''}known are {', '.join(CHECKPOINTS)}")


def of_files(config: Mapping[str, object], contents: Contents) -> Checkpoint | None:
    """The checkpoint in a folder, from its config.json and the sizes of its tensors; None for a model not known."""
    model = models.of_config(config)
    if model is None or contents.total_bytes <= 0:
        return None
    experts, stages = _format(config, model, contents)
    like = known(model, experts)
    if contents.experts_bytes is None:
        return _of_total(like, contents.total_bytes, stages)
    others = (contents.experts_bytes, contents.draft_bytes or 0, contents.engram_bytes or 0)
    dense = round((contents.total_bytes - sum(others)) * LOADED_PER_STORED)
    return replace(
        like,
        experts_bytes=contents.experts_bytes,
        draft_bytes=contents.draft_bytes or None,
        engram_bytes=contents.engram_bytes or 0,
        dense_bytes=dense,
        sharded_bytes=round(dense * SHARDED_SHARE),
        source="the tensors of its files",
    )


def _format(config: Mapping[str, object], model: Model, contents: Contents) -> tuple[Experts, int]:
    """The format of the experts and the number of draft layers that explain the size of the files.

    NVFP4 is told by its config; without that it could not be told from FP4 with three draft layers (155 and 157 GiB).
    """
    quantized_as = str(config.get("quantization_config", "")).lower()
    formats = (Experts.NVFP4,) if "nvfp4" in quantized_as else (Experts.FP4, Experts.FP8)
    stages = (contents.draft_layers,) if contents.draft_layers else DRAFT_LAYERS
    guesses = [(one, layers) for one in formats for layers in stages]
    return min(guesses, key=lambda guess: abs(contents.total_bytes - stored_bytes(model, *guess)))


def _of_total(like: Checkpoint, whole_bytes: int, stages: int) -> Checkpoint:
    """As published when the size says so; else whatever is larger or smaller is experts."""
    stored = stored_bytes(like.model, like.experts, stages)
    if abs(whole_bytes - stored) <= stored / 50:
        return replace(like, source=f"published sizes; its {whole_bytes / GIB:.1f} GiB agree")
    experts = max(0, like.experts_bytes + whole_bytes - stored)
    return replace(like, experts_bytes=experts, fitted=False, source=f"its {whole_bytes / GIB:.1f} GiB")


def stored_bytes(model: Model, experts: Experts, draft_layers: int) -> int:
    """What the files of a checkpoint of this model, format and number of draft layers take."""
    per_parameter = BYTES_PER_PARAMETER[experts]
    per_draft_layer = model.parameters_of_a_layer(model.draft_experts) * per_parameter + DRAFT_DENSE_BYTES
    dense = model.dense_bytes / LOADED_PER_STORED
    main = model.parameters_of_experts * per_parameter + dense + model.engram_bytes
    return round(main + draft_layers * per_draft_layer)


def target(checkpoint: Checkpoint, tp: int, attention_dp: int) -> Figure:
    """The model's own weights on one GPU. DP attention keeps the attention whole on every rank of its group."""
    sharded = checkpoint.sharded_bytes * attention_dp // tp
    replicated = checkpoint.dense_bytes - checkpoint.sharded_bytes
    amount = checkpoint.experts_bytes // tp + sharded + replicated + checkpoint.engram_bytes // tp
    span = SPAN if checkpoint.fitted else SPAN_UNFITTED
    note = f"{checkpoint.name} over {tp} ranks, {checkpoint.source}"
    return estimate("weights", Part.WEIGHTS, amount, span, note=note)


def draft(checkpoint: Checkpoint, tp: int, stages: int) -> Figure:
    """The weights of the draft layers on one GPU; `stages` 0: there is no speculation. They are loaded before the pool
    is sized."""
    if not stages:
        return exact("draft weights", Part.WEIGHTS, 0, note="no speculation")
    per_stage = (
        checkpoint.model.parameters_of_a_layer(checkpoint.model.draft_experts) * BYTES_PER_PARAMETER[checkpoint.experts]
        + DRAFT_DENSE_BYTES
    )
    layers = checkpoint.draft_bytes if checkpoint.draft_bytes is not None else round(stages * per_stage)
    amount = layers // tp + DRAFT_WHOLE_BYTES
    return estimate("draft weights", Part.WEIGHTS, amount, SPAN_DRAFT, note=f"{stages} draft layer{'s' * (stages > 1)}")
