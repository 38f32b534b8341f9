"""The GPUs of this host, read by a program of our own so that a hanging driver takes that program and not us."""

import errno
import json
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from dsv4ctl import child, topology
from dsv4ctl.child import Begun
from dsv4ctl.clock import RealClock, until
from dsv4ctl.model import Gpu, GpuProcess, GpuView
from dsv4ctl.problems import CannotRun, Problem

PROGRAM = "dsv4ctl-nvml"
# Has the program come up, and ask the driver when it reads a line.
WAITS = "wait"
# An address of the kernel's own (unix(7), abstract), one for all who ask.
TURN = f"\0{PROGRAM}"
LOOK_EVERY_S = 0.02
# As long as a query may take, its end included: whoever has it still after this cannot be ended.
TURN_LIMIT_S = 12.0


class Query:
    """A question to the driver that is prepared before it is put, once: the program takes ten times as long to come up
    as to answer. Leaving the context ends a program that was not asked."""

    def __init__(self) -> None:
        self._turn = socket.socket(socket.AF_UNIX)
        self._begun: Begun | None = None
        self._trouble = ""
        try:
            # It has our turn as well, from when that is taken on: a socket that is bound is so for all who have it.
            self._begun = child.begin([program(), WAITS], keep=(self._turn.fileno(),))
        except CannotRun as error:
            self._trouble = str(error)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._turn.close()
        if self._begun is not None:
            self._begun.end()

    def view(self, timeout_s: float = 10, sysfs: Path = topology.SYSFS) -> GpuView:
        """All GPUs as they are now, in the order of their PCI addresses, or in the view's `problem` why not.

        The program is ended after `timeout_s`, or left behind when the driver holds it in uninterruptible sleep; then
        none asks beside it, by whichever command. Raises Problem when it answers what it never should.
        """
        if self._begun is None:
            return GpuView(problem=self._trouble)
        if until(lambda: _taken(self._turn), RealClock(), TURN_LIMIT_S, LOOK_EVERY_S) is None:
            return GpuView(
                problem=f"GPU query hung: one that began more than {TURN_LIMIT_S:g} s ago has not come back, nor ended"
            )
        begun, self._begun = self._begun, None
        try:
            done = begun.finish("now\n", timeout_s=timeout_s)
        except child.TimedOut as error:
            left = " and cannot be ended" if error.abandoned else ""
            return GpuView(problem=f"GPU query hung for {timeout_s:g} s{left}")
        except CannotRun as error:
            return GpuView(problem=str(error))
        finally:
            self._turn.close()
        return parse(done.stdout, sysfs)


def read(timeout_s: float = 10, sysfs: Path = topology.SYSFS) -> GpuView:
    """All GPUs as they are now, where nothing is to be done before: see `Query.view`."""
    with Query() as query:
        return query.view(timeout_s, sysfs)


def parse(text: str, sysfs: Path = topology.SYSFS) -> GpuView:
    """Read what `dsv4ctl-nvml` prints; its schema stands in nvml.py. Raises Problem for anything else."""
    try:
        said = json.loads(text)
        if "problem" in said:
            return GpuView(problem=str(said["problem"]))
        return GpuView(
            gpus=tuple(_gpu(gpu, sysfs) for gpu in said["gpus"]),
            driver=said["driver"],
            unreadable=tuple(said.get("unreadable", ())),
        )
    except (ValueError, KeyError, TypeError) as error:
        why = f"it does not say {error}" if isinstance(error, KeyError) else str(error)
        raise Problem(f"cannot understand what {PROGRAM} says of the GPUs: {why}", hint=PROGRAM) from None


def program() -> str | Path:
    """The program that was installed with this interpreter's packages, else the one on PATH."""
    beside = Path(sys.executable).parent / PROGRAM
    return beside if beside.is_file() else PROGRAM


def _taken(turn: socket.socket) -> bool | None:
    """Whether it is our turn to ask; None: not yet.

    The name is taken as long as somebody has the socket, so a query that hangs in the driver keeps it, and the kernel
    takes it back from whoever ends in whatever way. It leaves no file behind, and a sandbox lets it be.
    """
    try:
        turn.bind(TURN)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            return None
    return True


def _gpu(said: Mapping[str, Any], sysfs: Path) -> Gpu:
    processes = said["processes"]
    return Gpu(
        index=said["index"],
        uuid=said["uuid"],
        name=said["name"],
        pci_address=said["pci_address"],
        total_bytes=said["total_bytes"],
        used_bytes=said["used_bytes"],
        reserved_bytes=said["reserved_bytes"],
        processes=tuple(GpuProcess(pid=one["pid"], used_bytes=one["used_bytes"]) for one in processes or ()),
        processes_told=processes is not None,
        mig=said.get("mig", False),
        numa_node=topology.numa_node(said["pci_address"], sysfs),
    )
