"""`dsv4ctl init`."""

import json
import sys
from dataclasses import asdict
from pathlib import Path

import click

from dsv4ctl.cli.options import root_option
from dsv4ctl.problems import Problem


@click.command("init", short_help="Write a config for this host from what is found on it.")
@root_option
@click.option("--yes", is_flag=True, help="Write it without asking.")
@click.option("--print", "--dry-run", "print_only", is_flag=True, help="Print the config and write nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print what was found and chosen as JSON and write nothing.")
def command(root: Path, yes: bool, print_only: bool, as_json: bool) -> int:
    """Look for engine environments, DeepSeek-V4 checkpoints and GPUs, and write a config with what was chosen and why.

    A config that is there already is never overwritten.
    """
    from dsv4ctl import discover, found, store

    path = store.Paths(root).config
    if not (print_only or as_json):
        _require_none(path)
    seen = discover.here()
    choice = found.choose(seen)
    text = found.config_text(choice)
    if as_json:
        click.echo(json.dumps({"found": asdict(seen), "choice": asdict(choice), "config": text}))
        return 0
    click.echo("\n".join(found.lines(seen, choice)), err=True)
    if print_only:
        click.echo(text, nl=False)
        return 0
    if not yes:
        _ask(path)
    _require_none(path)
    store.write_atomic(path, text, mode=0o644)
    click.echo(f"wrote {path}; look at it with `dsv4ctl config show`, then `dsv4ctl plan`", err=True)
    return 0


def _require_none(path: Path) -> None:
    if path.exists() or path.is_symlink():
        raise Problem(
            f"cannot write {path}: there is one already, and it is not overwritten",
            hint="dsv4ctl init --print   shows what would be written",
        )


def _ask(path: Path) -> None:
    if not sys.stdin.isatty():
        raise Problem(
            f"cannot ask whether to write {path}: standard input is no terminal", hint="dsv4ctl init --yes, or --print"
        )
    click.confirm(f"write {path}?", default=True, abort=True, err=True)
