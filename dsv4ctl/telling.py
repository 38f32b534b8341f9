"""What is told of steps while they are done, as values; how it is shown is the listener's business. Pure."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from dsv4ctl.model import RunState, Unit
from dsv4ctl.steps import Step

if TYPE_CHECKING:
    from dsv4ctl.planned import Plan


@dataclass(frozen=True, slots=True)
class Planned:
    """What is about to be done, or refused."""

    plan: "Plan"


@dataclass(frozen=True, slots=True)
class Doing:
    """A step is begun."""

    step: Step


@dataclass(frozen=True, slots=True)
class Seen:
    """One look at a unit that is starting or stopping. `state` is None before its supervisor said anything."""

    unit: Unit
    state: RunState | None


@dataclass(frozen=True, slots=True)
class Waits:
    """What a step that takes time waits for, in words."""

    words: str


@dataclass(frozen=True, slots=True)
class Warns:
    """What the operator should know before anything is done."""

    words: str


@dataclass(frozen=True, slots=True)
class Wrote:
    """What the engine or router of a unit that fails wrote last, the oldest line first."""

    unit: str
    lines: tuple[str, ...]


Said: TypeAlias = Planned | Doing | Seen | Waits | Warns | Wrote
Tell: TypeAlias = Callable[[Said], None]
