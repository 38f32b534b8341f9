"""Boots a systemd of its own over a copy-on-write view of this host, and ends it. Nothing inside reaches the host."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import IO, TypeAlias

import dsv4ctl
from dsv4ctl import child, procs
from dsv4ctl.clock import RealClock, until
from dsv4ctl.problems import Problem
from dsv4ctl.rehearsal import cgroup
from dsv4ctl.rehearsal.gpus import install as install_gpus
from dsv4ctl.rehearsal.private import UNIT_PATH, Machine
from dsv4ctl.rehearsal.standins import ENGINE, MODEL
from dsv4ctl.rehearsal.standins import install as install_standins

Before: TypeAlias = Callable[[Machine], None]

BOOT = Path(__file__).with_name("boot.sh")
NAMESPACES = ("--fork", "--kill-child", "--pid", "--mount", "--uts", "--ipc", "--net", "--propagation", "private")
BOOT_LIMIT_S = 30.0
END_LIMIT_S = 5.0

# Folders that are fresh inside, so that what lies there on the host has to be bound; and what boot and stand-ins take.
FRESH = (Path("/dev"), Path("/run"), Path("/tmp"))  # noqa: S108 -- no file is made there
TAKEN = (Path("/dev/shm"), ENGINE, MODEL)  # noqa: S108 -- no file is made there

# Program -> the Debian package that brings it.
PROGRAMS = {
    "unshare": "util-linux",
    "nsenter": "util-linux",
    "setpriv": "util-linux",
    "pivot_root": "util-linux",
    "mount": "mount",
    "ip": "iproute2",
    "ss": "iproute2",
    "systemctl": "systemd",
}
UNITS = {"systemd-journald.service": "systemd", "dbus.service": "dbus"}


def boot(
    *, extra: tuple[Path, ...] = (), standins: bool = True, image: Path | None = None, before: Before | None = None
) -> AbstractContextManager[Machine]:
    """Boot a private machine; leaving the context ends everything in it and removes its cgroup folder.

    The folders of `extra` stand inside at their own paths, read-only. `standins`: with stand-in GPUs, engine and model,
    and a config that names them. `image`: the machine whose `Machine.image` that is boots again; `before`: what is done
    before the units that it has enabled are started. Raises Problem where this host cannot, with what to type.
    """
    require()
    furnish = install_gpus if image else install_standins if standins else _leave_bare
    return _booted(needed(extra), image, (furnish, before or _leave_bare))


def require() -> None:
    """Raise Problem when this host lacks what a private machine takes."""
    if os.geteuid() != 0:
        raise Problem("cannot boot a private systemd: only root may", hint=f"sudo {sys.prefix}/bin/dsv4ctl rehearse")
    if missing := {**_missing_programs(), **_missing_units()}:
        hint = f"apt-get install {' '.join(sorted(set(missing.values())))}"
        raise Problem(f"cannot boot a private systemd: {', '.join(missing)} not found", hint=hint)
    procs.cgroup_root()


def _missing_programs() -> dict[str, str]:
    return {name: package for name, package in PROGRAMS.items() if shutil.which(name) is None}


def _missing_units() -> dict[str, str]:
    folders = [Path(folder) for folder in ("/usr/lib/systemd/system", "/lib/systemd/system")]
    return {name: package for name, package in UNITS.items() if not any((folder / name).exists() for folder in folders)}


def needed(extra: tuple[Path, ...]) -> tuple[Path, ...]:
    """Those of our interpreter, our package and `extra` that an overlay lacks and that must be bound, outermost first.

    Raises Problem for one that cannot stand inside at its own path.
    """
    package = Path(dsv4ctl.__file__).parent.parent
    wanted = {path.resolve() for path in (Path("/usr"), Path(sys.prefix), Path(sys.base_prefix), package, *extra)}
    root = Path("/").stat().st_dev
    for path in sorted(wanted):
        taken = next((folder for folder in TAKEN if path.is_relative_to(folder)), None)
        if taken is not None:
            hint = "move it, or install dsv4ctl into a virtual environment elsewhere"
            raise Problem(f"cannot rehearse with {path}: the rehearsal puts something of its own at {taken}", hint=hint)
    fresh = {path for path in wanted if any(path.is_relative_to(folder) for folder in FRESH)}
    return tuple(path for path in sorted(wanted) if path in fresh or path.stat().st_dev != root)


def _leave_bare(_machine: Machine) -> None:
    """Nothing is done to the machine."""


@contextmanager
def _booted(folders: tuple[Path, ...], image: Path | None, done_first: tuple[Before, ...]) -> Iterator[Machine]:
    cgroup.sweep()
    group = cgroup.make()
    try:
        with (
            os.fdopen(os.memfd_create("stderr"), "r+b") as stderr,
            _started(group, (str(image or ""), *map(str, folders)), stderr) as process,
        ):
            machine = Machine(pid=_first_pid(process, stderr), group=group)
            if until(lambda: _is_running(machine, process, stderr), RealClock(), BOOT_LIMIT_S, 0.02) is None:
                raise _cannot_boot(stderr, f"it was not up within {BOOT_LIMIT_S:g} s")
            for do in done_first:
                do(machine)
            # What an image has enabled may take its time to start, as on any host.
            machine.run(("systemctl", "start", "--no-block", "multi-user.target"), timeout_s=BOOT_LIMIT_S)
            yield machine
    finally:
        cgroup.remove(group)


@contextmanager
def _started(group: Path, words: tuple[str, ...], stderr: IO[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    """Start the first process. Were we killed, the kernel would kill `unshare`, then it, then all the rest."""
    boot = ("/bin/sh", BOOT, group, UNIT_PATH, *words)
    started = subprocess.Popen(
        ("/usr/bin/env", "setpriv", "--pdeathsig", "KILL", "unshare", *NAMESPACES, *map(str, boot)),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=stderr,
        env={**os.environ, **child.LANGUAGE},
        start_new_session=True,
    )
    with started as process:
        try:
            yield process
        finally:
            # Its child before itself, so that it reaps the child and leaves no zombie to the host's first process.
            cgroup.kill(group)
            with suppress(subprocess.TimeoutExpired):
                process.wait(END_LIMIT_S)
            process.kill()


def _first_pid(process: subprocess.Popen[bytes], stderr: IO[bytes]) -> int:
    """The pid that the first process says it has."""
    said = process.stdout.readline() if process.stdout else b""
    if not said.strip().isdigit():
        process.wait()
        raise _cannot_boot(stderr, "its first process did not start")
    return int(said)


def _is_running(machine: Machine, process: subprocess.Popen[bytes], stderr: IO[bytes]) -> bool | None:
    """True: the machine is up; None: not yet. Raises Problem when it will not be."""
    if process.poll() is not None:
        raise _cannot_boot(stderr, f"its first process ended with status {process.returncode}")
    state = machine.run(("systemctl", "is-system-running"), timeout_s=BOOT_LIMIT_S, check=False).stdout.strip()
    if state == "degraded":
        failed = machine.run(("systemctl", "list-units", "--failed", "--plain", "--no-legend"), timeout_s=BOOT_LIMIT_S)
        raise _cannot_boot(stderr, f"a unit failed: {failed.stdout.strip()}")
    return True if state == "running" else None


def _cannot_boot(stderr: IO[bytes], otherwise: str) -> Problem:
    stderr.seek(0)
    said = stderr.read().decode(errors="replace").strip() or otherwise
    hint = "it takes root on the host itself, or a container started with --privileged --cgroupns=host"
    return Problem(f"cannot boot a private systemd: {said}", hint=hint)
