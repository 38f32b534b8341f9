"""`dsv4ctl deploy`."""

import json
from dataclasses import asdict

import click

from dsv4ctl.cli.options import Asked, spec_options


@click.command("deploy", short_help="Make this host serve what is asked for, and prove it.")
@spec_options
@click.option(
    "--dry-run", is_flag=True, help="Show the steps and the unit diffs and touch nothing; the same as `plan`."
)
@click.option("--evict", multiple=True, type=click.IntRange(2), metavar="PID", help="End this foreign holder; again.")
@click.option("--json", "as_json", is_flag=True, help="Print the outcome as JSON.")
def command(asked: Asked, dry_run: bool, evict: tuple[int, ...], as_json: bool) -> int:
    """Make this host serve what is asked for, and prove it.

    Exits 0 only when the unit's own processes answer on the port, are ready, name the model and have generated.
    Deploying the same thing twice does nothing the second time.
    """
    from dsv4ctl import lifecycle, screen
    from dsv4ctl.cli import live
    from dsv4ctl.cli.plan import show

    host, spec = asked.host(), asked.spec()
    if dry_run:
        return show(lifecycle.prepare(host, spec, evict=evict), as_json=as_json)
    with live.teller() as tell:
        made, proved = lifecycle.deploy(host, spec, tell, evict=evict)
    if as_json:
        click.echo(json.dumps({"changed": bool(made.steps), "digest": made.release.digest, **asdict(proved)}))
        return 0
    if not made.steps:
        click.echo("nothing to do")
    click.echo(screen.proved(proved))
    return 0
