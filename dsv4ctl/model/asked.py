"""What is asked for: roles, modes, the engine, memory flags, limits, and the whole configuration of one host."""

from dataclasses import dataclass, field
from enum import StrEnum


class Role(StrEnum):
    """One process group with a job."""

    SERVER = "server"
    PREFILL = "prefill"
    DECODE = "decode"
    ROUTER = "router"

    @property
    def program(self) -> str:
        """What runs in this role, in a word: the engine, or the router in front of engines."""
        return "router" if self is Role.ROUTER else "engine"


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleShape:
    """What a mode says of one role: how many tensor-parallel ranks, and on which GPUs (indices in PCI bus order)."""

    role: Role
    tp: int
    gpus: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mode:
    """A named topology."""

    name: str
    roles: tuple[RoleShape, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSpec:
    """The engine build and the model, as configured. `python` and `model` may be unset until a deploy asks for them."""

    python: str | None = None
    model: str | None = None
    served_model_name: str | None = None
    version: str | None = None
    tool_call_parser: str | None = None
    reasoning_parser: str | None = None
    trust_remote_code: bool = False
    args: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MemorySpec:
    """SGLang's memory and batch flags, in tokens and requests; None leaves the engine its own default, but for the
    fraction: there it is "auto", what the planner recommends."""

    context_length: int | None = None
    mem_fraction_static: float | None = None
    max_total_tokens: int | None = None
    max_running_requests: int | None = None
    chunked_prefill_size: int | None = None
    max_prefill_tokens: int | None = None
    kv_cache_dtype: str | None = None
    swa_full_tokens_ratio: float | None = None
    cuda_graph_max_bs_decode: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferSpec:
    """How a prefill hands its KV to a decode. `bootstrap_port` None: the third of the prefill's internal ports."""

    backend: str = "nixl"
    bootstrap_port: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RouterSpec:
    """The router in front of several engines. `python` None: the engine's; `policy` None: what fits the mode.

    `metrics_port` None: the fourth of the router's internal ports.
    """

    python: str | None = None
    policy: str | None = None
    metrics_port: int | None = None
    args: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Time limits in seconds, and the brake: after `starts` that failed within `window_s`, on the whole host, a role is
    parked."""

    start_s: int = 2400
    stall_s: int = 900
    driver_s: int = 120
    drain_s: int = 120
    engine_stop_s: int = 80
    proof_s: int = 120
    watch_s: int = 30
    unhealthy_s: int = 300
    restart_s: int = 15
    restart_max_s: int = 300
    starts: int = 6
    window_s: int = 14400


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSpec:
    """A whole configuration, checked: what one host shall serve."""

    mode: Mode
    host: str = "127.0.0.1"
    port: int = 30001
    internal_port: int = 20001
    user: str | None = None
    api_key_file: str | None = None
    enable_metrics: bool = True
    engine: EngineSpec = field(default_factory=EngineSpec)
    memory: MemorySpec = field(default_factory=MemorySpec)
    transfer: TransferSpec = field(default_factory=TransferSpec)
    router: RouterSpec = field(default_factory=RouterSpec)
    limits: Limits = field(default_factory=Limits)
