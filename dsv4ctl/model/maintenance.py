"""What keeps engines from being started: a pause that an operator asked for, and the brake on starts that fail."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """A time in which nothing is restarted and nothing is ended for its health. Seconds since the epoch."""

    who: str
    reason: str
    since: float
    until: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A start that came to nothing, or an engine that ended unasked: when (seconds since the epoch), and how."""

    at: float
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """What one instance's starts came to. `open_since`: when the start began that has not ended yet, None: there is
    none. `parked`: when and why it is started no more, None: it is not parked."""

    open_since: float | None = None
    failed: tuple[Failure, ...] = ()
    parked: Failure | None = None
