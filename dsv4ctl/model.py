"""The words of the house as frozen values. Knows nothing: no room is imported, nothing needs a clock or a file."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum

# ---- what is asked for


class Role(StrEnum):
    """One process group with a job."""

    SERVER = "server"
    PREFILL = "prefill"
    DECODE = "decode"
    ROUTER = "router"


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
    """SGLang's memory and batch flags; None leaves the engine its own default. Token counts and request counts."""

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
class Limits:
    """Time limits in seconds, and the number of starts that are tried before systemd gives up."""

    start_s: int = 2400
    stall_s: int = 900
    drain_s: int = 120
    engine_stop_s: int = 80
    proof_s: int = 120
    watch_s: int = 30
    unhealthy_s: int = 300
    restart_s: int = 15
    restart_max_s: int = 300
    starts: int = 4


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
    limits: Limits = field(default_factory=Limits)


# ---- what this machine is


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuProcess:
    """A process that the driver says holds memory on a GPU; `used_bytes` is None where the driver does not tell."""

    pid: int
    used_bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One GPU in PCI bus order. `used_bytes` excludes the driver's reserve (NVML memory info v2); None: not told.

    `processes_told` False: the platform has no process list, which is not an empty one.
    """

    index: int
    uuid: str
    name: str
    pci_address: str
    total_bytes: int
    used_bytes: int | None
    reserved_bytes: int | None
    processes: tuple[GpuProcess, ...] = ()
    processes_told: bool = True
    numa_node: int | None = None
    mig: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuView:
    """All GPUs, or why they cannot be read. `unreadable` says of single ones why they are not among them."""

    gpus: tuple[Gpu, ...] = ()
    driver: str = ""
    problem: str = ""
    unreadable: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineBuild:
    """An engine environment as found: its interpreter, its version, and the option strings of its own --help.

    `stamp` tells one installation of a version from another.
    """

    python: str
    version: str
    stamp: str = ""
    launch: tuple[str, ...] = ("-m", "sglang.launch_server")
    options: frozenset[str] = frozenset()
    choices: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """The facts of this host that a release depends on. `reserved_ports`: taken out of the ephemeral ones by sysctl."""

    systemd_version: int
    gpus: GpuView
    engine: EngineBuild
    ephemeral_ports: tuple[int, int] = (32768, 60999)
    reserved_ports: frozenset[int] = frozenset()
    supervisor: tuple[str, ...] = ()
    own_folders: tuple[str, ...] = ()


# ---- the release


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """A role placed on this host; one unit each. `digest` is over everything else that reaches the engine."""

    name: str
    role: Role
    unit: str
    argv: tuple[str, ...]
    environment: tuple[tuple[str, str], ...]
    host: str
    port: int
    rendezvous_port: int
    tp: int
    gpus: tuple[int, ...]
    gpu_uuids: tuple[str, ...]
    model: str
    served_model_name: str
    context_length: int | None
    user: str | None
    api_key_file: str | None
    secrets_file: str | None
    limits: Limits
    digest: str = ""

    @property
    def ports(self) -> tuple[tuple[str, int], ...]:
        """Every port the instance binds, with its job."""
        return (("http", self.port), ("rendezvous", self.rendezvous_port))


@dataclass(frozen=True, slots=True, kw_only=True)
class RenderedFile:
    """A file a release puts on the host: absolute path and whole text."""

    path: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """The immutable outcome of a config on a machine."""

    digest: str
    mode: str
    instances: tuple[Instance, ...]
    files: tuple[RenderedFile, ...]
    notes: tuple[str, ...] = ()


# ---- what is observed


class LoadState(StrEnum):
    """systemd's LoadState."""

    STUB = "stub"
    LOADED = "loaded"
    NOT_FOUND = "not-found"
    BAD_SETTING = "bad-setting"
    ERROR = "error"
    MERGED = "merged"
    MASKED = "masked"


class ActiveState(StrEnum):
    """systemd's ActiveState, newer versions' `refreshing` included."""

    ACTIVE = "active"
    RELOADING = "reloading"
    REFRESHING = "refreshing"
    INACTIVE = "inactive"
    FAILED = "failed"
    ACTIVATING = "activating"
    DEACTIVATING = "deactivating"
    MAINTENANCE = "maintenance"


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """A unit as systemd shows it. `since`: seconds since the epoch of its last state change, None when it had none."""

    name: str
    load: LoadState
    active: ActiveState
    sub: str
    enabled: str
    main_pid: int
    cgroup: str
    status_text: str
    result: str
    exit_code: str
    exit_status: int
    restarts: int
    since: float | None
    needs_reload: bool
    fragment: str
    drop_ins: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, order=True)
class Identity:
    """The only way a process is named between two moments: boot, pid and start time in clock ticks since boot."""

    boot_id: str
    pid: int
    start_ticks: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """A process at one moment. `command` is for people and never decides anything.

    Filled by a look at all processes only (census.py): `executable`, '' when it cannot be told; `kernel`: a thread of
    the kernel's; the namespaces by inode, 0 when they cannot be told.
    """

    identity: Identity
    parent_pid: int
    session: int
    group: int
    uid: int
    user: str
    comm: str
    command: str
    state: str
    cgroup: str
    started_at: float
    executable: str = ""
    kernel: bool = False
    pid_namespace: int = 0
    net_namespace: int = 0

    @property
    def pid(self) -> int:
        """The process id, valid only together with the identity."""
        return self.identity.pid


class Family(StrEnum):
    """Address family of a socket."""

    IPV4 = "ipv4"
    IPV6 = "ipv6"


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """A TCP socket in LISTEN. `cgroup` is the one it was created in, as the kernel tells it; empty when it does not."""

    family: Family
    address: str
    port: int
    inode: int
    v6only: bool = False
    cgroup: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """Who holds a port: the listener, its processes where they could be read, and the systemd unit of its cgroup."""

    listener: Listener
    processes: tuple[Process, ...] = ()
    unit: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PortView:
    """One port as found: its listeners, and why a server could not bind it now ('' when it could)."""

    port: int
    holders: tuple[Holder, ...] = ()
    blocked: str = ""


class Phase(StrEnum):
    """Where a start or a stop is, in the order it happens."""

    GATE = "gate"
    STARTING = "starting"
    WEIGHTS = "weights"
    POOLS = "pools"
    KERNELS = "kernels"
    GRAPHS = "graphs"
    WARMUP = "warmup"
    PROOF = "proof"
    READY = "ready"
    DRAINING = "draining"
    STOPPING = "stopping"
    STOPPED = "stopped"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """What the engine says it can hold, from its own log line or /server_info."""

    max_total_tokens: int
    max_running_requests: int | None = None
    context_length: int | None = None
    available_gb: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunState:
    """What a supervisor last said of its instance (/run/dsv4ctl/NAME/state.json). Times are seconds since the epoch."""

    name: str
    digest: str
    phase: Phase
    words: str
    since: float
    started_at: float
    pid: int
    engine_pid: int = 0
    done: int = 0
    total: int = 0
    left_s: int | None = None
    capacity: Capacity | None = None
    exit: int | None = None
    advice: str = ""


class SuperviseExit(IntEnum):
    """Exit statuses of a unit's main process, the supervisor. USAGE, PORT, MISSING and PROOF are never restarted."""

    OK = 0
    USAGE = 2
    PORT = 3
    MISSING = 10
    PROOF = 11
    STALLED = 12
    DIED_LOADING = 13
    DIED_SERVING = 14
    UNHEALTHY = 15
    LEFT_OVER = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class HostView:
    """What was observed at one moment. `files`: path -> text of each file of ours on disk; `running`: unit -> instance
    digest of the process that runs in it; `current`: digest of the release kept last, '' when none was."""

    units: Mapping[str, Unit] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    running: Mapping[str, str] = field(default_factory=dict)
    ports: Mapping[int, PortView] = field(default_factory=dict)
    current: str = ""
