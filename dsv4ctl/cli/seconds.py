"""The type of an option that is a time."""

from typing import Any

import click
from typing_extensions import override

# A year, in which everything that a command waits for has happened.
MOST_S = 366 * 86400.0
# What an option without its value stands for, where it waits for ever.
FOREVER = "inf"


class Seconds(click.types.FloatParamType):
    """A time that passes: float takes nan and 1e400 for numbers, and no clock reaches them."""

    name = "seconds"

    def __init__(self, least: float = 0, *, forever: bool = False) -> None:
        self.least = least
        self.forever = forever

    @override
    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The number, checked; infinity only where waiting for ever is meant."""
        if self.forever and value == FOREVER:
            return float(FOREVER)
        try:
            seconds = float(value)
        except ValueError:
            self.fail(f"'{value}' is no number of seconds, such as 90 or 2.5", param, ctx)
        if not self.least <= seconds <= MOST_S:
            self.fail(f"{value} is no number of seconds from {self.least:g} to {MOST_S:.0f}, a year", param, ctx)
        return seconds
