"""Finds the real sglang-router that a set-up has prepared; a stand-in for it there is none."""

import os
from pathlib import Path

STAMP = ".ready"
MISSING = "no sglang-router here; `.ci/prepare router` makes one in a checkout, and $DSV4CTL_ROUTER names another"


def find() -> Path | None:
    """The folder of an environment with sglang-router: $DSV4CTL_ROUTER, else build/router of this checkout; or None."""
    named = os.environ.get("DSV4CTL_ROUTER")
    if named:
        return Path(named)
    built = Path(__file__).parents[2] / "build/router"
    return built if (built / STAMP).exists() else None


def python(folder: Path) -> Path:
    """The interpreter that `-m sglang_router.launch_router` goes to."""
    return folder / "bin/python"


def config(folder: Path) -> str:
    """The lines of a config that name it."""
    return f'[router]\npython = "{python(folder)}"\n'
