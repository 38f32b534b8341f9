"""A process's own title and its tie to its parent, as SGLang's workers set them."""

import ctypes
import os
import signal
from pathlib import Path

PR_SET_PDEATHSIG = 1
PR_SET_NAME = 15

libc = ctypes.CDLL(None, use_errno=True)


def retitle(title: str) -> None:
    """Overwrite our own argv and environment with a title, as setproctitle does: /proc/PID/environ is wiped with it."""
    variables = dict(os.environ)
    libc.clearenv()
    for name, value in variables.items():
        # clearenv() has emptied what libc knows; putting each back copies it out of the area that is wiped now.
        os.environ[name] = value
    start, end = _area()
    wiped = title.encode()[: end - start - 1].ljust(end - start, b"\0")
    ctypes.memmove(start, wiped, end - start)
    libc.prctl(PR_SET_NAME, ctypes.c_char_p(title.encode()[:15]), 0, 0, 0)


def die_with_parent() -> None:
    """Ask the kernel for SIGKILL when the parent dies. A parent that is dead already sends nothing any more."""
    libc.prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)


def _area() -> tuple[int, int]:
    """Where argv begins and the environment ends, from fields 48 to 51 of /proc/self/stat."""
    after_name = Path("/proc/self/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    arg_start, arg_end, env_start, env_end = (int(word) for word in after_name[45:49])
    return arg_start, env_end if env_start == arg_end else arg_end
