"""The tree of commands, as the program has it."""

from collections.abc import Iterator
from importlib import import_module

import click

from dsv4ctl.cli import COMMANDS


def everyone() -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Every command with the words that it is typed as."""
    for name in COMMANDS:
        found = import_module(f"dsv4ctl.cli.{name}").command
        yield (name,), found
        yield from (((name, below), one) for below, one in getattr(found, "commands", {}).items())


HAVING_JSON = tuple(words for words, one in everyone() if any("--json" in option.opts for option in one.params))
