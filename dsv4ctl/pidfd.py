"""Signals that cannot hit another process, and the end of a whole set of them. Whom to end, others decide."""

import errno
import os
import signal as signals
from collections.abc import Callable, Iterable

from dsv4ctl import procs
from dsv4ctl.clock import Clock
from dsv4ctl.model import Identity
from dsv4ctl.problems import Problem


def signal(process: Identity, number: signals.Signals) -> bool:
    """Send a signal to this very process; False: it is gone, or its pid belongs to another one now.

    The pidfd is opened first and the identity looked at after that, so the pid cannot change hands between look and
    signal. Raises Problem when we may not signal it, or cannot find out.
    """
    try:
        pidfd = os.pidfd_open(process.pid)
    except OSError as error:
        # EINVAL, ENOENT on newer kernels: the number of a thread, which is no process.
        if error.errno in {errno.ESRCH, errno.EINVAL, errno.ENOENT}:
            return False
        raise Problem(f"cannot signal pid {process.pid}: {os.strerror(error.errno or 0).lower()}") from None
    try:
        if procs.identity(process.pid) != process:
            return False
        signals.pidfd_send_signal(pidfd, number)
    except ProcessLookupError:
        return False
    except PermissionError:
        raise Problem(f"cannot signal pid {process.pid}: it belongs to another user", hint="run it as root") from None
    finally:
        os.close(pidfd)
    return True


def end_all(
    find: Callable[[], Iterable[Identity]], clock: Clock, limit_s: float, *, term_s: float = 0.0
) -> tuple[Identity, ...]:
    """End what `find` finds, looking again until it finds nothing that lives; returns those that outlived `limit_s`.

    Each process gets one SIGTERM and `term_s` from the first look to heed it, then SIGKILL at every look: what is
    forked meanwhile is found by the next one. We ourselves are never among them. Raises Problem when one may not be
    signalled.
    """
    began = clock.now()
    asked: set[Identity] = set()
    while True:
        left = tuple(process for process in find() if process.pid != os.getpid() and procs.alive(process))
        waited = clock.now() - began
        if not left or waited >= limit_s:
            return left
        for process in left:
            if waited >= term_s:
                signal(process, signals.SIGKILL)
            elif process not in asked:
                signal(process, signals.SIGTERM)
        asked.update(left)
        clock.sleep(0.02)
