"""`dsv4ctl who`."""

from pathlib import Path

import click

from dsv4ctl.cli.options import roles_option, root_option
from dsv4ctl.cli.reply import Reply, json_option


@click.command("who", short_help="Show who holds a port or a GPU, and what teardown would do.")
@root_option
@click.argument("what", nargs=-1, metavar="[PORT|gpu:N]...")
@roles_option("The ports and GPUs of this role; may be given again.")
@json_option("Print what was found as JSON.")
def command(root: Path, what: tuple[str, ...], roles: tuple[str, ...], reply: Reply) -> int:
    """Show who holds ports and GPUs: who it is, since when, how much, and what a teardown would do about it.

    Without arguments: all GPUs, and the ports of what is installed.
    """
    from dsv4ctl import aiming, screen_who
    from dsv4ctl.host import Host

    ports = tuple(_number(word, word) for word in what if not word.startswith("gpu:"))
    gpus = tuple(_number(word.removeprefix("gpu:"), word) for word in what if word.startswith("gpu:"))
    found = aiming.who(Host.real(root), ports=ports, numbers=gpus, roles=roles)
    reply.add(screen_who.as_json(found))
    if not reply.wanted:
        click.echo(screen_who.text(found))
    return 0


def _number(text: str, typed: str) -> int:
    # Five digits hold every port; a longer text is not even made a number of.
    if not (text.isascii() and text.isdecimal()) or len(text) > 5 or int(text) > 65535:
        raise click.BadParameter(f"'{typed}' is neither a port such as 30001 nor a GPU such as gpu:0")
    return int(text)
