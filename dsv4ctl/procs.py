"""Processes and cgroups as /proc tells them. Judges nobody, and signals nobody: see `pidfd`.

A process is named by its `Identity` alone; pids are those of our own pid namespace. Command lines are for people only.
"""

import os
import pwd
import time
from functools import cache
from pathlib import Path

from dsv4ctl import cgroups
from dsv4ctl.model import Identity, Process
from dsv4ctl.problems import Problem
from dsv4ctl.procstat import Stat as Stat  # noqa: PLC0414 -- it is part of what this room says
from dsv4ctl.procstat import parse_stat as parse_stat  # noqa: PLC0414

PROC = Path("/proc")

# What reading of /proc/PID raises when the process has gone, or is hidden from us (hidepid).
GONE = (FileNotFoundError, ProcessLookupError, NotADirectoryError, PermissionError)

# It is part of what this room says.
unit_of_cgroup = cgroups.unit_of

TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def ourselves() -> Identity:
    """The name of this very process."""
    return _identity(parse_stat((PROC / "self/stat").read_text(errors="replace")))


def now_ticks() -> int:
    """Now, as start times of processes count: in clock ticks since boot."""
    return int(time.clock_gettime(time.CLOCK_BOOTTIME) * TICKS_PER_S)


@cache
def boot_id() -> str:
    """The id that the kernel drew for this boot."""
    return (PROC / "sys/kernel/random/boot_id").read_text().strip()


def stat(pid: int) -> Stat | None:
    """The process with this pid now, zombies included; None: there is none, or it is hidden from us."""
    try:
        return parse_stat((PROC / str(pid) / "stat").read_text(errors="replace"))
    except GONE:
        return None


def identity(pid: int) -> Identity | None:
    """Name the process that has this pid now; None: there is none."""
    found = stat(pid)
    return None if found is None else _identity(found)


def read(pid: int) -> Process | None:
    """Read one process whole; None: there is none, or it went while it was being read."""
    before = stat(pid)
    if before is None:
        return None
    try:
        uid = _effective_uid((PROC / str(pid) / "status").read_text(errors="replace"))
        command = (PROC / str(pid) / "cmdline").read_bytes()
        cgroup = cgroup_of(pid)
    except GONE:
        return None
    if identity(pid) != _identity(before):
        return None
    return Process(
        identity=_identity(before),
        parent_pid=before.parent_pid,
        session=before.session,
        group=before.group,
        uid=uid,
        user=_user(uid),
        comm=before.comm,
        command=command.replace(b"\0", b" ").decode(errors="replace").strip() or f"[{before.comm}]",
        state=before.state,
        cgroup=cgroup,
        started_at=_started_at(before.start_ticks),
    )


def is_stopped(pid: int) -> bool:
    """Whether somebody has stopped a process (SIGSTOP, a debugger): it lives and does nothing."""
    found = stat(pid)
    return found is not None and found.state in ("T", "t")


def is_dumping_core(pid: int) -> bool:
    """Whether the process has crashed and is still there because its core file is being written."""
    try:
        return "\nCoreDumping:\t1\n" in (PROC / str(pid) / "status").read_text(errors="replace")
    except GONE:
        return False


def arguments(pid: int) -> tuple[str, ...]:
    """The words of a process's command line; () when it is gone, hidden from us, or has none."""
    try:
        words = (PROC / str(pid) / "cmdline").read_bytes().split(b"\0")
    except GONE:
        return ()
    return tuple(word.decode(errors="surrogateescape") for word in words[:-1])


def environment(pid: int) -> dict[str, str]:
    """The environment a process was started with; {} when it went, is hidden, or wiped it as SGLang's workers do."""
    try:
        text = (PROC / str(pid) / "environ").read_bytes().decode(errors="surrogateescape")
    except GONE:
        return {}
    return dict(entry.split("=", 1) for entry in text.split("\0") if "=" in entry)


def pids() -> tuple[int, ...]:
    """Every pid of our pid namespace, in ascending order."""
    return tuple(sorted(int(name) for name in os.listdir(PROC) if name.isdecimal()))  # noqa: PTH208 -- 2,000 Path objects less


def ancestors(pid: int) -> tuple[Identity, ...]:
    """The parents of a process up to the first of the pid namespace, nearest first, without itself."""
    found: list[Identity] = []
    here = stat(pid)
    while here is not None and here.parent_pid and (here := stat(here.parent_pid)) is not None:
        found.append(_identity(here))
    return tuple(found)


def descendants(pid: int) -> tuple[Identity, ...]:
    """Everything below a process by parent pid, zombies included, without itself.

    A process whose parent has ended hangs elsewhere by then: this is one sign of several, never a proof of emptiness.
    """
    children: dict[int, list[Stat]] = {}
    for found in filter(None, map(stat, pids())):
        children.setdefault(found.parent_pid, []).append(found)
    below: list[Stat] = []
    nearest = children.get(pid, [])
    while nearest:
        below += nearest
        nearest = [child for parent in nearest for child in children.get(parent.pid, [])]
    return tuple(map(_identity, below))


def alive(process: Identity) -> bool:
    """Whether this very process still runs. A zombie does not; another process with its pid is not it."""
    found = stat(process.pid)
    return found is not None and not found.ended and _identity(found) == process


@cache
def cgroup_root() -> Path:
    """Where the unified hierarchy is mounted: /sys/fs/cgroup, or /sys/fs/cgroup/unified on a hybrid host.

    Raises Problem when there is none.
    """
    found = parse_cgroup_mount((PROC / "self/mountinfo").read_text())
    if found is None:
        raise Problem(
            "cannot look at cgroups: no cgroup2 file system is mounted",
            hint="boot with systemd.unified_cgroup_hierarchy=1",
        )
    return Path(found)


def parse_cgroup_mount(text: str) -> str | None:
    """Find the cgroup2 mount in /proc/self/mountinfo, the one whose root is our namespace's root before others."""
    mounts = []
    for line in text.splitlines():
        before, _, after = line.partition(" - ")
        if after.split(" ", 1)[0] == "cgroup2":
            root, point = before.split(" ")[3:5]
            mounts.append((root != "/", point.replace("\\040", " ")))
    return min(mounts)[1] if mounts else None


def parse_cgroup(text: str) -> str:
    """The unified hierarchy's path in /proc/PID/cgroup, without the mark of a removed folder; '' when there is none."""
    found = [line.removeprefix("0::") for line in text.splitlines() if line.startswith("0::")]
    return found[0].removesuffix(" (deleted)") if found else ""


def cgroup_of(pid: int) -> str:
    """The cgroup of a process. Raises one of GONE when it went."""
    return parse_cgroup((PROC / str(pid) / "cgroup").read_text(errors="surrogateescape"))


def move(process: Identity, cgroup: str) -> bool:
    """Move a process into a cgroup that is there; False: it, or the cgroup, is gone, or we may not."""
    if identity(process.pid) != process:
        return False
    try:
        (cgroup_root() / cgroup.lstrip("/") / "cgroup.procs").write_text(str(process.pid))
    except OSError:
        return False
    return True


def own_cgroup() -> str:
    """The cgroup we run in."""
    return cgroup_of(os.getpid())


def cgroup_of_id(number: int) -> str:
    """The cgroup that the kernel calls by this id, which is the inode of its folder; '' when there is none."""
    root = cgroup_root()
    for folder, _, _ in os.walk(root) if number else ():
        try:
            if Path(folder).stat().st_ino == number:
                return f"/{Path(folder).relative_to(root)}".removesuffix("/.")
        except OSError:  # it went while we walked
            continue
    return ""


def cgroup_pids(cgroup: str, *, recursive: bool = True) -> tuple[int, ...]:
    """The pids in a cgroup and, when `recursive`, below it; () for none such, or one outside our cgroup namespace."""
    if not cgroup.startswith("/") or ".." in cgroup.split("/"):
        return ()
    found: set[int] = set()
    for folder, _, _ in os.walk(cgroup_root() / cgroup[1:]):
        found.update(_procs(Path(folder)))
        if not recursive:
            break
    return tuple(sorted(found))


def within(cgroup: str, outer: str) -> bool:
    """Whether a cgroup is `outer` or lies below it, as a container's lies below its engine's; never within ''."""
    return bool(outer) and (cgroup == outer or cgroup.startswith(outer.rstrip("/") + "/"))


def _procs(folder: Path) -> tuple[int, ...]:
    try:
        # 0 stands for a process that our pid namespace cannot see.
        return tuple(int(line) for line in (folder / "cgroup.procs").read_text().split() if line != "0")
    except OSError:  # the folder went while we walked, or it is a threaded one whose processes its parent lists
        return ()


def _identity(found: Stat) -> Identity:
    return Identity(boot_id(), found.pid, found.start_ticks)


def _effective_uid(status: str) -> int:
    line = next(line for line in status.splitlines() if line.startswith("Uid:"))
    return int(line.split()[2])


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _started_at(start_ticks: int) -> float:
    """Start ticks count from boot; down to a tenth of a second, for the two clocks are not read at one instant."""
    booted_at = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
    return int((booted_at + start_ticks / TICKS_PER_S) * 10) / 10
