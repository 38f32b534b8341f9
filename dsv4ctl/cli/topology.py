"""`dsv4ctl topology`."""

from pathlib import Path

import click

from dsv4ctl.cli.options import Asked, root_option
from dsv4ctl.cli.reply import Reply, json_option


@click.command("topology", short_help="Show NUMA nodes and GPUs, and where a mode's roles would be placed.")
@root_option
@click.option(
    "--config", "file", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Config to read."
)
@click.option("--mode", metavar="NAME", help="Place the roles of this mode instead of the config's.")
@click.option("--gpus", metavar="LIST", help='On which GPUs: "4-7", "0,2,4,6".')
@click.option(
    "--sysfs",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    metavar="DIR",
    help="Look at this copy of another host's /sys.",
)
@json_option("Print the same values as JSON.")
def command(root: Path, file: Path | None, reply: Reply, sysfs: Path | None, **flags: str | None) -> int:
    """Show NUMA nodes and their CPUs, GPUs and the nodes they are near to, and where a mode's roles would be placed.

    A role whose GPUs are all near to one node is bound to it: its threads to the node's CPUs, its memory to the node's.
    Every other role is bound to none, and the reason stands there.
    """
    from dsv4ctl import screen_topology, survey, topology

    asked = Asked(root, file, {key: value for key, value in flags.items() if value is not None})
    found = survey.look(asked.spec(), sysfs or topology.SYSFS)
    reply.add(screen_topology.as_json(found))
    if not reply.wanted:
        click.echo(screen_topology.text(found))
    for warning in screen_topology.warnings(found):
        click.echo(f"warning: {warning}", err=True)
    return 0
