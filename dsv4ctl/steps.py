"""What is to be done to a host, as data: a step says what, and why. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

from dsv4ctl.free import FreeStep
from dsv4ctl.generations import Generation
from dsv4ctl.model import Instance
from dsv4ctl.names import INSTANCE_FOLDER


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteFile:
    """Write a file whole. `before` is the text it replaces, None when there is none."""

    path: str
    text: str
    before: str | None
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveFile:
    """Remove a file that deploy once wrote."""

    path: str
    before: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Reload:
    """Have systemd read the unit files again."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetFailed:
    """Clear a unit's failed state and its start counter: an operator's start is not refused for old failures."""

    unit: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """Stop a unit through systemd: drain, TERM, KILL, and wait for it."""

    unit: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Start an instance's unit, or follow the start that is under way, until it is proved."""

    instance: Instance
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StartTogether:
    """Start several instances side by side, and follow each until it is proved; the first that fails ends it."""

    starts: tuple[Start, ...]
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """Start the target over all instances, so that it is active while they are and stops when they are to."""

    unit: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Enable:
    """Have the host start the unit at boot."""

    unit: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Disable:
    """Have the host no longer start the unit at boot."""

    unit: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Keep:
    """Keep a release under its number, before anything is done for it: what is attempted is known afterwards."""

    generation: Generation
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EndPause:
    """End the pause, so that supervisors start, restart and judge again."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseBrake:
    """Forget which starts failed and who is parked for it: an operator's start begins afresh."""

    reason: str


Step: TypeAlias = (
    WriteFile
    | RemoveFile
    | Reload
    | ResetFailed
    | Stop
    | Start
    | StartTogether
    | Reach
    | Enable
    | Disable
    | Keep
    | EndPause
    | ReleaseBrake
    | FreeStep
)


def is_record(step: Step) -> bool:
    """Whether a step changes what is written down of ours, and no process: an ending goes on where it fails."""
    return isinstance(step, RemoveFile | Disable | Reload | ResetFailed)


def is_leftover(step: Step) -> bool:
    """Whether a step removes a file that no unit names any more: what serves by then is not ended for it."""
    return isinstance(step, RemoveFile) and step.path.startswith(INSTANCE_FOLDER)


def started(steps: Iterable[Step]) -> tuple[Instance, ...]:
    """The instances that the steps start, in their order."""
    starts = (step.starts if isinstance(step, StartTogether) else (step,) for step in steps)
    return tuple(one.instance for group in starts for one in group if isinstance(one, Start))
