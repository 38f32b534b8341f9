"""`dsv4ctl status`."""

import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dsv4ctl.cli.options import roles_option, root_option
from dsv4ctl.cli.reply import Reply, json_option

if TYPE_CHECKING:
    from dsv4ctl.findings import Status


@click.command("status", short_help="Show what runs here and how it is.")
@root_option
@roles_option("Only this role; may be given again.")
@json_option("Print the same values as JSON.")
@click.option("--watch", is_flag=True, help="Show it again every two seconds until Ctrl-C.")
def command(root: Path, roles: tuple[str, ...], reply: Reply, watch: bool) -> int:
    """Show every instance: state and since when, pid, port, health, model, context, KV tokens, load, GPU memory.

    Exit status 0: every instance serves, or was stopped; 6: one is starting, has failed, does not answer, is missing,
    or is of no use because its peer is down, or the last deploy was cut short; 8: not everything serves, and a command
    that changes the host is at work. --role shows only some; what is amiss with the whole host counts anyway.
    """
    from dsv4ctl import report
    from dsv4ctl.host import Host

    host = Host.real(root)
    while True:
        found = report.status(host, roles)
        _show(found, reply, again=watch)
        if not watch:
            return found.exit_status
        time.sleep(2)


def _show(found: "Status", reply: Reply, *, again: bool) -> None:
    from dsv4ctl import screen

    if reply.wanted:
        (reply.line if again else reply.add)(asdict(found))
        return
    if again:
        click.clear()
    click.echo(screen.status(found, time.time()))
