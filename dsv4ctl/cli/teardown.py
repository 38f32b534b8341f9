"""`dsv4ctl teardown`."""

import json
from dataclasses import asdict
from pathlib import Path

import click

from dsv4ctl.cli.options import root_option


@click.command("teardown", short_help="Stop everything of ours and prove that nothing is left.")
@root_option
@click.option("--verify", is_flag=True, help="Prove that units, processes, cgroups and ports are gone.")
@click.option("--purge", is_flag=True, help="Also disable and remove what deploy installed.")
@click.option("--dry-run", is_flag=True, help="Show what would be done and touch nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print the outcome as JSON.")
def command(root: Path, verify: bool, purge: bool, dry_run: bool, as_json: bool) -> int:
    """Stop our units in order, end what is left of their trees, and prove that nothing is left.

    Without --purge the unit files stay and stay enabled: a reboot starts them again.
    """
    from dsv4ctl import lifecycle, screen
    from dsv4ctl.cli import live
    from dsv4ctl.host import Host

    host = Host.real(root)
    if dry_run:
        todo = lifecycle.planned_teardown(host, purge=purge)
        click.echo(screen.steps(todo) if todo else "nothing to do")
        return 0
    with live.teller() as tell:
        done = lifecycle.teardown(host, tell, verify=verify, purge=purge)
    if as_json:
        click.echo(
            json.dumps(
                {"stopped": [screen.step_line(s) for s in done.steps], "checks": [asdict(c) for c in done.checks]}
            )
        )
        return 0
    click.echo(screen.checks(done.checks) if done.checks else "stopped" if done.steps else "nothing to do")
    return 0
