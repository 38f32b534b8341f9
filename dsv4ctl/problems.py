"""The one family of errors: each says what cannot be done, to what, why, and what to type; only cli catches it."""

from collections.abc import Mapping, Sequence
from copy import copy
from enum import IntEnum
from typing import ClassVar, Self


class Status(IntEnum):
    """Exit statuses of the `dsv4ctl` command."""

    OK = 0
    USAGE = 2
    PORT_TAKEN = 3
    GPU = 4
    ENGINE_MISSING = 5
    NOT_READY = 6
    LEFT_OVER = 7
    BUSY = 8
    HOST = 9
    CHANGES = 10
    FOREIGN = 11
    REVERTED = 12
    MOVED = 13
    BUG = 70
    INTERRUPTED = 130


class Problem(Exception):
    """Something that cannot be done. `hint` is what to type or look at next; `details` tells programs, by name and as
    values, who holds what and what is left; `kind` is the member of the family by the name that programs know."""

    status: ClassVar[Status] = Status.HOST
    kind: ClassVar[str] = "host"

    def __init__(self, message: str, *, hint: str = "", details: Mapping[str, object] | None = None) -> None:
        super().__init__(message)
        self.hint = hint
        self.details: Mapping[str, object] = details or {}

    def whole(self) -> str:
        """The message with its hint below it, for a place that is not the end."""
        return f"{self}\n  try: {self.hint}" if self.hint else str(self)

    def extended(self, *lines: str) -> Self:
        """The same problem with more to say after its hint; the last line is what the reader is left with."""
        longer = copy(self)
        longer.args, longer.hint = ("\n".join((self.whole(), *lines)),), ""
        return longer


class BadConfig(Problem):
    """Every problem of a configuration at once, one message each."""

    status = Status.USAGE
    kind = "config"

    def __init__(self, messages: tuple[str, ...], *, hint: str = "") -> None:
        super().__init__("\n".join(messages), hint=hint, details={"messages": messages})
        self.messages = messages


class WrongOption(Problem):
    """What was typed cannot be meant: it names a file, a release, a role or a process that is not there."""

    status = Status.USAGE
    kind = "option"


class DoesNotFit(Problem):
    """What is configured cannot fit into the memory of its GPUs."""

    status = Status.USAGE
    kind = "memory"


class PortTaken(Problem):
    """A port that an instance needs is held by somebody else."""

    status = Status.PORT_TAKEN
    kind = "port taken"


class GpuProblem(Problem):
    """GPUs that are asked for are not there, cannot be read or are not free."""

    status = Status.GPU
    kind = "gpu"


class EngineMissing(Problem):
    """The engine's interpreter, its package or the model cannot be found or used."""

    status = Status.ENGINE_MISSING
    kind = "engine"


class NotReady(Problem):
    """An instance did not start, died, stalled, or could not be proved."""

    status = Status.NOT_READY
    kind = "not ready"


class Reverted(Problem):
    """A deploy failed, and the last release that was proved serves again."""

    status = Status.REVERTED
    kind = "reverted"


class Moved(Problem):
    """What a saved plan stands on is not where it was."""

    status = Status.MOVED
    kind = "moved"


class LeftOver(Problem):
    """Something is left after a teardown."""

    status = Status.LEFT_OVER
    kind = "survivors"


class ForeignHolder(Problem):
    """Somebody who may not be ended holds what is needed."""

    status = Status.FOREIGN
    kind = "foreign holder"


class Busy(Problem):
    """Another dsv4ctl holds the lock."""

    status = Status.BUSY
    kind = "busy"


class CannotRun(Problem):
    """A program is missing, failed, or did not end in time."""

    kind = "program"


class WrongUsage(Problem):
    """What was typed is no command line of ours."""

    status = Status.USAGE
    kind = "usage"


class Interrupted(Problem):
    """Somebody ended the command by Ctrl-C or SIGTERM."""

    status = Status.INTERRUPTED
    kind = "interrupted"


class Bug(Problem):
    """A fault of dsv4ctl itself."""

    status = Status.BUG
    kind = "fault"


def together(problems: Sequence[Problem]) -> Problem | None:
    """Several problems as one, of the kind of the first and with its hint; None where there is none."""
    if len(problems) < 2:
        return next(iter(problems), None)
    first, words = problems[0], tuple(map(str, problems))
    if isinstance(first, BadConfig):
        return BadConfig(words, hint=first.hint)
    return type(first)("\n".join(words), hint=first.hint, details={"problems": tuple(problems)})
