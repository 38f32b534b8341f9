"""`dsv4ctl plan`, and how a plan is shown."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from dsv4ctl.cli.options import Asked, evict_option, full_option, spec_options
from dsv4ctl.cli.reply import Reply, json_option
from dsv4ctl.problems import Status

if TYPE_CHECKING:
    from dsv4ctl.planned import Plan


@click.command("plan", short_help="Show what deploy would do; touch nothing.")
@spec_options
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write the plan down, for `deploy --plan FILE`.",
)
@evict_option
@full_option
@json_option("Print the plan as JSON.")
def command(asked: Asked, out: Path | None, evict: tuple[int, ...], full: bool, reply: Reply) -> int:
    """Show what deploy would do, step by step with reasons, and how the unit files change. Touches nothing.

    Exit status 0: nothing to do; 10: there are changes; anything else: deploy would be refused, for the reason shown.
    """
    from dsv4ctl import planning

    made = planning.prepare(asked.host(), asked.spec(), planning.Terms(evict=evict))
    if out is not None:
        _save(made, asked, out)
    return show(made, reply, full=full)


def show(plan: "Plan", reply: Reply, *, full: bool) -> int:
    """Print a plan; raises its refusals after that, so that they decide the exit status."""
    from dsv4ctl import planning, screen_plan

    reply.add(screen_plan.as_json(plan))
    if not reply.wanted:
        click.echo(screen_plan.text(plan, full=full))
    for warning in plan.warnings:
        click.echo(f"warning: {warning}", err=True)
    planning.refuse(plan.against())
    return Status.CHANGES if plan.steps else Status.OK


def _save(plan: "Plan", asked: Asked, out: Path) -> None:
    from dsv4ctl import record, screen_steps, store
    from dsv4ctl.savedplan import SavedPlan

    saved = SavedPlan(
        at=plan.generation.at,
        who=plan.generation.who,
        config=str(asked.file.resolve()) if asked.file else None,
        options=tuple((key, value) for key, value in asked.flags.items() if isinstance(value, str)),
        switches=tuple((key, value) for key, value in asked.flags.items() if isinstance(value, bool)),
        ground=plan.ground,
        steps=tuple(screen_steps.step_line(step) for step in plan.steps),
    )
    store.write_atomic(out, record.dump(saved), mode=0o600)
