"""Weights on one GPU against logs, and checkpoints known by their files."""

import pytest

from dsv4ctl.memory import weights
from dsv4ctl.memory.models import V4_FLASH, V4_PRO, V41_FLASH
from dsv4ctl.memory.sizes import GIB, gib
from dsv4ctl.memory.weights import Contents, Experts

CONFIG: dict[str, object] = {
    "architectures": ["DeepseekV4ForCausalLM"],
    "model_type": "deepseek_v4",
    "num_hidden_layers": 43,
    "hidden_size": 4096,
    "n_routed_experts": 256,
    "moe_intermediate_size": 2048,
    "max_position_embeddings": 1_048_576,
    "compress_ratios": [0, 0, *([4, 128] * 20), 4, 0],
    "quantization_config": {"quant_method": "fp8"},
}


@pytest.mark.parametrize(
    ("checkpoint", "tp", "dp", "observed_gib", "error"),
    [
        pytest.param("fp4", 2, 1, 74.92, 0.001, id="a"),
        pytest.param("nvfp4", 2, 1, 78.93, 0.001, id="b"),
        pytest.param("fp4", 8, 1, 21.9, 0.02, id="c"),
        pytest.param("fp8", 8, 1, 36.57, 0.002, id="d"),
        pytest.param("fp8", 8, 1, 35.52, 0.032, id="e"),
        pytest.param("fp8", 4, 4, 73.43, 0.002, id="f"),
        pytest.param("fp4", 8, 1, 20.45, 0.052, id="GPUs of 32 GB"),
    ],
)
def test_weights_are_those_of_the_logs(checkpoint: str, tp: int, dp: int, observed_gib: float, error: float) -> None:
    planned = weights.target(weights.find(checkpoint), tp, dp)

    assert planned.bytes / GIB == pytest.approx(observed_gib, rel=error)
    assert planned.low_bytes <= observed_gib * GIB <= planned.high_bytes


@pytest.mark.parametrize(
    ("checkpoint", "tp4", "tp8", "tp4_dp4", "tp8_dp8"),
    [("fp4", 39.3, 21.5, 43.3, 26.1), ("nvfp4", 41.3, 22.5, 45.3, 27.1), ("fp8", 69.5, 36.6, 73.5, 41.3)],
)
def test_the_table_of_layouts(checkpoint: str, tp4: float, tp8: float, tp4_dp4: float, tp8_dp8: float) -> None:
    found = [
        weights.target(weights.find(checkpoint), tp, dp).bytes / GIB for tp, dp in ((4, 1), (8, 1), (4, 4), (8, 8))
    ]

    assert found == pytest.approx([tp4, tp8, tp4_dp4, tp8_dp8], abs=0.05)


def test_draft_weights_are_those_of_the_logs() -> None:
    assert weights.draft(weights.find("fp8"), 8, 1).bytes / GIB == pytest.approx(1.06, abs=0.01)
    assert weights.draft(weights.find("fp4"), 1, 3).bytes / GIB == pytest.approx(10.37, rel=0.03)
    assert weights.draft(weights.find("fp4"), 4, 0).bytes == 0


def test_v41_on_three_ranks_is_that_of_the_log_its_tables_aside() -> None:
    checkpoint = weights.find("v4.1-flash")

    on_gpu = weights.target(checkpoint, 3, 1).bytes - checkpoint.engram_bytes // 3

    assert on_gpu / GIB == pytest.approx(94.0, rel=0.001)
    assert weights.draft(checkpoint, 3, 3).bytes / GIB == pytest.approx(2.80, rel=0.06)


@pytest.mark.parametrize(
    ("model", "experts", "draft_layers", "listed_gib"),
    [
        (V4_FLASH, Experts.FP4, 1, 148.66),
        (V4_FLASH, Experts.FP4, 3, 155.4),
        (V4_FLASH, Experts.NVFP4, 1, 157.0),
        (V4_FLASH, Experts.FP8, 1, 273.85),
        (V4_PRO, Experts.FP4, 1, 805.4),
        (V41_FLASH, Experts.FP4, 3, 475.0),
    ],
)
def test_the_files_of_published_checkpoints_are_as_large_as_listed(
    model: object, experts: Experts, draft_layers: int, listed_gib: float
) -> None:
    assert isinstance(model, type(V4_FLASH))

    assert weights.stored_bytes(model, experts, draft_layers) / GIB == pytest.approx(listed_gib, rel=0.006)


@pytest.mark.parametrize(
    ("total_gib", "quantized_as", "name"),
    [
        (148.66, "fp8", "V4-Flash FP4"),
        (155.4, "fp8", "V4-Flash FP4"),
        (157.0, "NVFP4", "V4-Flash NVFP4"),
        (273.85, "fp8", "V4-Flash FP8"),
    ],
)
def test_a_checkpoint_is_known_by_the_size_of_its_files(total_gib: float, quantized_as: str, name: str) -> None:
    config = CONFIG | {"quantization_config": {"quant_algo": quantized_as}}

    found = weights.of_files(config, Contents(total_bytes=gib(total_gib)))

    assert found is not None
    assert (found.name, found.fitted) == (name, True)
    assert found.experts_bytes == weights.find(name.rsplit(maxsplit=1)[-1]).experts_bytes


def test_the_tensors_of_the_files_win_over_what_is_published() -> None:
    contents = Contents(
        total_bytes=gib(149.0), experts_bytes=gib(137.5), draft_bytes=gib(3.2), engram_bytes=0, draft_layers=1
    )

    found = weights.of_files(CONFIG, contents)

    assert found is not None
    assert (found.experts_bytes, found.draft_bytes, found.source) == (gib(137.5), gib(3.2), "the tensors of its files")
    assert found.dense_bytes == pytest.approx(gib(149.0 - 137.5 - 3.2) * 1.1, rel=1e-6)
    assert weights.target(found, 4, 1).bytes / GIB == pytest.approx(39.4, abs=0.2)


def test_a_size_that_nothing_explains_is_taken_for_experts_and_not_trusted() -> None:
    found = weights.of_files(CONFIG, Contents(total_bytes=gib(133.0), draft_layers=1))

    assert found is not None
    assert not found.fitted
    assert found.experts_bytes / GIB == pytest.approx(137.06 - 15.53, abs=0.01)


@pytest.mark.parametrize(
    "config",
    [
        {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3"},
        CONFIG | {"num_hidden_layers": 4},
        {},
        {"architectures": None},
    ],
)
def test_another_model_is_not_planned(config: dict[str, object]) -> None:
    assert weights.of_files(config, Contents(total_bytes=gib(148.66))) is None


def test_a_model_of_other_layers_is_planned_by_its_own_config() -> None:
    pruned = CONFIG | {"n_routed_experts": 128}

    found = weights.of_files(pruned, Contents(total_bytes=gib(80.0)))

    assert found is not None
    assert (found.model.experts, found.model.fitted) == (128, False)


def test_an_unknown_checkpoint_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match="did you mean v4-flash-nvfp4"):
        weights.find("v4-flash-nvfp")
