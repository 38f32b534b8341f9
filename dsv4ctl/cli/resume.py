"""`dsv4ctl resume`."""

from pathlib import Path

import click

from dsv4ctl.cli.options import reason_option, root_option, wait_option
from dsv4ctl.cli.reply import Reply, json_option


@click.command("resume", short_help="End a pause, let the brake go, and start what they kept down.")
@root_option
@reason_option
@wait_option
@json_option("Print the steps as JSON.")
def command(root: Path, reason: str, wait_s: float, reply: Reply) -> int:
    """End a pause, let the restart brake go, and start what they kept down, until it is proved.

    What somebody stopped stays down. The cause that parked a role is in `dsv4ctl status` and in its log; cure it first.
    """
    from dsv4ctl import pausing, screen_steps
    from dsv4ctl.cli import live
    from dsv4ctl.host import Host
    from dsv4ctl.store import Claim

    claim = Claim(what="resume", reason=reason, wait_s=wait_s)
    with live.teller(reply) as tell:
        steps = pausing.resume(Host.real(root), tell, claim)
    reply.add({"steps": [screen_steps.step_line(step) for step in steps]})
    if not steps and not reply.wanted:
        click.echo("nothing to resume: no pause lasts, and no start has failed")
    return 0
