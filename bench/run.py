"""`make bench`: print every figure that exists so far, with its goal."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench import beside, planning, ports, rehearsed, switching

Rows = Callable[[], Iterator[tuple[str, str, str]]]
ROOMS: tuple[Rows, ...] = (planning.rows, ports.rows, rehearsed.rows, switching.rows, beside.rows)

for room in ROOMS:
    for figure, goal, measured in room():
        print(f"{figure:48} goal: {goal:36} measured: {measured}", flush=True)
