"""`dsv4ctl plan`, and how a plan is shown."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dsv4ctl.cli.options import Asked, full_option, spec_options
from dsv4ctl.problems import Status

if TYPE_CHECKING:
    from dsv4ctl.planning import Plan


@click.command("plan", short_help="Show what deploy would do; touch nothing.")
@spec_options
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write the plan down, for `deploy --plan FILE`.",
)
@full_option
@click.option("--json", "as_json", is_flag=True, help="Print the plan as JSON.")
def command(asked: Asked, out: Path | None, full: bool, as_json: bool) -> int:
    """Show what deploy would do, step by step with reasons, and how the unit files change. Touches nothing.

    Exit status 0: nothing to do; 10: there are changes; anything else: deploy would be refused, for the reason shown.
    """
    from dsv4ctl import planning

    made = planning.prepare(asked.host(), asked.spec())
    if out is not None:
        _save(made, asked, out)
    return show(made, full=full, as_json=as_json)


def show(plan: "Plan", *, full: bool, as_json: bool) -> int:
    """Print a plan; raises its refusals after that, so that they decide the exit status."""
    from dsv4ctl import memory_screen, planning, screen

    if as_json:
        click.echo(json.dumps(_json(plan)))
    else:
        click.echo(screen.diffs(plan.steps, full=full), nl=False)
        for foreseen in plan.memory.plans:
            click.echo(memory_screen.line(foreseen))
        click.echo(screen.steps(plan.steps) if plan.steps else "nothing to do")
        if plan.outage and not plan.outage.since:
            click.echo(plan.outage.words)
    for warning in plan.warnings:
        click.echo(f"warning: {warning}", err=True)
    planning.refuse(plan.against())
    return Status.CHANGES if plan.steps else Status.OK


def _save(plan: "Plan", asked: Asked, out: Path) -> None:
    from dsv4ctl import record, screen, store
    from dsv4ctl.savedplan import SavedPlan

    saved = SavedPlan(
        at=plan.generation.at,
        who=plan.generation.who,
        config=str(asked.file.resolve()) if asked.file else None,
        options=tuple((key, value) for key, value in asked.flags.items() if isinstance(value, str)),
        switches=tuple((key, value) for key, value in asked.flags.items() if isinstance(value, bool)),
        ground=plan.ground,
        steps=tuple(screen.step_line(step) for step in plan.steps),
    )
    store.write_atomic(out, record.dump(saved), mode=0o600)


def _json(plan: "Plan") -> dict[str, object]:
    from dsv4ctl import memory_screen, screen
    from dsv4ctl.steps import RemoveFile, WriteFile

    return {
        "release": plan.generation.number,
        "digest": plan.release.digest,
        "mode": plan.release.mode,
        "steps": [
            {
                "do": type(step).__name__,
                "what": screen.step_line(step),
                "reason": step.reason,
                **({"diff": screen.diffs((step,), full=True)} if isinstance(step, WriteFile | RemoveFile) else {}),
            }
            for step in plan.steps
        ],
        "outage": {**asdict(plan.outage), "words": plan.outage.words} if plan.outage else None,
        "memory": [memory_screen.values(one) for one in plan.memory.plans],
        "refusals": [str(r) for r in plan.against()],
        "warnings": list(plan.warnings),
    }
