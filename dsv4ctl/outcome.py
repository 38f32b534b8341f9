"""What --json says: one object, of what was found and of the problem that ended the command, if one did. Pure."""

import json
import math
from collections.abc import Mapping, Set
from dataclasses import dataclass, field, fields, is_dataclass
from enum import Enum

from dsv4ctl.problems import Problem


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a command ended: what it found until then, and what it could not do, if so."""

    found: Mapping[str, object] = field(default_factory=dict)
    problem: Problem | None = None

    def text(self) -> str:
        """One JSON object in one line; `problem` stands in it only when there is one."""
        said = {"problem": self.problem} if self.problem else {}
        return json.dumps(plain({**self.found, **said}), allow_nan=False)


def plain(value: object) -> object:
    """A value of the house as JSON knows it; what JSON has no word for is told as text."""
    match value:
        case Enum():
            return value.value
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else None
        case Problem():
            return _problem(value)
        case Mapping():
            return {str(name): plain(part) for name, part in value.items()}
        case list() | tuple():
            return [plain(part) for part in value]
        case Set():
            return sorted((plain(part) for part in value), key=str)
    if is_dataclass(value):
        return {one.name: plain(getattr(value, one.name)) for one in fields(value)}
    return str(value)


def _problem(problem: Problem) -> dict[str, object]:
    cause = problem.__cause__
    # What was extended says itself what it came from; another kind is news.
    because = {"because": cause} if isinstance(cause, Problem) and cause.kind != problem.kind else {}
    return {
        "kind": problem.kind,
        "status": problem.status.value,
        "message": str(problem),
        "hint": problem.hint,
        "details": plain({**problem.details, **because}),
    }
