"""`dsv4ctl diff`."""

from pathlib import Path

import click

from dsv4ctl.cli.options import full_option, root_option
from dsv4ctl.cli.reply import Reply, json_option

COLOURS = {"+": "green", "-": "red", "@": "cyan"}


@click.command("diff", short_help="Show how two releases differ: config and units.")
@click.argument("before", type=click.IntRange(1), required=False, metavar="[RELEASE]")
@click.argument("after", type=click.IntRange(1), required=False, metavar="[RELEASE]")
@root_option
@full_option
@json_option("Print the differences as JSON.")
def command(before: int | None, after: int | None, root: Path, full: bool, reply: Reply) -> int:
    """Show how the second RELEASE differs from the first: config, engine and driver, unit files. Secrets are hidden.

    Without a second one it is the newest; without any, the last two are compared.
    """
    from dsv4ctl import generations, screen_history
    from dsv4ctl.host import Host

    host = Host.real(root)
    first, second = generations.compared(host.store.releases.numbers(), before, after)
    one, other = host.store.releases.read(first), host.store.releases.read(second)
    text = screen_history.differences(one.generation, other.generation, full=full or reply.wanted)
    reply.add({"before": one.number, "after": other.number, "diff": text})
    if reply.wanted:
        return 0
    for line in text.splitlines() or ("no difference",):
        click.secho(line, fg=COLOURS.get(line[:1]))
    return 0
