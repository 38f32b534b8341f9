"""`dsv4ctl logs`."""

import json
from dataclasses import asdict
from pathlib import Path

import click

from dsv4ctl.cli.options import root_option


@click.command("logs", short_help="Show an instance's log.")
@click.argument("instance", default="")
@root_option
@click.option("-f", "--follow", is_flag=True, help="Go on with new lines until Ctrl-C.")
@click.option("-n", "--lines", default=50, show_default=True, help="How many lines of the past.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line.")
def command(instance: str, root: Path, follow: bool, lines: int, as_json: bool) -> int:
    """Show the log of INSTANCE (server, …), or of the only one there is."""
    from dsv4ctl import logbook
    from dsv4ctl.host import Host

    for entry in logbook.entries(Host.real(root), instance, lines=lines, follow=follow):
        shown = f"{entry.clock()} {entry.identifier}[{entry.pid}]: {entry.message}"
        click.echo(json.dumps(asdict(entry)) if as_json else shown)
    return 0
