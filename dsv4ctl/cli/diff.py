"""`dsv4ctl diff`."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dsv4ctl.cli.options import root_option
from dsv4ctl.problems import Problem

if TYPE_CHECKING:
    from dsv4ctl.generations import Kept
    from dsv4ctl.host import Host

COLOURS = {"+": "green", "-": "red", "@": "cyan"}


@click.command("diff", short_help="Show how two releases differ: config and units.")
@click.argument("before", type=click.IntRange(1), metavar="RELEASE")
@click.argument("after", type=click.IntRange(1), required=False, metavar="[RELEASE]")
@root_option
@click.option("--json", "as_json", is_flag=True, help="Print the differences as JSON.")
def command(before: int, after: int | None, root: Path, as_json: bool) -> int:
    """Show how the second RELEASE differs from the first: config, engine and driver, unit files. Secrets are hidden.

    Without a second one it is what is installed now.
    """
    from dsv4ctl import screen_history
    from dsv4ctl.host import Host

    host = Host.real(root)
    one = host.store.releases.read(before)
    other = host.store.releases.read(after) if after is not None else _here(host)
    text = screen_history.differences(one.generation, other.generation)
    if as_json:
        click.echo(json.dumps({"before": one.number, "after": other.number, "diff": text}))
        return 0
    for line in text.splitlines() or ("no difference",):
        click.secho(line, fg=COLOURS.get(line[:1]))
    return 0


def _here(host: "Host") -> "Kept":
    from dsv4ctl import installed

    found = installed.release(host)
    if found is None:
        raise Problem("cannot compare with what is installed: it is no release that is kept", hint="dsv4ctl history")
    return found
