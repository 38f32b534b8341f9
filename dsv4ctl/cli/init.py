"""`dsv4ctl init`."""

import sys
from pathlib import Path

import click

from dsv4ctl.cli.options import below, root_option
from dsv4ctl.cli.reply import Reply, json_option
from dsv4ctl.problems import Problem


@click.command("init", short_help="Write a config for this host from what is found on it.")
@root_option
@click.option("--yes", is_flag=True, help="Write it without asking.")
@click.option("--print", "--dry-run", "print_only", is_flag=True, help="Print the config and write nothing.")
@json_option("Print what was found and chosen as JSON and write nothing.")
def command(root: Path, yes: bool, print_only: bool, reply: Reply) -> int:
    """Look for engine environments, DeepSeek-V4 checkpoints and GPUs, and write a config with what was chosen and why.

    A config that is there already is never overwritten.
    """
    from dsv4ctl import discover, found, store

    path = store.Paths(root).config
    if not (print_only or reply.wanted):
        _require_none(path, root)
    seen = discover.here()
    choice = found.choose(seen)
    text = found.config_text(choice)
    reply.add({"found": seen, "choice": choice, "config": text})
    if reply.wanted:
        return 0
    click.echo("\n".join(found.lines(seen, choice)), err=True)
    if print_only:
        click.echo(text, nl=False)
        return 0
    if not yes:
        _ask(path, root)
    _require_none(path, root)
    store.write_atomic(path, text, mode=0o644)
    at = below(root)
    click.echo(f"wrote {path}; look at it with `dsv4ctl config show{at}`, then `dsv4ctl plan{at}`", err=True)
    return 0


def _require_none(path: Path, root: Path) -> None:
    if path.exists() or path.is_symlink():
        raise Problem(
            f"cannot write {path}: there is one already, and it is not overwritten",
            hint=f"dsv4ctl init{below(root)} --print   shows what would be written",
        )


def _ask(path: Path, root: Path) -> None:
    if not sys.stdin.isatty():
        hint = f"dsv4ctl init{below(root)} --yes, or --print"
        raise Problem(f"cannot ask whether to write {path}: standard input is no terminal", hint=hint)
    click.confirm(f"write {path}?", default=True, abort=True, err=True)
