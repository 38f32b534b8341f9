"""What this machine is: its GPUs, its engine build, and the other facts that a release depends on."""

from collections.abc import Mapping
from dataclasses import dataclass, field


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
class NumaNode:
    """A NUMA node and its CPUs, ascending; a node of memory only has none."""

    node: int
    cpus: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Numa:
    """The NUMA nodes of this host. `usable`: those on which the kernel gives us memory.

    `near`: PCI address of a GPU -> the nodes that it is near to. None: the firmware does not tell; several: it names
    more than one, and the first of them is as wrong as any.
    """

    nodes: tuple[NumaNode, ...] = ()
    usable: frozenset[int] = frozenset()
    near: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


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
class EngineParts:
    """What an engine's environment holds besides its options. `modules`: those that can be found of nixl and mooncake.

    `has_ready`: it serves /ready, which answers at once; without it only /health tells, which generates.
    """

    modules: frozenset[str] = frozenset()
    has_ready: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """The facts of this host that a release depends on. `reserved_ports`: taken out of the ephemeral ones by sysctl.

    `router` and `parts` are looked for only where the mode needs them. `model_stamp` tells one model from another that
    took its place at the same path.
    """

    systemd_version: int
    gpus: GpuView
    engine: EngineBuild
    ephemeral_ports: tuple[int, int] = (32768, 60999)
    reserved_ports: frozenset[int] = frozenset()
    supervisor: tuple[str, ...] = ()
    own_folders: tuple[str, ...] = ()
    model_stamp: str = ""
    router: EngineBuild | None = None
    parts: EngineParts = field(default_factory=EngineParts)
    numa: Numa = field(default_factory=Numa)
