"""Whether a file or folder of somebody else's is there: where we may not look, nothing is, as far as we can tell."""

import os
from pathlib import Path

# Path.is_file and Path.is_dir raise where a folder above may not be looked into; these say no.


def is_file(path: Path) -> bool:
    """Whether there is a file that we may see."""
    return os.path.isfile(path)  # noqa: PTH113 -- Path.is_file raises


def is_folder(path: Path) -> bool:
    """Whether there is a folder that we may see."""
    return os.path.isdir(path)  # noqa: PTH112 -- Path.is_dir raises
