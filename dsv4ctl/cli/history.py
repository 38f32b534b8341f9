"""`dsv4ctl history`."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dsv4ctl.cli.options import root_option

if TYPE_CHECKING:
    from dsv4ctl.host import Host


@click.command("history", short_help="Show the releases that are kept and what came of them.")
@click.argument("number", type=click.IntRange(1), required=False, metavar="[RELEASE]")
@root_option
@click.option("--audit", is_flag=True, help="Show every command that changed something instead: one line each.")
@click.option("--json", "as_json", is_flag=True, help="Print the same values as JSON.")
def command(number: int | None, root: Path, audit: bool, as_json: bool) -> int:
    """Show the releases that are kept, the youngest first: when, who, verdict, why. `*` is what is installed.

    With RELEASE, all that is known of that one: what it stands on, proof, phases, and what was seen of a failure.
    """
    from dsv4ctl.host import Host

    host = Host.real(root)
    if audit:
        _audit(host, as_json=as_json)
    elif number is None:
        _list(host, as_json=as_json)
    else:
        _one(host, number, as_json=as_json)
    return 0


def _list(host: "Host", *, as_json: bool) -> None:
    from dsv4ctl import generations, installed, screen_history

    kept = host.store.releases.all()
    here = installed.release(host, kept)
    number = here.number if here else None
    if as_json:
        click.echo(json.dumps([screen_history.values(one, number) for one in kept]))
        return
    lost = sorted({*host.store.releases.numbers()} - {one.number for one in kept})
    if kept or not lost:
        click.echo(screen_history.listed(kept, number))
    for number in lost:
        click.echo(f"note: release {number} cannot be read", err=True)
    if kept and here is None:
        click.echo(f"note: {generations.unmarked(anything=bool(installed.instances(host)))}", err=True)


def _one(host: "Host", number: int, *, as_json: bool) -> None:
    from dsv4ctl import screen_history

    kept, evidence = host.store.releases.read(number), host.store.releases.evidence(number)
    if as_json:
        seen = asdict(evidence) if evidence else None
        click.echo(json.dumps({**screen_history.values(kept, None), "evidence": seen}))
        return
    click.echo(screen_history.whole(kept, evidence))


def _audit(host: "Host", *, as_json: bool) -> None:
    from dsv4ctl import screen_history

    for line in host.store.audit.lines():
        click.echo(json.dumps(line) if as_json else screen_history.audited(line))
