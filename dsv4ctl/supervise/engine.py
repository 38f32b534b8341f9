"""The engine as a child process: started, its end told, reaped. Knows nothing of what it is for."""

import contextlib
import fcntl
import os
import signal
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from dsv4ctl import procs
from dsv4ctl.model import Identity
from dsv4ctl.problems import EngineMissing

# What systemd says to its main process only. With NOTIFY_SOCKET in reach an engine, or a tool that it runs, would send
# messages that NotifyAccess=main refuses, one journal line each; the rest would be lies in another process.
FOR_US_ALONE = (
    "NOTIFY_SOCKET",
    "CREDENTIALS_DIRECTORY",
    "WATCHDOG_USEC",
    "WATCHDOG_PID",
    "LISTEN_FDS",
    "LISTEN_PID",
    "LISTEN_FDNAMES",
    "JOURNAL_STREAM",
    "SYSTEMD_EXEC_PID",
    "RUNTIME_DIRECTORY",
    "STATE_DIRECTORY",
)
# 200,000 log lines in 10 s come in bursts: a full pipe would hold the engine up until we have read it.
PIPE_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Child:
    """A started engine: who it is, a pidfd that turns readable at its end, and its stdout and stderr as one stream."""

    identity: Identity
    pidfd: int
    output: int


@dataclass(frozen=True, slots=True)
class End:
    """How the engine's main process ended: by `status`, or by signal `number`."""

    status: int | None = None
    number: int | None = None

    @property
    def words(self) -> str:
        """The end for people."""
        if self.number is None:
            return f"ended with exit status {self.status}"
        return f"was killed by {signal_name(self.number)}"


def signal_name(number: int) -> str:
    """SIGTERM for 15; real-time signals have no name but their number."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def environment(ours: Mapping[str, str]) -> dict[str, str]:
    """The engine's environment: ours, without what is addressed to systemd's main process."""
    return {name: value for name, value in ours.items() if name not in FOR_US_ALONE}


def start(argv: Iterable[str], env: Mapping[str, str]) -> Child:
    """Start the engine with one pipe for stdout and stderr. Raises EngineMissing when it cannot be executed.

    It leads a session of its own. All processes of SGLang stay in the session of their main process, so that session is
    a sign by which orphans are found where no cgroup is; and Ctrl-C on a terminal reaches us alone, not its schedulers,
    which have no handler and would turn a stop into a crash. Dispositions and mask are the default ones: a signal that
    is ignored or blocked is inherited by every program below.
    """
    words = list(argv)
    reader, writer = os.pipe()
    with contextlib.suppress(OSError):  # an unprivileged user may be over its pipe limit; then the default has to do
        fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    try:
        pid = os.posix_spawn(
            words[0],
            words,
            env,
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
                (os.POSIX_SPAWN_DUP2, writer, 1),
                (os.POSIX_SPAWN_DUP2, writer, 2),
            ],
            setsid=True,
            setsigmask=(),
            setsigdef=signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP},
        )
    except OSError as error:
        os.close(reader)
        raise EngineMissing(f"cannot start {words[0]}: {(error.strerror or str(error)).lower()}") from error
    finally:
        os.close(writer)
    os.set_blocking(reader, False)
    if (identity := procs.identity(pid)) is None:  # not reaped yet, so it is there, even when it has ended already
        raise EngineMissing(f"cannot start {words[0]}: /proc does not show pid {pid}", hint="is /proc mounted?")
    return Child(identity, os.pidfd_open(pid), reader)


def end_of(child: Child) -> End | None:
    """How the engine's main process ended, leaving it unreaped; None while it runs."""
    found = os.waitid(os.P_PIDFD, child.pidfd, os.WEXITED | os.WNOWAIT | os.WNOHANG)
    if found is None:
        return None
    return End(status=found.si_status) if found.si_code == os.CLD_EXITED else End(number=found.si_status)


def reap(child: Child) -> None:
    """Let go of an engine whose tree has ended: from here on its pid may belong to anybody."""
    with contextlib.suppress(ChildProcessError):
        os.waitid(os.P_PIDFD, child.pidfd, os.WEXITED | os.WNOHANG)
    os.close(child.pidfd)
    os.close(child.output)
