"""What is observed at one moment: units, processes, sockets, and what supervisors say of themselves."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum

from dsv4ctl.model.maintenance import Pause, Tally


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
    """A unit as systemd shows it. `since`: seconds since the epoch of its last state change, None when it had none.
    `restart_steps`: in how many systemd itself slows restarts down; 0: it does not, as none before 254 can."""

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
    restart_steps: int = 0


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
    the kernel's; the namespaces by inode, 0 when they cannot be told; `dying`: its main thread is on its way out, or
    has ended and another has not, and then `state` is that one's.
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
    dying: bool = False

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


class Keeper(StrEnum):
    """Who keeps a port from a server: nobody; processes that are named; somebody who cannot be named; or the kernel
    alone, with what is left of ended connections, of which it lets go by itself."""

    NOBODY = "nobody"
    KNOWN = "known"
    UNKNOWN = "unknown"
    KERNEL = "kernel"


@dataclass(frozen=True, slots=True, kw_only=True)
class PortView:
    """One port as found: its listeners, and why a server could not bind it now ('' when it could), and for whose sake.

    Blocked, and kept by nobody: the address is none that a server could have.
    """

    port: int
    holders: tuple[Holder, ...] = ()
    blocked: str = ""
    kept_by: Keeper = Keeper.NOBODY


class Phase(StrEnum):
    """Where a start or a stop is, in the order it happens; then what holds a start: a pause, the brake."""

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
    PAUSED = "paused"
    PARKED = "parked"


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """What the engine says it can hold, from its own log lines or /server_info. Its "GB" are GiB of one GPU, the one
    with least where ranks differ: free before the weights, the weights, the graphs of all phases, free at the end."""

    max_total_tokens: int
    max_running_requests: int | None = None
    context_length: int | None = None
    available_gb: float | None = None
    free_at_start_gb: float | None = None
    weights_gb: float | None = None
    graphs_gb: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """A router's supervisor asks that of another unit to end its engine and be started again by systemd. It is meant by
    pid and start time: whoever comes after it is not asked. `hurried`: nothing that it carries can finish any more."""

    unit: str
    pid: int
    start_ticks: int
    because: str
    hurried: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RunState:
    """What a supervisor last said of its instance (/run/dsv4ctl/NAME/state.json). Times are seconds since the epoch.

    `pid` and `start_ticks` name the supervisor: the file outlives it, and its pid may belong to another process. Of a
    router alone: `without`, the names of its workers that it sends nothing to, `asks`, and of the supervisors of its
    pair, prefill and decode: `met`, whose engines may know each other by now, and `proved`, through whom the last
    generation came.
    """

    name: str
    digest: str
    phase: Phase
    words: str
    since: float
    started_at: float
    pid: int
    start_ticks: int = 0
    engine_pid: int = 0
    done: int = 0
    total: int = 0
    left_s: int | None = None
    capacity: Capacity | None = None
    exit: int | None = None
    advice: str = ""
    without: tuple[str, ...] = ()
    asks: Ask | None = None
    met: tuple[Identity, ...] = ()
    proved: tuple[Identity, ...] = ()


class SuperviseExit(IntEnum):
    """Exit statuses of a unit's main process, the supervisor; those of `release.unit.FINAL` are never restarted.

    PEER: a router whose workers do not come. ASKED: ended for the sake of its pair, which is no failure.
    """

    OK = 0
    USAGE = 2
    PORT = 3
    GPU = 4
    MISSING = 10
    PROOF = 11
    STALLED = 12
    DIED_LOADING = 13
    DIED_SERVING = 14
    UNHEALTHY = 15
    LEFT_OVER = 16
    PEER = 17
    ASKED = 18
    PARKED = 19


@dataclass(frozen=True, slots=True, kw_only=True)
class HostView:
    """What was observed at one moment.

    `files`: path -> text of each file of ours on disk; `running`: unit -> instance digest of the process that runs in
    it; `pause`: the one that lasts; `idle`: units that wait for its end without an engine; `tallies`: instance -> what
    its starts came to.
    """

    units: Mapping[str, Unit] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    running: Mapping[str, str] = field(default_factory=dict)
    ports: Mapping[int, PortView] = field(default_factory=dict)
    pause: Pause | None = None
    idle: frozenset[str] = frozenset()
    tallies: Mapping[str, Tally] = field(default_factory=dict)
