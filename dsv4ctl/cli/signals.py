"""What the signals of a lost terminal and of an operator's `kill` do to a command."""

import os
import signal
from types import FrameType

# Half done, these leave a host that does not serve; the rest only shows something.
CHANGING = frozenset({"deploy", "rollback", "teardown"})


def heed(command: str) -> None:
    """SIGTERM interrupts like Ctrl-C; SIGHUP, the end of an ssh session, does not end a command that changes the host.

    Under nohup SIGHUP stays ignored, and the output goes where it went.
    """
    signal.signal(signal.SIGTERM, _interrupt)
    if command in CHANGING and signal.getsignal(signal.SIGHUP) is signal.SIG_DFL:
        # Asked now: one that is gone does not even say that it was a terminal.
        terminals = tuple(number for number in (0, 1, 2) if os.isatty(number))
        signal.signal(signal.SIGHUP, lambda *_: _leave(terminals))


def _interrupt(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 -- the signature of a handler
    raise KeyboardInterrupt


def _leave(terminals: tuple[int, ...]) -> None:
    """A terminal that is gone refuses every write: what would be said on it goes nowhere; files are written on."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for number in terminals:
        os.dup2(nowhere, number)
    os.close(nowhere)
