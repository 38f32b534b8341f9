"""`dsv4ctl teardown`."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from dsv4ctl.cli.options import evict_option, reason_option, roles_option, root_option, wait_option
from dsv4ctl.cli.reply import Reply, json_option
from dsv4ctl.cli.seconds import Seconds

if TYPE_CHECKING:
    from dsv4ctl.aiming import Clearing
    from dsv4ctl.clearing import Teardown


@click.command("teardown", short_help="Stop everything of ours and prove that nothing is left.")
@root_option
@click.option("--verify", is_flag=True, help="Prove that units, processes, ports and GPU memory are gone.")
@click.option("--mode", metavar="NAME", default="", help="Only if this mode is deployed.")
@roles_option("Only this role; may be given again.")
@click.option(
    "--port", "ports", multiple=True, type=click.IntRange(1, 65535), metavar="PORT",
    help="Only what uses this port; may be given again.",
)  # fmt: skip
@click.option("--gpus", metavar="LIST", default=None, help='Only what uses these GPUs: "0-3" or "0,2".')
@click.option("--strays", is_flag=True, help="Also every engine that nobody deployed, whatever it holds.")
@evict_option
@click.option(
    "--timeout", "limit_s", type=Seconds(), default=None, metavar="SECONDS",
    help="Time for the driver to let go.  [default: limits.driver of what is deployed, or 120]",
)  # fmt: skip
@click.option(
    "--grace", "term_s", type=Seconds(), default=25, metavar="SECONDS", show_default=True,
    help="Time for a stray to end by itself.",
)  # fmt: skip
@reason_option
@wait_option
@click.option("--purge", is_flag=True, help="Also disable and remove what deploy installed.")
@click.option("--dry-run", is_flag=True, help="Show what would be done and touch nothing.")
@json_option("Print the outcome as JSON.")
def command(root: Path, gpus: str | None, verify: bool, dry_run: bool, reply: Reply, **asked: object) -> int:
    """Stop our units in order, end strays on their ports and GPUs, and prove that nothing is left.

    Without --purge the unit files stay and stay enabled: a reboot starts them again. Processes of somebody else's are
    never ended unless --evict names them; `dsv4ctl who` shows them.
    """
    from dsv4ctl import aiming, clearing
    from dsv4ctl.aiming import Aim
    from dsv4ctl.cli import live
    from dsv4ctl.cli.options import numbers
    from dsv4ctl.host import Host
    from dsv4ctl.store import Claim

    listed = () if gpus is None else numbers(gpus)
    words = cast("dict[str, Any]", asked)
    claim = Claim(what="teardown", reason=words.pop("reason"), wait_s=words.pop("wait_s"))
    host, aim = Host.real(root), Aim(gpus=listed, **words)
    if dry_run:
        return _plan(aiming.prepare(host, aim), reply)
    with live.teller(reply) as tell:
        done = clearing.teardown(host, aim, tell, verify=verify, claim=claim)
    _show(done, reply)
    if done.problem is not None:
        raise done.problem
    return 0


def _plan(made: "Clearing", reply: Reply) -> int:
    from dsv4ctl import free, screen_steps

    refusals = [str(problem) for problem in free.refusals(made.found)]
    reply.add({"steps": [screen_steps.step_line(s) for s in made.steps], "stays": refusals})
    if reply.wanted:
        return 0
    click.echo(screen_steps.steps(made.steps) if made.steps else "nothing to do")
    for refusal in refusals:
        click.echo(f"stays: {refusal}", err=True)
    return 0


def _show(done: "Teardown", reply: Reply) -> None:
    from dsv4ctl import screen, screen_steps

    reply.add({"steps": [screen_steps.step_line(s) for s in done.steps], "checks": done.checks})
    if done.checks and not reply.wanted:
        click.echo(screen.checks(done.checks))
    elif not done.problem and not reply.wanted:
        click.echo("stopped" if done.steps else "nothing to do")
