"""`dsv4ctl resume`."""

import json
from pathlib import Path

import click

from dsv4ctl.cli.options import reason_option, root_option, wait_option


@click.command("resume", short_help="End a pause, let the brake go, and start what they kept down.")
@root_option
@reason_option
@wait_option
@click.option("--json", "as_json", is_flag=True, help="Print the steps as JSON.")
def command(root: Path, reason: str, wait_s: float, as_json: bool) -> int:
    """End a pause, let the restart brake go, and start what they kept down, until it is proved.

    What somebody stopped stays down. The cause that parked a role is in `dsv4ctl status` and in its log; cure it first.
    """
    from dsv4ctl import pausing, screen
    from dsv4ctl.cli import live
    from dsv4ctl.host import Host
    from dsv4ctl.store import Claim

    claim = Claim(what="resume", reason=reason, wait_s=wait_s)
    with live.teller() as tell:
        steps = pausing.resume(Host.real(root), tell, claim)
    if as_json:
        click.echo(json.dumps({"steps": [screen.step_line(step) for step in steps]}))
    elif not steps:
        click.echo("nothing to resume: no pause lasts, and no start has failed")
    return 0
