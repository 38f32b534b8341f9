"""`dsv4ctl rehearse`."""

import click


@click.command("rehearse", short_help="Try the whole job in a private systemd with stand-in GPUs.")
@click.option(
    "--mode",
    type=click.Choice(["pd", "dual-tp4", "single-tp4", "single-tp8"]),
    default="pd",
    show_default=True,
    help="What to deploy.",
)
@click.option(
    "--port",
    type=click.IntRange(1, 65535),
    default=30001,
    metavar="PORT",
    show_default=True,
    help="Where it shall serve.",
)
@click.option("--shell", "to_shell", is_flag=True, help="Boot the private machine and open a shell in it instead.")
def command(mode: str, port: int, to_shell: bool) -> int:
    """Deploy, prove, chat, switch the mode and tear down once, in a private systemd with eight stand-in GPUs.

    The engines are stand-ins that really hand a request over; the router between them is the real one, where it is
    prepared. Needs root, but no GPU, no engine and no network. Nothing of this host is touched, and nothing is left
    when it ends.
    """
    from dsv4ctl.rehearsal import story

    if to_shell:
        return story.shell(click.echo)
    story.rehearse(click.echo, mode=mode, port=port)
    return 0
