"""`dsv4ctl config show` and `dsv4ctl config example`."""

from typing import TYPE_CHECKING

import click

from dsv4ctl.cli.options import Asked, spec_options
from dsv4ctl.cli.reply import Reply, json_option

if TYPE_CHECKING:
    from dsv4ctl.config import Row


@click.group("config", short_help="Show the effective config, or an example.")
def command() -> None:
    """Show the effective config with the source of every value, or an example to start from."""


@command.command("show", short_help="Show every value in force and where it came from.")
@spec_options
@json_option("Print the same values as JSON.")
def show(asked: Asked, reply: Reply) -> int:
    """Show every value in force and where it came from: default, file and line, or option."""
    from dsv4ctl import config

    effective = asked.effective()
    rows = config.rows(effective)
    for warning in config.warnings(effective.spec):
        click.echo(f"warning: {warning}", err=True)
    reply.add({row.key: {"value": row.value, "source": row.source} for row in rows})
    if not reply.wanted:
        click.echo(table(rows))
    return 0


def table(rows: "tuple[Row, ...]") -> str:
    """Rows as three aligned columns; a value that is too long for its column pushes its source to the right."""
    key_width = max(len(row.key) for row in rows)
    value_width = max(len(row.text) for row in rows if len(row.text) <= 40)
    return "\n".join(f"{row.key:{key_width}}  {row.text:{value_width}}  {row.source}" for row in rows)


@command.command("example", short_help="Print a config with every key explained and its default.")
def example() -> int:
    """Print a config with every key explained and its default; all of it is commented out."""
    from dsv4ctl import resources

    click.echo(resources.template("config.example.toml"), nl=False)
    return 0
