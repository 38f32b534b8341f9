"""Finds the real sglang-router that a set-up has prepared; a stand-in for it there is none."""

import os
import sys
from pathlib import Path

STAMP = ".ready"
MISSING = "no sglang-router here; `.ci/prepare router` makes one in a checkout, and $DSV4CTL_ROUTER names another"


def find() -> Path | None:
    """The folder of an environment with sglang-router: $DSV4CTL_ROUTER, else build/router of the checkout; or None."""
    if named := os.environ.get("DSV4CTL_ROUTER"):
        return Path(named)
    # An editable installation runs in the checkout, any other in .venv beside what the checkout has built.
    places = (Path(__file__).parents[2], Path(sys.prefix).parent)
    built = (place / "build/router" for place in places)
    return next((folder for folder in built if (folder / STAMP).exists()), None)


def python(folder: Path) -> Path:
    """The interpreter that `-m sglang_router.launch_router` goes to."""
    return folder / "bin/python"


def config(folder: Path) -> str:
    """The lines of a config that name it."""
    return f'[router]\npython = "{python(folder)}"\n'
