"""`dsv4ctl deploy`."""

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, cast

import click

from dsv4ctl.cli.options import Asked, spec_options, terms_options

if TYPE_CHECKING:
    from dsv4ctl.findings import Probing
    from dsv4ctl.planning import Plan


@click.command("deploy", short_help="Make this host serve what is asked for, and prove it.")
@spec_options
@click.option(
    "--dry-run", is_flag=True, help="Show the steps and the unit diffs and touch nothing; the same as `plan`."
)
@terms_options
@click.option("--json", "as_json", is_flag=True, help="Print the outcome as JSON.")
def command(asked: Asked, dry_run: bool, as_json: bool, **terms: object) -> int:
    """Make this host serve what is asked for, and prove it.

    Exits 0 only when the unit's own processes answer on the port, are ready, name the model and have generated.
    Deploying the same thing twice does nothing the second time.
    """
    from dsv4ctl import lifecycle, planning
    from dsv4ctl.cli import live
    from dsv4ctl.cli.plan import show as show_plan
    from dsv4ctl.planning import Terms

    host, spec, on = asked.host(), asked.spec(), Terms(**cast("dict[str, Any]", terms))
    if dry_run:
        return show_plan(planning.prepare(host, spec, on), as_json=as_json)
    with live.teller() as tell:
        made, proved = lifecycle.deploy(host, spec, tell, on)
    return show(made, proved, as_json=as_json)


def show(made: "Plan", proved: "Probing", *, as_json: bool) -> int:
    """Print what serves now."""
    from dsv4ctl import guarded, screen

    if as_json:
        said = {"changed": bool(made.steps), "release": made.generation.number, "digest": made.release.digest}
        click.echo(json.dumps({**said, **asdict(proved)}))
        return 0
    if not made.steps:
        click.echo("nothing to do")
    click.echo(screen.proved(proved))
    click.echo(guarded.serves(made.generation))
    return 0
