"""What is to be planned: one engine's share of a host, with the flags that its memory depends on."""

from dataclasses import dataclass, field
from enum import StrEnum

from dsv4ctl.memory import defaults
from dsv4ctl.memory.defaults import Given
from dsv4ctl.memory.gpus import Generation, GpuClass
from dsv4ctl.memory.weights import Checkpoint
from dsv4ctl.model import Role


class Indexer(StrEnum):
    """Which kernels compute the indexer's logits, which decides whether a chunk's logits are cut to a budget."""

    DEEPGEMM = "DeepGEMM"
    TILELANG = "TileLang"
    TORCH = "torch"


@dataclass(frozen=True, slots=True, kw_only=True)
class Speculation:
    """Speculative decoding: the algorithm, and how many tokens it drafts a step."""

    algorithm: str
    draft_tokens: int

    @property
    def stages(self) -> int:
        """Draft layers that are loaded."""
        return 3 if self.algorithm.upper() == "DSPARK" else 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Switches:
    """Variables of the engine's environment that change its memory.

    `indexer` None: the default of the generation. `logits_share`: of free memory that DeepGEMM's logits may take.
    """

    indexer: Indexer | None = None
    state_bytes: int = 4
    direct_window: bool = False
    logits_share: float = 0.2
    nonpaged_from_tokens: int = 8192
    longer_context: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What an earlier start with the same flags on this host took, on its fullest GPU; None where it was not told."""

    free_at_start_bytes: int | None = None
    weights_bytes: int | None = None
    graphs_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """One engine to be planned. None leaves a flag to the engine; `fraction` None: to the engine's own rule.

    `requests`: how many requests of the whole context shall fit at once. `occupied_bytes`: what others hold on the
    fullest of its GPUs.
    """

    role: Role
    checkpoint: Checkpoint
    gpu: GpuClass
    tp: int
    context_tokens: int
    requests: int = 1
    fraction: float | None = None
    chunk_tokens: int | None = None
    running_requests: int | None = None
    graph_batch: int | None = None
    window_ratio: float | None = None
    max_total_tokens: int | None = None
    attention_dp: int = 1
    speculation: Speculation | None = None
    decode_graphs: bool = True
    uniform_rows: bool = False
    fp4_indexer: bool = False
    switches: Switches = field(default_factory=Switches)
    engine_version: str = "0.5.23"
    occupied_bytes: int = 0
    measured: Measured = field(default_factory=Measured)

    @property
    def draft_tokens(self) -> int:
        """Tokens that one request decodes in a step."""
        return self.speculation.draft_tokens if self.speculation else 1

    @property
    def indexer(self) -> Indexer:
        """The kernels of the indexer: DeepGEMM, but TileLang on SM120, where DeepGEMM must be asked for."""
        default = Indexer.TILELANG if self.gpu.generation is Generation.SM120 else Indexer.DEEPGEMM
        return self.switches.indexer or default


@dataclass(frozen=True, slots=True, kw_only=True)
class Flags:
    """The flags in force, the engine's defaults filled in. `…_rank`: of one rank, as DP attention divides them."""

    fraction: float
    chunk_tokens: int
    chunk_rank: int
    running_requests: int
    running_rank: int
    graph_batch: int
    window_ratio: float | None


def flags(ask: Ask) -> Flags:
    """The flags that the engine will run with."""
    gpu_mib = ask.gpu.total_mib
    given = Given(
        role=ask.role,
        tp=ask.tp,
        attention_dp=ask.attention_dp,
        chunk_tokens=ask.chunk_tokens,
        running_requests=ask.running_requests,
        graph_batch=ask.graph_batch,
        draft_tokens=ask.draft_tokens,
        decode_graphs=ask.decode_graphs,
    )
    chunk = defaults.chunk_tokens(gpu_mib) if ask.chunk_tokens is None else ask.chunk_tokens
    running = ask.running_requests or defaults.RUNNING_REQUESTS
    batch = ask.graph_batch or defaults.graph_batch(gpu_mib, ask.tp, ask.running_requests)
    own_ratio = None if ask.checkpoint.model.window_from_requests else defaults.WINDOW_RATIO
    running_rank = max(1, running // ask.attention_dp)
    return Flags(
        fraction=defaults.fraction(gpu_mib, given) if ask.fraction is None else ask.fraction,
        chunk_tokens=chunk,
        chunk_rank=(chunk if chunk > 0 else ask.context_tokens) // (ask.attention_dp if chunk > 0 else 1),
        running_requests=running,
        running_rank=running_rank,
        graph_batch=min(batch, running_rank),
        window_ratio=own_ratio if ask.window_ratio is None else ask.window_ratio,
    )
