"""`dsv4ctl rollback`."""

from pathlib import Path
from typing import Any, cast

import click

from dsv4ctl.cli.options import full_option, root_option, terms_options


@click.command("rollback", short_help="Deploy an earlier release as it was kept.")
@click.argument("number", type=click.IntRange(1), required=False, metavar="[RELEASE]")
@root_option
@click.option("--dry-run", is_flag=True, help="Show the steps and the unit diffs and touch nothing.")
@full_option
@terms_options
@click.option("--json", "as_json", is_flag=True, help="Print the outcome as JSON.")
def command(number: int | None, root: Path, dry_run: bool, full: bool, as_json: bool, **terms: object) -> int:
    """Deploy RELEASE as it was kept, or the last good one before what is installed, and prove it as a deploy does.

    It is planned anew against the host as it is now, and gets a number of its own. `dsv4ctl history` lists releases.
    """
    from dsv4ctl import lifecycle, planning
    from dsv4ctl.cli import deploy, live
    from dsv4ctl.cli.plan import show as show_plan
    from dsv4ctl.host import Host
    from dsv4ctl.planning import Terms

    host, on = Host.real(root), Terms(**cast("dict[str, Any]", terms))
    if dry_run:
        return show_plan(planning.again(host, lifecycle.chosen(host, number), on), full=full, as_json=as_json)
    with live.teller() as tell:
        made, proved = lifecycle.rollback(host, number, tell, on)
    return deploy.show(made, proved, as_json=as_json)
