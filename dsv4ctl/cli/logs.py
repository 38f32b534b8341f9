"""`dsv4ctl logs`."""

from dataclasses import asdict
from pathlib import Path

import click

from dsv4ctl.cli.options import roles_option, root_option
from dsv4ctl.cli.reply import Reply, json_option


@click.command("logs", short_help="Show what instances wrote.")
@click.argument("instances", nargs=-1, metavar="[INSTANCE]...")
@root_option
@roles_option("The same as INSTANCE; may be given again.")
@click.option("-f", "--follow", is_flag=True, help="Go on with new lines until Ctrl-C.")
@click.option("-n", "--lines", default=50, metavar="COUNT", show_default=True, help="How many lines of the past.")
@json_option("Print one JSON object a line.")
def command(root: Path, reply: Reply, lines: int, follow: bool, **named: tuple[str, ...]) -> int:
    """Show the log of every INSTANCE (prefill, decode, router, server, …), or of all of them in one."""
    from dsv4ctl import logbook
    from dsv4ctl.host import Host

    wanted = (*named["instances"], *named["roles"])
    for entry in logbook.entries(Host.real(root), wanted, lines=lines, follow=follow):
        if reply.wanted:
            reply.line(asdict(entry))
        else:
            click.echo(f"{entry.clock()} {entry.identifier}[{entry.pid}]: {entry.message}")
    return 0
