"""`dsv4ctl probe`."""

from dataclasses import asdict
from functools import partial
from pathlib import Path

import click

from dsv4ctl.cli.options import roles_option, root_option
from dsv4ctl.cli.reply import Reply, json_option
from dsv4ctl.cli.seconds import Seconds
from dsv4ctl.problems import Status


@click.command("probe", short_help="Prove what is deployed now, with one new generation through all of it.")
@root_option
@roles_option("Only this role, by its own sign and without a generation; may be given again.")
@click.option(
    "--limit", "limit_s", type=Seconds(1), metavar="SECONDS",
    help="How long the answer may take, and how long another probe is waited for.",
)  # fmt: skip
@json_option("Print the outcome as JSON.")
def command(root: Path, roles: tuple[str, ...], limit_s: float | None, reply: Reply) -> int:
    """Prove what is deployed now: each instance by its own sign, then one new generation through all of it.

    The verdict is ok, or who is at fault: router, prefill, hand-off (between prefill and decode), decode, garbage (the
    answer is wrong), or an instance by its name. There is one probe at a time: another one, be it a supervisor's, is
    waited for. Exit status 0: ok; 6: any other verdict; 8: another probe was at work all the time. The answer may take
    as long as limits.proof says, or --limit.
    """
    from dsv4ctl import installed, probing, screen
    from dsv4ctl.host import Host

    host = Host.real(root)
    chosen = installed.chosen(host, roles)
    limit_s = limit_s or float(max(one.limits.proof_s for one in chosen))
    says = partial(click.echo, err=True)
    found = probing.signs(host, chosen) if roles else probing.run(host, chosen, says, limit_s=limit_s)
    reply.add(asdict(found))
    if not reply.wanted:
        click.echo(screen.probed(found))
    if found.advice:
        click.echo(f"  try: {found.advice}", err=True)
    return Status.OK if found.verdict == "ok" else Status.NOT_READY
