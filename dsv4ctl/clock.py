"""Time, handed in: whoever waits takes a `Clock`, so that a test can turn hours without waiting."""

import time
from collections.abc import Callable
from typing import Protocol, TypeVar

T = TypeVar("T")


class Clock(Protocol):
    """The three things that are done with time. All values are seconds."""

    def now(self) -> float:
        """Monotonic time (CLOCK_MONOTONIC, as systemd's own stamps); only differences mean something."""
        ...

    def wall(self) -> float:
        """Seconds since the epoch, for people and for records; it may jump."""
        ...

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        ...


class RealClock:
    """The machine's clock."""

    def now(self) -> float:
        """Monotonic seconds."""
        return time.monotonic()

    def wall(self) -> float:
        """Seconds since the epoch."""
        return time.time()

    def sleep(self, seconds: float) -> None:
        """Sleep; not at all for zero or less."""
        time.sleep(max(0.0, seconds))


def until(judge: Callable[[], T | None], clock: Clock, deadline_s: float, every_s: float) -> T | None:
    """Ask `judge` every `every_s` until it finds something, for at most `deadline_s` from now; None: it never did.

    The judge is asked at least once, and a last time when the deadline has come, so that a find at the deadline counts.
    """
    end = clock.now() + deadline_s
    while (found := judge()) is None and (left := end - clock.now()) > 0:
        clock.sleep(min(every_s, left))
    return found
