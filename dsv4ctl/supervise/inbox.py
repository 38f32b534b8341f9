"""One place to wait: for the engine's output and end, for signals, and for what errands bring."""

import contextlib
import os
import selectors
import signal
import socket
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from dsv4ctl.supervise import engine
from dsv4ctl.supervise.engine import Child, End
from dsv4ctl.supervise.errands import Brought, Errands
from dsv4ctl.supervise.hearing import Hearing, Said

# Every signal that would end us or stop us short by default, and that somebody may send on purpose.
HEARD = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
CHUNK = 256 * 1024


@dataclass(frozen=True, slots=True)
class Told:
    """A signal came."""

    number: int


@dataclass(frozen=True, slots=True)
class Quiet:
    """Nothing happened in the time given."""


Happening: TypeAlias = Said | End | Told | Brought | Quiet


class Inbox:
    """Whatever happens, one thing at a time and in the order it came. Waiting passes the engine's output on."""

    def __init__(self, signals: socket.socket) -> None:
        self._selector = selectors.DefaultSelector()
        self._waiting: deque[Happening] = deque()
        self._errands = Errands()
        self._followed: tuple[Child, Hearing] | None = None
        self._selector.register(signals, selectors.EVENT_READ, partial(self._take_signals, signals))
        self._selector.register(self._errands.ready, selectors.EVENT_READ, self._take_results)

    def follow(self, child: Child, hearing: Hearing) -> None:
        """Listen to an engine from now on."""
        self._followed = (child, hearing)
        self._selector.register(child.output, selectors.EVENT_READ, partial(self._take_output, child, hearing))
        self._selector.register(child.pidfd, selectors.EVENT_READ, partial(self._take_end, child, hearing))

    def send(self, name: str, errand: Callable[[], object]) -> bool:
        """Have something asked in a thread; False: an errand of that name is still out."""
        return self._errands.send(name, errand)

    def waits_for(self, name: str) -> bool:
        """Whether an errand of that name is still out."""
        return self._errands.is_out(name)

    def next(self, timeout_s: float) -> Happening:
        """The next happening; Quiet when there was none for that long, or when output came that says nothing."""
        if not self._waiting:
            for key, _ in self._selector.select(max(0.0, timeout_s)):
                key.data()
        return self._waiting.popleft() if self._waiting else Quiet()

    def finish(self) -> None:
        """Pass on the last that the engine's tree wrote, and let go of the engine. Its tree must have ended."""
        if self._followed is None:
            return
        child, hearing = self._followed
        self._followed = None
        self._read_all(child, hearing)
        hearing.finish()
        self._forget(child.output)
        self._forget(child.pidfd)
        engine.reap(child)

    def _take_signals(self, signals: socket.socket) -> None:
        self._waiting.extend(Told(number) for number in signals.recv(4096))

    def _take_results(self) -> None:
        self._waiting.extend(self._errands.collect())

    def _take_output(self, child: Child, hearing: Hearing) -> bool:
        """Read once; whether there may be more."""
        try:
            output = os.read(child.output, CHUNK)
        except BlockingIOError:
            return False
        if not output:
            self._forget(child.output)
            return False
        self._waiting.extend(hearing.hear(output))
        return True

    def _take_end(self, child: Child, hearing: Hearing) -> None:
        self._forget(child.pidfd)
        # Its last words came before its end, and say why.
        self._read_all(child, hearing)
        self._waiting.extend(hearing.hear_end())
        if (end := engine.end_of(child)) is not None:
            self._waiting.append(end)

    def _read_all(self, child: Child, hearing: Hearing) -> None:
        # Orphans may go on writing for ever; what fits into the pipe is what was there.
        for _ in range(engine.PIPE_BYTES // CHUNK + 1):
            if not self._take_output(child, hearing):
                return

    def _forget(self, file: int) -> None:
        with contextlib.suppress(KeyError):
            self._selector.unregister(file)


@contextlib.contextmanager
def signals() -> Iterator[socket.socket]:
    """Catch signals as bytes on a socket, whatever mask and dispositions we were started with."""
    reader, writer = socket.socketpair()
    with reader, writer:
        reader.settimeout(0)
        writer.settimeout(0)
        before = {number: signal.signal(number, _heard) for number in HEARD}
        old = signal.set_wakeup_fd(writer.fileno())
        signal.pthread_sigmask(signal.SIG_UNBLOCK, HEARD)
        try:
            yield reader
        finally:
            signal.set_wakeup_fd(old)
            for number, handler in before.items():
                signal.signal(number, handler)


def _heard(_number: int, _frame: object) -> None:
    """Python writes the number to the wakeup socket; there is nothing left to do."""
