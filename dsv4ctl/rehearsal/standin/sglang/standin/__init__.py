"""What the stand-in engine is made of; nothing here exists under this name in the real SGLang."""

import mmap
from pathlib import Path

with Path(__file__).open("rb") as _file:
    # Every process of a real engine but multiprocessing's tracker has libraries of its environment mapped from a second
    # after its start on, which no renaming wipes.
    LIBRARY = mmap.mmap(_file.fileno(), 0, access=mmap.ACCESS_READ)
