"""What `dsv4ctl memory` is asked and what it answers, as values."""

from dataclasses import dataclass, replace

from dsv4ctl.memory import compare, foresee, recommend, verdict
from dsv4ctl.memory.asked import Ask, Speculation
from dsv4ctl.memory.budget import Budget
from dsv4ctl.memory.compare import Row
from dsv4ctl.memory.foresee import Foreseen
from dsv4ctl.memory.marks import Mark
from dsv4ctl.memory.recommend import Advice
from dsv4ctl.memory.spec import Unplanned
from dsv4ctl.memory.verdict import Answer as Verdict
from dsv4ctl.model import RoleShape


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is asked beside the config. None: as configured, as found on this host. Contexts in tokens."""

    gpu: str | None = None
    checkpoint: str | None = None
    tp: int | None = None
    requests: int = 1
    speculation: Speculation | None = None
    contexts: tuple[int, ...] = ()
    compared: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One role with one context: its plan, what is recommended, and other contexts beside it. `faults`: of its GPUs."""

    shape: RoleShape
    found: Foreseen | Unplanned
    advice: Advice | None = None
    rows: tuple[Row, ...] = ()
    faults: tuple[str, ...] = ()

    @property
    def budget(self) -> Budget | None:
        """The planned budget; None where none could be made."""
        return self.found.budget if isinstance(self.found, Foreseen) else None

    @property
    def fits(self) -> bool:
        """Whether the plan may be served as it is; what cannot be planned is nothing that does not fit."""
        return not isinstance(self.found, Foreseen) or self.found.verdict.answer is not Verdict.DOES_NOT_FIT

    @property
    def recommended(self) -> Advice | None:
        """The advice; None where no flags at all make this context fit."""
        impossible = self.advice and verdict.of(self.advice.budget).answer is Verdict.DOES_NOT_FIT
        return None if impossible else self.advice


def of(shape: RoleShape, asked_for: Ask | Unplanned, question: Question, earlier: Mark | None = None) -> Answer:
    """The answer for one role. What others hold now decides on the plan and not on what is recommended."""
    if isinstance(asked_for, Unplanned):
        return Answer(shape=shape, found=asked_for)
    spoken = question.speculation or asked_for.speculation
    found = foresee.of(replace(asked_for, requests=question.requests, speculation=spoken), earlier)
    free = replace(found.budget.ask, fraction=None, occupied_bytes=0)
    return Answer(shape=shape, found=found, advice=recommend.advise(free), rows=compare.rows(free, question.compared))
