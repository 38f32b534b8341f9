"""`dsv4ctl logs`."""

import json
from dataclasses import asdict
from pathlib import Path

import click

from dsv4ctl.cli.options import roles_option, root_option


@click.command("logs", short_help="Show what instances wrote.")
@click.argument("instances", nargs=-1, metavar="[INSTANCE]...")
@root_option
@roles_option("The same as INSTANCE; may be given again.")
@click.option("-f", "--follow", is_flag=True, help="Go on with new lines until Ctrl-C.")
@click.option("-n", "--lines", default=50, metavar="COUNT", show_default=True, help="How many lines of the past.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line.")
def command(root: Path, as_json: bool, lines: int, follow: bool, **named: tuple[str, ...]) -> int:
    """Show the log of every INSTANCE (prefill, decode, router, server, …), or of all of them in one."""
    from dsv4ctl import logbook
    from dsv4ctl.host import Host

    wanted = (*named["instances"], *named["roles"])
    for entry in logbook.entries(Host.real(root), wanted, lines=lines, follow=follow):
        shown = f"{entry.clock()} {entry.identifier}[{entry.pid}]: {entry.message}"
        click.echo(json.dumps(asdict(entry)) if as_json else shown)
    return 0
