"""`dsv4ctl rehearse`."""

import click


@click.command("rehearse", short_help="Try the whole job in a private systemd with stand-in GPUs.")
@click.option(
    "--mode",
    type=click.Choice(["single-tp4", "single-tp8"]),
    default="single-tp4",
    show_default=True,
    help="What to deploy.",
)
@click.option("--port", type=click.IntRange(1, 65535), default=30001, show_default=True, help="Where it shall serve.")
@click.option("--shell", "to_shell", is_flag=True, help="Boot the private machine and open a shell in it instead.")
def command(mode: str, port: int, to_shell: bool) -> int:
    """Deploy, prove, chat and tear down once, in a private systemd with eight stand-in GPUs and a stand-in engine.

    Needs root, but no GPU, no engine and no network. Nothing of this host is touched, and nothing is left when it ends.
    """
    from dsv4ctl.rehearsal import story

    if to_shell:
        return story.shell(click.echo)
    story.rehearse(click.echo, mode=mode, port=port)
    return 0
