"""`dsv4ctl status`."""

import json
import time
from dataclasses import asdict
from pathlib import Path

import click

from dsv4ctl.cli.options import roles_option, root_option
from dsv4ctl.problems import Status


@click.command("status", short_help="Show what runs here and how it is.")
@root_option
@roles_option("Only this role; may be given again.")
@click.option("--json", "as_json", is_flag=True, help="Print the same values as JSON.")
@click.option("--watch", is_flag=True, help="Show it again every two seconds until Ctrl-C.")
def command(root: Path, roles: tuple[str, ...], as_json: bool, watch: bool) -> int:
    """Show every instance: state and since when, pid, port, health, model, context, KV tokens, load, GPU memory.

    Exit status 0: every instance serves, or was stopped; 6: one is starting, has failed, does not answer, is missing,
    or is of no use because its peer is down, or the last deploy was cut short. --role shows only some; what is amiss
    with the whole host counts anyway.
    """
    from dsv4ctl import report, screen
    from dsv4ctl.host import Host

    host = Host.real(root)
    while True:
        found = report.status(host, roles)
        if watch and not as_json:
            click.clear()
        click.echo(json.dumps(asdict(found)) if as_json else screen.status(found, time.time()))
        if not watch:
            return Status.OK if found.well else Status.NOT_READY
        time.sleep(2)
