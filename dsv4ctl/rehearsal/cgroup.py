"""The cgroup folder of a private machine: made, emptied, removed; swept when its maker was killed. Touches no other."""

import contextlib
import os
import re
import secrets
from pathlib import Path

from dsv4ctl import pidfd, procs
from dsv4ctl.clock import RealClock, until
from dsv4ctl.model import Identity
from dsv4ctl.problems import Problem

# The name records who made it, so that a later start can tell a folder in use from one that a killed maker left.
NAME = re.compile(r"dsv4ctl-rehearsal-(?P<pid>\d+)-(?P<ticks>\d+)-[0-9a-f]{8}")

# Where whoever enters from outside lives, as a login session would; systemd leaves folders alone that it did not make.
SESSION = "user.slice/user-0.slice/session-1.scope"

# After a KILL only the kernel's own work is waited for, which takes its time where everybody wants the processors.
GONE_LIMIT_S = 120.0


def make() -> Path:
    """Make a folder of our own at the top of the cgroup2 hierarchy. Raises Problem where that cannot be."""
    ticks = procs.parse_stat(Path("/proc/self/stat").read_text()).start_ticks
    group = procs.cgroup_root() / f"dsv4ctl-rehearsal-{os.getpid()}-{ticks}-{secrets.token_hex(4)}"
    try:
        (group / SESSION).mkdir(parents=True)
    except OSError as error:
        hint = "rehearse on the host itself, not inside a container"
        raise Problem(f"cannot make a cgroup {group}: {error.strerror}", hint=hint) from None
    return group


def kill(group: Path) -> None:
    """Kill every process in and below a folder of ours."""
    if (group / "cgroup.kill").exists():
        (group / "cgroup.kill").write_text("1")
        return
    # Linux before 5.14
    pidfd.end_all(lambda: _members(group), RealClock(), GONE_LIMIT_S)


def is_empty(group: Path) -> bool:
    """Whether no process, nor a zombie's last thread, is in or below it; a folder that is gone is empty."""
    try:
        return "populated 0" in (group / "cgroup.events").read_text().splitlines()
    except FileNotFoundError:
        return True


def remove(group: Path) -> None:
    """Wait until a folder of ours is empty and remove it with all below. Raises Problem when a process does not go."""
    if until(lambda: is_empty(group) or None, RealClock(), GONE_LIMIT_S, 0.01) is None:
        raise Problem(
            f"cannot remove the cgroup {group}: a process in it does not end", hint=f"look at {group}/cgroup.procs"
        )
    until(lambda: _removed(group) or None, RealClock(), GONE_LIMIT_S, 0.01)


def sweep() -> None:
    """Remove the empty folders of rehearsals whose maker has been killed."""
    for group in procs.cgroup_root().iterdir():
        found = NAME.fullmatch(group.name)
        if found and is_empty(group) and not procs.alive(_maker(found)):
            _removed(group)


def _maker(found: re.Match[str]) -> Identity:
    return Identity(procs.boot_id(), int(found["pid"]), int(found["ticks"]))


def _members(group: Path) -> list[Identity]:
    below = "/" / group.relative_to(procs.cgroup_root())
    return list(filter(None, map(procs.identity, procs.cgroup_pids(str(below)))))


def _removed(group: Path) -> bool:
    # The kernel refuses a folder for a moment after its last process has gone.
    with contextlib.suppress(OSError):
        for folder, _, _ in os.walk(group, topdown=False):
            Path(folder).rmdir()
    return not group.exists()
