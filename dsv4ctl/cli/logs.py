"""`dsv4ctl logs`."""

from pathlib import Path

import click

from dsv4ctl.cli.options import root_option


@click.command("logs", short_help="Show an instance's log.")
@click.argument("instance", default="")
@root_option
@click.option("-f", "--follow", is_flag=True, help="Go on with new lines until Ctrl-C.")
@click.option("-n", "--lines", default=50, show_default=True, help="How many lines of the past.")
def command(instance: str, root: Path, follow: bool, lines: int) -> int:
    """Show the log of INSTANCE (server, …), or of the only one there is."""
    from dsv4ctl import logbook
    from dsv4ctl.host import Host

    for line in logbook.lines(Host.real(root), instance, lines=lines, follow=follow):
        click.echo(line)
    return 0
