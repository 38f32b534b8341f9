"""A configuration becomes what is to be planned, extra arguments and environment included."""

from dataclasses import replace
from typing import Any

import pytest

from dsv4ctl import modes
from dsv4ctl.memory import gpu_faults, gpus, weights
from dsv4ctl.memory import spec as specs
from dsv4ctl.memory.asked import Ask, Indexer
from dsv4ctl.memory.spec import Known, Unplanned
from dsv4ctl.model import EngineSpec, Gpu, HostSpec, MemorySpec, Role, RoleShape
from tests import releases

GIB = 1024**3
KNOWN = Known(checkpoint=weights.find("fp4"), gpu=gpus.find("rtx-pro-6000"), engine_version="0.5.23")
SHAPE = modes.BUILT_IN["single-tp4"].roles[0]


def asked(*args: str, environment: dict[str, str] | None = None, **memory: Any) -> Ask:
    engine = EngineSpec(model="/models/V4", args=args, environment=tuple((environment or {}).items()))
    found = specs.ask(
        HostSpec(mode=modes.BUILT_IN["single-tp4"], engine=engine, memory=MemorySpec(**memory)), SHAPE, KNOWN
    )
    assert isinstance(found, Ask)
    return found


def unplanned(known: Known = KNOWN, shape: RoleShape = SHAPE, **memory: Any) -> str:
    found = specs.ask(HostSpec(mode=modes.BUILT_IN["single-tp4"], memory=MemorySpec(**memory)), shape, known)
    assert isinstance(found, Unplanned)
    return found.why


def gpu(index: int, total_gib: float) -> Gpu:
    return replace(releases.gpus().gpus[0], index=index, total_bytes=int(total_gib * GIB))


def test_the_memory_table_is_what_is_asked() -> None:
    found = asked(context_length=524_288, mem_fraction_static=0.8, chunked_prefill_size=4096, max_running_requests=16)

    assert (found.context_tokens, found.fraction, found.chunk_tokens, found.running_requests) == (
        524_288,
        0.8,
        4096,
        16,
    )


def test_without_a_context_the_models_own_is_planned() -> None:
    assert asked().context_tokens == 1_048_576


@pytest.mark.parametrize(
    ("args", "algorithm", "tokens"),
    [
        (("--speculative-algorithm", "EAGLE", "--speculative-num-draft-tokens", "3"), "EAGLE", 3),
        (("--speculative-algorithm=DSPARK",), "DSPARK", 6),
        (("--speculative_algorithm", "eagle"), "EAGLE", 4),
    ],
)
def test_speculation_is_read_from_the_extra_arguments(args: tuple[str, ...], algorithm: str, tokens: int) -> None:
    found = asked(*args).speculation

    assert found is not None
    assert (found.algorithm, found.draft_tokens) == (algorithm, tokens)


@pytest.mark.parametrize(
    "args",
    [
        ("--attn-dp-size", "4"),
        ("--enable-dp-attention", "--dp-size", "4"),
        ("--dp-size", "4", "--enable-dp-attention"),
    ],
)
def test_dp_attention_is_read_in_both_spellings(args: tuple[str, ...]) -> None:
    assert asked(*args).attention_dp == 4


def test_dp_without_dp_attention_is_none() -> None:
    assert asked("--dp-size", "4").attention_dp == 1


def test_switches_among_the_arguments_are_seen() -> None:
    found = asked(
        "--enable-deepseek-v4-fp4-indexer", "--disable-cuda-graph", "--dsv4-attn-backend", "trtllm", "--sleep-on-idle"
    )

    assert (found.fp4_indexer, found.decode_graphs, found.uniform_rows) == (True, False, True)


@pytest.mark.parametrize(
    ("environment", "indexer"),
    [
        ({}, Indexer.TILELANG),
        ({"SGLANG_OPT_USE_TILELANG_INDEXER": "1"}, Indexer.TILELANG),
        ({"SGLANG_OPT_USE_TILELANG_INDEXER": "0", "SGLANG_FP8_PAGED_MQA_LOGITS_TORCH": "0"}, Indexer.DEEPGEMM),
        ({"SGLANG_OPT_USE_TILELANG_INDEXER": "0", "SGLANG_FP8_PAGED_MQA_LOGITS_TORCH": "1"}, Indexer.TORCH),
        ({"SGLANG_OPT_USE_TILELANG_INDEXER": "0"}, Indexer.TORCH),
        ({"SGLANG_FP8_PAGED_MQA_LOGITS_TORCH": "0"}, Indexer.TILELANG),
    ],
)
def test_the_indexers_path_follows_its_two_variables(environment: dict[str, str], indexer: Indexer) -> None:
    assert asked(environment=environment).indexer is indexer


def test_other_variables_of_the_environment_that_change_memory_are_read() -> None:
    found = asked(
        environment={
            "SGLANG_DSV4_COMPRESS_STATE_DTYPE": "bf16",
            "SGLANG_OPT_SM120_DIRECT_SWA_KV": "1",
            "SGLANG_DSA_MQA_LOGITS_FREE_MEM_FRACTION": "0.8",
            "SGLANG_OPT_DSV4_NONPAGED_INDEXER_MIN_QUERY_TOKENS": "1024",
        }
    ).switches

    assert (found.state_bytes, found.direct_window, found.logits_share, found.nonpaged_from_tokens) == (
        2,
        True,
        0.8,
        1024,
    )


def test_what_the_planner_does_not_know_is_not_planned_and_says_why() -> None:
    assert unplanned(replace(KNOWN, checkpoint=None)) == "its model is no DeepSeek-V4 that the planner knows"
    assert unplanned(replace(KNOWN, gpu=None)) == "its GPUs are of a kind that the planner does not know"
    assert unplanned(shape=replace(SHAPE, gpus=())) == "it runs without GPUs"
    assert "not of bfloat16" in unplanned(kv_cache_dtype="bfloat16")


def test_the_router_has_no_plan() -> None:
    spec = HostSpec(
        mode=replace(modes.BUILT_IN["single-tp4"], roles=(SHAPE, RoleShape(role=Role.ROUTER, tp=0, gpus=())))
    )

    assert specs.with_gpus(spec) == (SHAPE,)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", "rtx-pro-6000"),
        ("NVIDIA H200", "h200"),
        ("NVIDIA H20", "h20"),
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA GB200", "b200"),
        ("NVIDIA Stand-in 96GB", "stand-in"),
        ("Tesla T4", None),
        ("NVIDIA H2000", None),
    ],
)
def test_a_gpu_is_known_by_its_name_and_has_the_size_that_nvml_tells(name: str, kind: str | None) -> None:
    found = gpus.of(replace(gpu(0, 90.0), name=name))

    assert (found.name if found else None) == kind
    assert found is None or found.total_bytes == 90 * GIB


def test_the_smallest_gpu_sizes_all_ranks() -> None:
    found = gpus.of_all([gpu(0, 95.0), gpu(1, 94.0)])

    assert found is not None
    assert found.total_bytes == 94 * GIB
    assert gpus.of_all([gpu(0, 95.0), replace(gpu(1, 95.0), name="Tesla T4")]) is None
    assert gpus.of_all([]) is None


def test_gpus_of_unequal_size_are_refused_with_the_way_out() -> None:
    (fault,) = gpu_faults.faults([gpu(0, 96.0), gpu(1, 48.0)], {})

    assert fault == (
        "GPU 1 (NVIDIA H20) has 48.0 GiB and GPU 0 (NVIDIA H20) 96.0: the engine refuses ranks that differ by a tenth; "
        "choose GPUs of one size with --gpus"
    )


def test_gpus_that_others_hold_unevenly_are_refused_with_the_way_out() -> None:
    pair = [gpu(2, 96.0), gpu(3, 96.0)]

    (fault,) = gpu_faults.faults(pair, {3: 20 * GIB})

    assert fault == (
        "GPU 3 has 76.0 GiB free and GPU 2 96.0: others hold 20.0 GiB on GPU 3, and the engine refuses ranks that "
        "differ by a tenth; end them (nvidia-smi shows them), or choose other --gpus"
    )
    assert list(gpu_faults.faults(pair, {2: 20 * GIB, 3: 20 * GIB})) == []
    assert list(gpu_faults.faults(pair, {3: 5 * GIB})) == []
    assert list(gpu_faults.faults([], {})) == []
