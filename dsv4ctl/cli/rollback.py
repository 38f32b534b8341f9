"""`dsv4ctl rollback`."""

from pathlib import Path
from typing import Any, cast

import click

from dsv4ctl.cli.options import full_option, require_dry_run, root_option, terms_options
from dsv4ctl.cli.reply import Reply, json_option


@click.command("rollback", short_help="Deploy an earlier release as it was kept.")
@click.argument("number", type=click.IntRange(1), required=False, metavar="[RELEASE]")
@root_option
@click.option("--dry-run", is_flag=True, help="Show the steps and the unit diffs and touch nothing.")
@full_option
@terms_options
@json_option("Print the outcome as JSON.")
def command(number: int | None, root: Path, dry_run: bool, full: bool, reply: Reply, **terms: object) -> int:
    """Deploy RELEASE as it was kept, or the last good one before what is installed, and prove it as a deploy does.

    It is planned anew against the host as it is now, and gets a number of its own. `dsv4ctl history` lists releases.
    """
    from dsv4ctl import lifecycle, planning
    from dsv4ctl.cli import deploy, live
    from dsv4ctl.cli.plan import show as show_plan
    from dsv4ctl.host import Host
    from dsv4ctl.planning import Terms

    require_dry_run("rollback", full=full, dry_run=dry_run)
    host, on = Host.real(root), Terms(**cast("dict[str, Any]", terms))
    if dry_run:
        return show_plan(planning.again(host, lifecycle.chosen(host, number), on), reply, full=full)
    with live.teller(reply) as tell:
        made, proved = lifecycle.rollback(host, number, tell, on)
    return deploy.show(made, proved, reply)
