"""A plan as text and as values: how unit files change, the steps with their reasons, memory, outage. Pure."""

from dataclasses import asdict

from dsv4ctl import memory_screen, screen_steps
from dsv4ctl.planned import Plan
from dsv4ctl.steps import RemoveFile, Step, WriteFile


def text(plan: Plan, *, full: bool) -> str:
    """For people. `full`: the whole text of new and removed unit files, too."""
    told = [screen_steps.diffs(plan.steps, full=full).removesuffix("\n"), *map(memory_screen.line, plan.memory.plans)]
    told.append(screen_steps.steps(plan.steps) if plan.steps else "nothing to do")
    if plan.outage and not plan.outage.since:
        told.append(plan.outage.words)
    return "\n".join(filter(None, told))


def as_json(plan: Plan) -> dict[str, object]:
    """The same as values."""
    return {
        "release": plan.generation.number,
        "digest": plan.release.digest,
        "mode": plan.release.mode,
        "steps": [_step(step) for step in plan.steps],
        "outage": {**asdict(plan.outage), "words": plan.outage.words} if plan.outage else None,
        "memory": [memory_screen.values(one) for one in plan.memory.plans],
        "refusals": [str(refusal) for refusal in plan.against()],
        "warnings": list(plan.warnings),
    }


def _step(step: Step) -> dict[str, object]:
    diff = {"diff": screen_steps.diffs((step,), full=True)} if isinstance(step, WriteFile | RemoveFile) else {}
    return {"do": type(step).__name__, "what": screen_steps.step_line(step), "reason": step.reason, **diff}
