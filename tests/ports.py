"""Ports for tests: below the ephemeral range, and each test process that runs at the same time has its own."""

import os
import random
import socket

# Eight at most, and the ephemeral range begins at 32768.
FIRST = 20_000
EACH = 1_500
# Those up to here are for engines that run on in the background, the others are drawn.
BACKGROUND = 1_200


def of_this_process() -> range:
    """The ports that are this process's alone among those of one test run."""
    first = FIRST + EACH * (int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % 8)
    return range(first, first + EACH)


def unused() -> int:
    """One of them that nobody has, nor had a minute ago: what is left of a connection refuses a bind (TIME_WAIT)."""
    while not _is_unused(number := random.choice(of_this_process()[BACKGROUND:])):  # noqa: S311 -- no secret
        pass
    return number


def _is_unused(number: int) -> bool:
    try:
        for family, address in ((socket.AF_INET, ""), (socket.AF_INET6, "::")):
            with socket.socket(family) as trial:
                trial.bind((address, number))
    except OSError:
        return False
    return True
