"""A checked configuration and what is known of a host -> what is to be planned, one ask for each role with GPUs."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

from dsv4ctl.memory.asked import Ask, Indexer, Speculation, Switches
from dsv4ctl.memory.gpus import GpuClass
from dsv4ctl.memory.weights import Checkpoint
from dsv4ctl.model import HostSpec, Role, RoleShape

# What the planner has the bytes of. "auto" becomes the second for V4.
KV_TYPES = (None, "auto", "fp8_e4m3")
# Draft tokens where the option is not given: the cookbook's EAGLE 3-1-4, and DSPARK's native block and one.
DRAFT_TOKENS = {"DSPARK": 6}
OTHER_DRAFT_TOKENS = 4
_NO = ("0", "false", "no", "n", "off", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What a host tells of itself; None where it tells nothing that the planner knows."""

    checkpoint: Checkpoint | None
    gpu: GpuClass | None
    engine_version: str
    occupied_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Unplanned:
    """A role whose memory cannot be planned, and why."""

    role: Role
    why: str


def with_gpus(spec: HostSpec) -> tuple[RoleShape, ...]:
    """The roles that hold GPU memory."""
    return tuple(shape for shape in spec.mode.roles if shape.role is not Role.ROUTER)


def ask(spec: HostSpec, shape: RoleShape, known: Known) -> Ask | Unplanned:
    """What is to be planned for one role."""
    if why := _why_not(spec, shape, known):
        return Unplanned(role=shape.role, why=why)
    assert known.checkpoint is not None  # noqa: S101 -- asked above
    assert known.gpu is not None  # noqa: S101
    given, memory = options(spec.engine.args), spec.memory
    plain = Ask(
        role=shape.role,
        checkpoint=known.checkpoint,
        gpu=known.gpu,
        tp=shape.tp,
        context_tokens=memory.context_length or known.checkpoint.model.longest_tokens,
        engine_version=known.engine_version,
        occupied_bytes=known.occupied_bytes,
        switches=switches(dict(spec.engine.environment)),
        speculation=speculation(given),
        attention_dp=_attention_dp(given),
        decode_graphs=not _graphs_off(given),
        uniform_rows=given.get("--dsv4-attn-backend") == "trtllm",
        fp4_indexer="--enable-deepseek-v4-fp4-indexer" in given,
    )
    return replace(
        plain,
        fraction=memory.mem_fraction_static,
        chunk_tokens=memory.chunked_prefill_size,
        running_requests=memory.max_running_requests,
        graph_batch=memory.cuda_graph_max_bs_decode,
        window_ratio=memory.swa_full_tokens_ratio,
        max_total_tokens=memory.max_total_tokens,
    )


def options(args: tuple[str, ...]) -> dict[str, str]:
    """Extra arguments as option -> value; '' for switches."""
    return dict(_options(args))


def _options(args: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    for word, following in pairwise((*args, "--")):
        if word.startswith("--"):
            name, equals, value = word.partition("=")
            yield name.replace("_", "-"), value if equals else "" if following.startswith("--") else following


def speculation(given: Mapping[str, str]) -> Speculation | None:
    """Speculative decoding as the engine's options ask for it."""
    algorithm = given.get("--speculative-algorithm", "").upper()
    if algorithm in ("", "NONE"):
        return None
    tokens = given.get("--speculative-num-draft-tokens", "")
    own = DRAFT_TOKENS.get(algorithm, OTHER_DRAFT_TOKENS)
    return Speculation(algorithm=algorithm, draft_tokens=int(tokens) if tokens.isdecimal() else own)


def switches(environment: Mapping[str, str]) -> Switches:
    """The variables that change the engine's memory."""
    share = environment.get("SGLANG_DSA_MQA_LOGITS_FREE_MEM_FRACTION", "")
    nonpaged = environment.get("SGLANG_OPT_DSV4_NONPAGED_INDEXER_MIN_QUERY_TOKENS", "")
    plain = Switches()
    return Switches(
        indexer=_indexer(environment),
        state_bytes=2 if environment.get("SGLANG_DSV4_COMPRESS_STATE_DTYPE", "") in ("bf16", "bfloat16") else 4,
        direct_window=_on(environment, "SGLANG_OPT_SM120_DIRECT_SWA_KV"),
        logits_share=float(share) if _is_number(share) else plain.logits_share,
        nonpaged_from_tokens=int(nonpaged) if nonpaged.isdecimal() else plain.nonpaged_from_tokens,
        longer_context=_on(environment, "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN"),
    )


def _indexer(environment: Mapping[str, str]) -> Indexer | None:
    """TileLang is tested first, then torch; both switched off is DeepGEMM. None: left to the generation's default."""
    tilelang, torch = "SGLANG_OPT_USE_TILELANG_INDEXER", "SGLANG_FP8_PAGED_MQA_LOGITS_TORCH"
    if tilelang not in environment:
        return None
    if _on(environment, tilelang):
        return Indexer.TILELANG
    if torch not in environment:
        return Indexer.TORCH
    return Indexer.TORCH if _on(environment, torch) else Indexer.DEEPGEMM


def _on(environment: Mapping[str, str], name: str) -> bool:
    return environment.get(name, "").lower() not in _NO


def _is_number(text: str) -> bool:
    return text.replace(".", "", 1).isdecimal()


def _attention_dp(given: Mapping[str, str]) -> int:
    size = given.get("--attn-dp-size", "")
    if "--enable-dp-attention" in given:
        size = size or given.get("--dp-size", "") or given.get("--data-parallel-size", "")
    return max(1, int(size)) if size.isdecimal() else 1


def _graphs_off(given: Mapping[str, str]) -> bool:
    switched = {"--disable-cuda-graph", "--disable-decode-cuda-graph"} & given.keys()
    return bool(switched) or given.get("--cuda-graph-backend-decode") == "disabled"


def _why_not(spec: HostSpec, shape: RoleShape, known: Known) -> str:
    if not shape.gpus:
        return "it runs without GPUs"
    if known.checkpoint is None:
        return f"{spec.engine.model or 'its model'} is no DeepSeek-V4 that the planner knows"
    if known.gpu is None:
        return "its GPUs are of a kind that the planner does not know"
    if spec.memory.kv_cache_dtype not in KV_TYPES:
        return f"the planner knows the bytes of kv_cache_dtype fp8_e4m3 only, not of {spec.memory.kv_cache_dtype}"
    if shape.tp % _attention_dp(options(spec.engine.args)):
        return "the ranks of DP attention do not divide its ranks"
    return ""
