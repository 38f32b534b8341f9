"""What is looked at before anybody is blamed, what is asked for, and what comes of it: values only."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from dsv4ctl.model import Holder, Identity, Process


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuHold:
    """A process that the driver, or an open device node, connects with a GPU.

    `believed`: /proc agrees, so that `process` may be judged. `words` says why not, or how it was found. `used_bytes`
    is None where nobody tells.
    """

    index: int
    uuid: str
    pid: int
    process: Process | None
    used_bytes: int | None
    believed: bool
    words: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """A host at one moment. `processes` by pid; `listeners` are sockets in LISTEN and no others.

    `environments`: pid -> the engine environment it runs in, by executable and mapped libraries; `marked`: pids with
    our marker in their environment; `bare`: those with an environment that have mapped no library of any; `units`: the
    names of our own units; `leaving`: pids of processes that are on their way out with no sign of what they were left.
    """

    processes: Mapping[int, Process]
    self_pid: int
    listeners: tuple[Holder, ...] = ()
    holds: tuple[GpuHold, ...] = ()
    environments: Mapping[int, str] = field(default_factory=dict)
    marked: frozenset[int] = frozenset()
    bare: frozenset[int] = frozenset()
    units: frozenset[str] = frozenset()
    leaving: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What shall be free. `everything`: every engine that is none of ours shall go, whatever it holds;
    `adopted`: every one that was adopted.

    `evict`: processes that the operator named, who may be ended though they are no engine.
    """

    ports: frozenset[int] = frozenset()
    gpus: frozenset[str] = frozenset()
    everything: bool = False
    adopted: bool = False
    evict: frozenset[Identity] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A file in /dev/shm that an engine's dead process left. `inode` tells it from a later one of the same name."""

    path: str
    uid: int
    size_bytes: int
    inode: int


class Verdict(StrEnum):
    """What a holder is. Only OURS and STRAY are ended, and FOREIGN ones that were named; UNKNOWN counts as FOREIGN."""

    OURS = "ours"
    STRAY = "stray"
    FOREIGN = "foreign"
    PROTECTED = "protected"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspect:
    """A holder of something that was asked for. `holds` and `signs` are words; `process` is None for nobody known.

    `evicted`: it is foreign, and the operator named it.
    """

    verdict: Verdict
    process: Process | None
    holds: tuple[str, ...]
    signs: tuple[str, ...]
    place: str = ""
    ports: frozenset[int] = frozenset()
    gpus: frozenset[str] = frozenset()
    evicted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree:
    """What is ended together: `root` gets SIGTERM, `members` is all of it, the root included.

    `unit`: the transient unit or evicted service that it is, '' when it is none and must be caught otherwise.
    `headless`: its main process has ended before, so that nobody is left to heed SIGTERM in an orderly way. `groups`:
    the process groups of its members, in which forks are looked for whose parents have ended. `leaving`: it is one
    process that is on its way out already, so that it is waited for and nobody gets a signal.
    """

    root: Process
    members: tuple[Identity, ...]
    unit: str
    holds: tuple[str, ...]
    signs: tuple[str, ...]
    headless: bool = False
    groups: tuple[int, ...] = ()
    leaving: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Blame:
    """The holders of what was asked for, and the closed set of what may be ended for it."""

    suspects: tuple[Suspect, ...] = ()
    trees: tuple[Tree, ...] = ()

    @property
    def ended(self) -> frozenset[Identity]:
        """Every process that may be ended."""
        return frozenset(identity for tree in self.trees for identity in tree.members)
