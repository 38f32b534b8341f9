"""What is asked for -> its budget, with the fraction that "auto" stands for, the verdict and the way out."""

from dataclasses import dataclass, replace

from dsv4ctl.memory import budget, learnt, recommend, remedy, verdict
from dsv4ctl.memory.asked import Ask, Measured
from dsv4ctl.memory.budget import Budget
from dsv4ctl.memory.marks import Mark
from dsv4ctl.memory.verdict import Answer, Verdict
from dsv4ctl.model import Role


@dataclass(frozen=True, slots=True, kw_only=True)
class Foreseen:
    """One role's memory as planned. `auto`: its fraction is the planner's; `way_out`: the smallest change that fits."""

    role: Role
    budget: Budget
    verdict: Verdict
    auto: bool
    way_out: str = ""
    from_mark: bool = False


def of(asked_for: Ask, earlier: Mark | None = None) -> Foreseen:
    """The memory of one engine. `earlier`: what a start with the same key took, whose amounts replace estimates.

    An automatic fraction that once served is kept as long as it fits what was measured then: a better one would restart
    an engine that nobody asked to change.
    """
    if asked_for.fraction is not None:
        return given(asked_for, earlier, auto=False)
    taught = replace(asked_for, measured=learnt.measured(earlier) if earlier else Measured())
    kept = earlier.fraction if earlier and earlier.auto else None
    # What others hold now must not decide: they may be gone at the next deploy.
    alone = replace(taught, occupied_bytes=0)
    if kept is not None and _fits(replace(alone, fraction=kept)):
        return _judged(replace(taught, fraction=kept), auto=True, from_mark=True)
    share = recommend.fraction(alone)
    return _judged(replace(taught, fraction=share), auto=True, from_mark=earlier is not None)


def given(asked_for: Ask, earlier: Mark | None, *, auto: bool) -> Foreseen:
    """The memory of one engine with exactly these flags; `auto`: its fraction was not given by a person."""
    taught = replace(asked_for, measured=learnt.measured(earlier) if earlier else Measured())
    return _judged(taught, auto=auto, from_mark=earlier is not None)


def _fits(ask: Ask) -> bool:
    return verdict.of(budget.of(ask)).answer is not Answer.DOES_NOT_FIT


def _judged(ask: Ask, *, auto: bool, from_mark: bool) -> Foreseen:
    made = budget.of(ask)
    found = verdict.of(made)
    change = remedy.of(ask) if found.answer is Answer.DOES_NOT_FIT else None
    return Foreseen(
        role=ask.role,
        budget=made,
        verdict=found,
        auto=auto,
        way_out=change.words if change else "",
        from_mark=from_mark,
    )
