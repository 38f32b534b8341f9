"""All processes of this host in one pass over /proc, and what else it tells of single ones. Judges nobody."""

import os
import pwd
import re
import struct
import time
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from pathlib import Path

from dsv4ctl import procs, there, threads
from dsv4ctl.model import Identity, Process
from dsv4ctl.procstat import parse_stat

DEVICES = Path("/dev")
# The driver's nodes that a program with memory on a GPU has open: /dev/nvidia0, /dev/nvidiactl, /dev/nvidia-uvm.
NODE = re.compile(r"nvidia(?:\d+|ctl|-uvm)")

# Where the path that was executed is: a key of /proc/PID/auxv (include/uapi/linux/auxvec.h).
AT_EXECFN = 31
PATH_MAX = 4096

# The inode of the first pid namespace of a kernel, fixed in its sources (PROC_PID_INIT_INO, include/linux/proc_ns.h).
FIRST_PID_NAMESPACE = 0xEFFFFFFC

_LIBRARY = re.compile(r"(?P<site>/.*?/(?:site|dist)-packages)/(?P<package>[^/]+)")
ENGINE_PACKAGES = frozenset({"sglang", "sgl_kernel", "sglang_kernel", "sglang_router"})


def everything() -> dict[int, Process]:
    """Every process of our pid namespace by pid, without its command line: that is read for those that are shown.

    Measured: 90 ms of processor time for 2,000 processes.
    """
    return of(procs.pids())


def of(pids: Iterable[int]) -> dict[int, Process]:
    """The same of some pids; one that is no process, or went meanwhile, is left out."""
    boot, boot_s = procs.boot_id(), time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
    found = (_process(pid, boot, boot_s) for pid in pids)
    return {process.pid: process for process in found if process is not None}


def sees_everybody() -> bool:
    """Whether everybody's files may be looked into, as the first process's; else who has a socket may just be hidden.

    Never of a process that lives in the pid namespace around ours.
    """
    return any(open_files(1))


def with_command(process: Process) -> Process:
    """The same process with its command line, for people; as it is when it went meanwhile."""
    found = procs.read(process.pid)
    return process if found is None or found.identity != process.identity else replace(process, command=found.command)


def first_pid_namespace() -> bool:
    """Whether our pids are the ones that the kernel, and so the GPU driver, counts by."""
    return _inode("/proc/self/ns/pid") == FIRST_PID_NAMESPACE


def environment_of(pid: int) -> str:
    """The Python environment of an engine that a process runs in, '' for none, by its executable and mapped files.

    It is one when SGLang is installed there: an environment of its own (venv, conda), or, among the packages of the
    system's Python, one of SGLang's own libraries. A process can wipe its arguments and its environment, not these.
    A worker that has just been started has no library mapped for a second or so, and is told by how it was executed.
    """
    for site, packages in libraries(pid).items():
        if packages & ENGINE_PACKAGES:
            return _prefix(site)
        if _has_engine(site) and _is_of_its_own(_prefix(site)):
            return _prefix(site)
    return _by_executable(pid)


def libraries(pid: int) -> dict[str, frozenset[str]]:
    """Folder of packages -> those of its packages of which a process has a file mapped."""
    found: dict[str, set[str]] = {}
    for path in mapped(pid):
        if match := _LIBRARY.match(path):
            found.setdefault(match["site"], set()).add(match["package"].partition(".")[0])
    return {site: frozenset(packages) for site, packages in found.items()}


def mapped(pid: int) -> frozenset[str]:
    """The files that a process has mapped into its memory; empty when it went or may not be looked into."""
    try:
        text = _maps(Path(f"/proc/{pid}")) or _maps(threads.folder(pid))
    except (*procs.GONE, OSError):
        return frozenset()
    lines = text.splitlines()
    return frozenset(line[line.index("/") :].removesuffix(" (deleted)") for line in lines if "/" in line)


def executed_as(pid: int) -> str:
    """The path that the kernel executed, links not followed: /opt/sglang/bin/python; '' when it went or is not ours.

    The kernel lays it down at the end of the stack, beyond what a title overwrites, and says where (AT_EXECFN,
    getauxval(3)).
    """
    try:
        auxiliary = Path(f"/proc/{pid}/auxv").read_bytes()
        place = dict(struct.iter_unpack("@LL", auxiliary))[AT_EXECFN]
        # One read up to the end of the stack: another one there, as a buffer would try, fails.
        with Path(f"/proc/{pid}/mem").open("rb", buffering=0) as memory:
            memory.seek(place)
            name = memory.read(PATH_MAX).partition(b"\0")[0]
    except (*procs.GONE, OSError, KeyError, struct.error):
        return ""
    return os.path.normpath(os.path.join(_link(f"/proc/{pid}/cwd"), os.fsdecode(name)))  # noqa: PTH118 -- resolves ".." as text


def open_files(pid: int) -> Iterable[str]:
    """What the files are that a process has open, as links show it."""
    folder = f"/proc/{pid}/fd"
    try:
        numbers = os.listdir(folder)  # noqa: PTH208 -- this runs 100,000 times on a full walk
        if not numbers:
            folder = f"{threads.folder(pid)}/fd"
            numbers = os.listdir(folder)  # noqa: PTH208 -- as above
        for number in numbers:
            try:
                yield os.readlink(f"{folder}/{number}")  # noqa: PTH115 -- as above
            except FileNotFoundError:  # closed meanwhile
                continue
    except procs.GONE:
        return


def working_folder(pid: int) -> str:
    """The folder that a process works in; '' when it is gone or hidden from us."""
    try:
        return str(Path(f"/proc/{pid}/cwd").readlink())
    except OSError:
        return ""


def allowed_cpus(pid: int) -> tuple[int, ...]:
    """The CPUs that a process may run on, ascending; () when it is gone."""
    try:
        return tuple(sorted(os.sched_getaffinity(pid)))
    except OSError:
        return ()


def device_nodes(pid: int, devices: Path = DEVICES) -> frozenset[str]:
    """The GPU driver's device nodes that a process has open or mapped: {"nvidia0", "nvidiactl"}."""
    folder = f"{devices}/"
    used = {path.removeprefix(folder) for path in open_files(pid) if path.startswith(folder)}
    used |= {path.removeprefix(folder) for path in mapped(pid) if path.startswith(folder)}
    return frozenset(name for name in used if NODE.fullmatch(name))


def device_users(pids: Iterable[int], devices: Path = DEVICES) -> dict[int, frozenset[str]]:
    """Pid -> the driver's device nodes that it uses, for those among `pids` that use any."""
    return {pid: nodes for pid in pids if (nodes := device_nodes(pid, devices))}


def _process(pid: int, boot: str, boot_s: float) -> Process | None:
    folder = f"/proc/{pid}"
    try:
        stat = parse_stat(_text(f"{folder}/stat"))
        if stat.state in "ZX" and not stat.ended:
            folder = str(threads.folder(stat.pid))
            stat = replace(stat, state=parse_stat(_text(f"{folder}/stat")).state)
        cgroup = procs.parse_cgroup(_text(f"{folder}/cgroup"))
        uid = os.stat(folder).st_uid  # noqa: PTH116 -- thousands of Path objects less
    except procs.GONE:
        return None
    return Process(
        identity=Identity(boot, stat.pid, stat.start_ticks),
        parent_pid=stat.parent_pid,
        session=stat.session,
        group=stat.group,
        uid=uid,
        user=user(uid),
        comm=stat.comm,
        command="",
        state=stat.state,
        cgroup=cgroup,
        started_at=int((boot_s + stat.start_ticks / procs.TICKS_PER_S) * 10) / 10,
        executable=_link(f"{folder}/exe").removesuffix(" (deleted)"),
        kernel=stat.kernel,
        pid_namespace=_inode(f"{folder}/ns/pid"),
        net_namespace=_inode(f"{folder}/ns/net"),
        dying=stat.exiting and not stat.ended,
    )


def _maps(folder: Path) -> str:
    return (folder / "maps").read_text(errors="surrogateescape")


def _text(path: str) -> str:
    # os rather than Path, which takes twice as long.
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(file, 4096).decode(errors="surrogateescape")
    finally:
        os.close(file)


def _link(path: str) -> str:
    try:
        return os.readlink(path)  # noqa: PTH115
    except OSError:  # gone, a thread of the kernel's, or not ours to see
        return ""


def _inode(path: str) -> int:
    """The number in "pid:[4026531836]"; 0 when it cannot be read."""
    return int(_link(path).partition("[")[2].rstrip("]") or 0)


@cache
def user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _prefix(site: str) -> str:
    """/opt/sglang of /opt/sglang/lib/python3.11/site-packages."""
    return site.partition("/lib/python")[0].partition("/lib64/python")[0]


@cache
def _has_engine(site: str) -> bool:
    return there.is_folder(Path(site) / "sglang")


@cache
def _is_of_its_own(prefix: str) -> bool:
    """Whether an environment is a venv's or conda's, and not the Python that everything on the host runs with."""
    return there.is_file(Path(prefix) / "pyvenv.cfg") or there.is_folder(Path(prefix) / "conda-meta")


def _by_executable(pid: int) -> str:
    """The environment that the executable lies in: conda's interpreters are files of it, a venv's are links in it."""
    for path in (_link(f"/proc/{pid}/exe"), executed_as(pid)):
        prefix, bin_, _ = path.rpartition("/bin/")
        if bin_ and _is_of_its_own(prefix):
            sites = Path(prefix).glob("lib*/python*/site-packages")
            return prefix if any(_has_engine(str(site)) for site in sites) else ""
    return ""
