"""`dsv4ctl pause`."""

from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

import click

from dsv4ctl.cli.options import root_option, wait_option
from dsv4ctl.cli.reply import Reply, json_option

LONGEST_S = 7 * 86400


def _seconds(_context: click.Context, _option: click.Parameter, text: str) -> int:
    from dsv4ctl import quantity

    try:
        found = quantity.seconds(text)
    except ValueError as error:
        raise click.BadParameter(f"'{text}' is {error}") from None
    if not 1 <= found <= LONGEST_S:
        raise click.BadParameter(f"'{text}' is not between 1 s and {quantity.duration_text(LONGEST_S)}")
    return found


@click.command("pause", short_help="For a time restart nothing and end nothing for its health.")
@root_option
@click.option("--reason", required=True, metavar="TEXT", help="Why; whoever looks at the host is shown it.")
@click.option("--for", "for_s", required=True, callback=_seconds, metavar="TIME", help="How long: 90s, 30m, 2h, 1d.")
@click.option("--replace", is_flag=True, help="Take the place of a pause that lasts, which else refuses it.")
@wait_option
@json_option("Print the pause as JSON.")
def command(root: Path, for_s: int, replace: bool, reply: Reply, **claimed: object) -> int:
    """For a time restart nothing and end nothing for its health.

    What runs goes on; what dies is reported and stays down. The pause outlives a reboot and ends by itself; then what
    died is started again. A start waits for its end, a deploy is refused without --resume, a teardown works as ever.
    """
    from dsv4ctl import brake, pausing
    from dsv4ctl.cli import live
    from dsv4ctl.host import Host
    from dsv4ctl.store import Claim

    claim = Claim(what="pause", **cast("dict[str, Any]", claimed))
    with live.teller(reply) as tell:
        found = pausing.pause(Host.real(root), tell, for_s, claim, replace=replace)
    reply.add(asdict(found))
    if not reply.wanted:
        click.echo(f"{brake.pause_words(found, found.since)}; `dsv4ctl resume` ends it before")
    return 0
