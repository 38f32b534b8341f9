"""`dsv4ctl history`."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from dsv4ctl.cli.options import root_option
from dsv4ctl.cli.reply import Reply, json_option

if TYPE_CHECKING:
    from dsv4ctl.host import Host


@click.command("history", short_help="Show the releases that are kept and what came of them.")
@click.argument("number", type=click.IntRange(1), required=False, metavar="[RELEASE]")
@root_option
@click.option("--audit", is_flag=True, help="Show every command that changed something instead: one line each.")
@json_option("Print the same values as JSON.")
def command(number: int | None, root: Path, audit: bool, reply: Reply) -> int:
    """Show the releases that are kept, the youngest first: when, who, verdict, why. `*` is what is installed.

    With RELEASE, all that is known of that one: what it stands on, proof, phases, and what was seen of a failure.
    """
    from dsv4ctl.host import Host

    host = Host.real(root)
    if audit:
        _audit(host, reply)
    elif number is None:
        _list(host, reply)
    else:
        _one(host, number, reply)
    return 0


def _list(host: "Host", reply: Reply) -> None:
    from dsv4ctl import generations, installed, screen_history

    kept = host.store.releases.all()
    here = installed.release(host, kept)
    number = here.number if here else None
    lost = sorted({*host.store.releases.numbers()} - {one.number for one in kept})
    reply.add({"releases": [screen_history.values(one, number) for one in kept], "unreadable": lost})
    if reply.wanted:
        return
    if kept or not lost:
        click.echo(screen_history.listed(kept, number))
    for number in lost:
        click.echo(f"note: release {number} cannot be read", err=True)
    if kept and here is None:
        click.echo(f"note: {generations.unmarked(anything=bool(installed.instances(host)))}", err=True)


def _one(host: "Host", number: int, reply: Reply) -> None:
    from dsv4ctl import screen_history

    kept, evidence = host.store.releases.read(number), host.store.releases.evidence(number)
    reply.add({**screen_history.values(kept, None), "evidence": evidence})
    if not reply.wanted:
        click.echo(screen_history.whole(kept, evidence))


def _audit(host: "Host", reply: Reply) -> None:
    from dsv4ctl import screen_history

    lines = tuple(host.store.audit.lines())
    reply.add({"audit": lines})
    if not reply.wanted:
        for line in lines:
            click.echo(screen_history.audited(line))
