"""`dsv4ctl render`."""

from pathlib import Path

import click

from dsv4ctl.cli.options import Asked, spec_options
from dsv4ctl.cli.reply import Reply, json_option


@click.command("render", short_help="Print or write the unit files of a config.")
@spec_options
@click.option(
    "--out",
    metavar="DIR",
    type=click.Path(path_type=Path, file_okay=False),
    help="Write the files below this folder instead of printing.",
)
@json_option("Print path -> text as JSON.")
def command(asked: Asked, out: Path | None, reply: Reply) -> int:
    """Print the files that deploy would install, or write them below a folder; nothing is installed or started.

    What is printed has its secrets hidden; what is written is whole.
    """
    from dsv4ctl import lifecycle, secret, store

    made = lifecycle.render(asked.host(), asked.spec())
    reply.add({file.path: secret.unit_shown(file.text) for file in made.files})
    for file in made.files:
        if out is None and not reply.wanted:
            click.echo(f"# {file.path}\n{secret.unit_shown(file.text)}")
        elif out is not None:
            store.write_atomic(out / file.path.lstrip("/"), file.text, mode=0o644)
            click.echo(str(out / file.path.lstrip("/")))
    return 0
