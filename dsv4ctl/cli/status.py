"""`dsv4ctl status`."""

import json
import time
from dataclasses import asdict
from pathlib import Path

import click

from dsv4ctl.cli.options import root_option


@click.command("status", short_help="Show what runs here and how it is.")
@root_option
@click.option("--json", "as_json", is_flag=True, help="Print the same values as JSON.")
@click.option("--watch", is_flag=True, help="Show it again every two seconds until Ctrl-C.")
def command(root: Path, as_json: bool, watch: bool) -> int:
    """Show every instance: state and since when, pid, port, health, model, context, KV tokens, load, GPU memory."""
    from dsv4ctl import report, screen
    from dsv4ctl.host import Host

    host = Host.real(root)
    while True:
        found = report.status(host)
        if watch and not as_json:
            click.clear()
        click.echo(json.dumps(asdict(found)) if as_json else screen.status(found, time.time()))
        if not watch:
            return 0
        time.sleep(2)
