"""The memory of a whole deploy: every role's plan, the fraction that all share, and what stands against it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from dsv4ctl.memory import foresee
from dsv4ctl.memory import spec as specs
from dsv4ctl.memory.asked import Ask
from dsv4ctl.memory.foresee import Foreseen
from dsv4ctl.memory.marks import Mark
from dsv4ctl.memory.spec import Known, Unplanned
from dsv4ctl.memory.verdict import Answer
from dsv4ctl.model import HostSpec, Role
from dsv4ctl.problems import DoesNotFit


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """What is to be deployed, its fraction settled, and each role's plan. `faults`: of a role's GPUs."""

    spec: HostSpec
    plans: tuple[Foreseen | Unplanned, ...] = ()
    faults: tuple[tuple[Role, str], ...] = ()

    def of(self, role: Role) -> Foreseen | None:
        """The plan of one role; None where it has none."""
        return next((one for one in self.plans if isinstance(one, Foreseen) and one.role is role), None)

    def warnings(self) -> tuple[str, ...]:
        """What is said beside the plan: what is imprecise, and what does not fit if the estimates are right."""
        return tuple(f"memory of {one.role}: {words}" for one in self.plans for words in _warnings(one))

    def refusals(self, starting: Iterable[Role]) -> tuple[DoesNotFit, ...]:
        """Why these roles must not be started, nor anything be stopped for them: each with the change that fits."""
        wanted = set(starting)
        certain = (one for one in self.plans if isinstance(one, Foreseen) and one.verdict.certain)
        return (
            *(_refusal(one) for one in certain if one.role in wanted),
            *(DoesNotFit(f"cannot deploy {role}: {fault}") for role, fault in self.faults if role in wanted),
        )


def of(spec: HostSpec, known: Mapping[Role, Known], earlier: Mapping[Role, Mark]) -> Forecast:
    """The plans of all roles with GPUs. An automatic fraction is one for all of them, the smallest that one needs.

    Where one role cannot be planned, it is left to the engine for all: it stands once in the configuration.
    """
    asked = [specs.ask(spec, shape, known[shape.role]) for shape in specs.with_gpus(spec)]
    plans = tuple(one if isinstance(one, Unplanned) else foresee.of(one, earlier.get(one.role)) for one in asked)
    if spec.memory.mem_fraction_static is not None or not plans:
        return Forecast(spec=spec, plans=plans)
    shares = [one.budget.ask.fraction for one in plans if isinstance(one, Foreseen)]
    agreed = (
        None if len(shares) != len(plans) or None in shares else min(share for share in shares if share is not None)
    )
    settled = replace(spec, memory=replace(spec.memory, mem_fraction_static=agreed))
    return Forecast(spec=settled, plans=tuple(_agreed(one, agreed, earlier) for one in plans))


def _agreed(one: Foreseen | Unplanned, share: float | None, earlier: Mapping[Role, Mark]) -> Foreseen | Unplanned:
    """The plan with the fraction that all roles share; None: the engine's own."""
    if isinstance(one, Unplanned) or one.budget.ask.fraction == share:
        return one
    ask: Ask = replace(one.budget.ask, fraction=share)
    return foresee.given(ask, earlier.get(ask.role), auto=share is not None)


def _warnings(one: Foreseen | Unplanned) -> tuple[str, ...]:
    if isinstance(one, Unplanned):
        return ()
    doubts = one.verdict.reasons if one.verdict.answer is Answer.DOES_NOT_FIT and not one.verdict.certain else ()
    way_out = f"; try {one.way_out}" if one.way_out else ""
    return (*(f"by its estimates it does not fit: {doubt}{way_out}" for doubt in doubts), *one.verdict.warnings)


def _refusal(one: Foreseen) -> DoesNotFit:
    return DoesNotFit(
        f"cannot deploy {one.role}: its memory does not fit: {'; '.join(one.verdict.reasons)}",
        hint=f"dsv4ctl deploy {one.way_out}" if one.way_out.startswith("--") else one.way_out or "dsv4ctl memory",
    )
