"""The type of an option that is a time."""

from typing import Any

import click
from typing_extensions import override

# A year, in which everything that a command waits for has happened.
MOST_S = 366 * 86400.0
# What an option without its value stands for, where it waits for ever.
FOREVER = "inf"


class Seconds(click.FloatRange):
    """A time that passes: click takes nan and 1e400 for numbers of a range, and no clock reaches them."""

    name = "seconds"

    def __init__(self, least: float = 0, *, forever: bool = False) -> None:
        super().__init__(least)
        self.forever = forever

    @override
    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The number, checked; infinity only where waiting for ever is meant."""
        seconds = float(super().convert(value, param, ctx))
        if not seconds <= MOST_S and not (self.forever and value == FOREVER):
            self.fail(f"{value} is no number of seconds up to {MOST_S:.0f}, a year.", param, ctx)
        return seconds
