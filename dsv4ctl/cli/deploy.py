"""`dsv4ctl deploy`."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from dsv4ctl.cli.options import Asked, full_option, require_dry_run, spec_options, terms_options
from dsv4ctl.cli.reply import Reply, json_option
from dsv4ctl.problems import Problem, WrongOption

if TYPE_CHECKING:
    from dsv4ctl.findings import Probing
    from dsv4ctl.planned import Plan
    from dsv4ctl.savedplan import SavedPlan


@click.command("deploy", short_help="Make this host serve what is asked for, and prove it.")
@spec_options
@click.option(
    "--dry-run", is_flag=True, help="Show the steps and the unit diffs and touch nothing; the same as `plan`."
)
@click.option(
    "--plan",
    "plan_file",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Deploy what `plan --out FILE` wrote down, or refuse where what it stands on has moved.",
)
@full_option
@terms_options
@json_option("Print the outcome as JSON.")
def command(asked: Asked, dry_run: bool, plan_file: Path | None, full: bool, reply: Reply, **terms: object) -> int:
    """Make this host serve what is asked for, and prove it.

    Exits 0 only when the unit's own processes answer on the port, are ready, name the model and have generated.
    Deploying the same thing twice does nothing the second time.
    """
    from dsv4ctl import lifecycle, planning
    from dsv4ctl.cli import live
    from dsv4ctl.cli.plan import show as show_plan
    from dsv4ctl.planning import Terms

    require_dry_run("deploy", full=full, dry_run=dry_run)
    saved = _saved(asked, plan_file) if plan_file else None
    asked = asked.of_plan(saved) if saved else asked
    host, spec, on = asked.host(), asked.spec(), Terms(**cast("dict[str, Any]", terms), saved=saved)
    if dry_run:
        return show_plan(planning.prepare(host, spec, on), reply, full=full)
    with live.teller(reply) as tell:
        made, proved = lifecycle.deploy(host, spec, tell, on)
    return show(made, proved, reply)


def _saved(asked: Asked, file: Path) -> "SavedPlan":
    """The plan in a file. Raises click's usage error when options are given that it brings itself, WrongOption for a
    file that holds none."""
    from dsv4ctl import savedplan, store

    if asked.file or asked.flags:
        raise click.UsageError("--plan brings its own config and options; give none besides it")
    try:
        text = store.read(file)
    except Problem as problem:
        raise WrongOption(str(problem), hint="dsv4ctl plan --out FILE   writes a plan") from problem
    return savedplan.parse(text, str(file))


def show(made: "Plan", proved: "Probing", reply: Reply) -> int:
    """Print what serves now."""
    from dsv4ctl import guarded, screen

    reply.add({"changed": bool(made.steps), **asdict(proved)})
    if reply.wanted:
        return 0
    if not made.steps:
        click.echo("nothing to do")
    click.echo(screen.proved(proved))
    click.echo(guarded.serves(made.generation))
    return 0
