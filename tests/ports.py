"""Ports for tests: below the ephemeral range, and each test process that runs at the same time has its own."""

import os

# Eight at most, and the ephemeral range begins at 32768.
FIRST = 20_000
EACH = 1_500


def of_this_process() -> range:
    """The ports that are this process's alone among those of one test run."""
    first = FIRST + EACH * (int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % 8)
    return range(first, first + EACH)
