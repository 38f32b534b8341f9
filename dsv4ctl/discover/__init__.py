"""Looks for engine environments and DeepSeek-V4 checkpoints on this host, within limits of depth and time.

Nothing is changed, imported or run: an environment is known by its package metadata, a checkpoint by its config.json.
"""

import os
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TypeVar

from dsv4ctl import gpus
from dsv4ctl.clock import RealClock
from dsv4ctl.discover import checkpoints, engines
from dsv4ctl.discover.servers import Serving, running
from dsv4ctl.discover.within import Item, Search, within
from dsv4ctl.found import CheckpointFound, EngineFound, Found, Place, choose, place_lines
from dsv4ctl.model import GpuView

LIMIT_S = 5.0

At = TypeVar("At", bound=Place)


def look(
    environment: Mapping[str, str], gpu_view: GpuView, *, root: Path = Path("/"), serving: tuple[Serving, ...] = ()
) -> Found:
    """Search a host below `root`; `environment` is the caller's own, for PATH, VIRTUAL_ENV and HF_HOME.

    Takes at most LIMIT_S seconds, whatever file system hangs; what was cut short is told in the notes.
    """
    searches = _searches(environment, root, serving)
    items, late = within(LIMIT_S, searches, RealClock())
    notes = (f"looking into {', '.join(late)} takes longer than {LIMIT_S:g} s; there may be more",) if late else ()
    return Found(
        engines=_merged(item for item in items if isinstance(item, EngineFound)),
        checkpoints=_merged(item for item in items if isinstance(item, CheckpointFound)),
        gpus=gpu_view,
        notes=notes,
    )


def here() -> Found:
    """Search this machine, with its running servers and its GPUs."""
    return look(os.environ, gpus.read(), serving=running())


def summary() -> str:
    """This machine's engines and checkpoints, in lines for a message; which `dsv4ctl init` would choose, and why."""
    found = look(os.environ, GpuView(), serving=running())
    return "\n".join(place_lines(found, choose(found)))


def _merged(items: Iterable[At]) -> tuple[At, ...]:
    """Each place once, by the name that the strongest sign led to, with all the signs."""
    merged: dict[object, At] = {}
    for item in items:
        merged[item.itself] = merged[item.itself].and_also(item) if item.itself in merged else item
    return tuple(merged.values())


def _searches(environment: Mapping[str, str], root: Path, serving: tuple[Serving, ...]) -> dict[str, Search]:
    """Name -> search, the strongest signs first."""
    searches: dict[str, Search] = {
        "running servers": lambda _: _of_serving(serving),
        "the active environment": lambda _: engines.engines(engines.active(environment), "the active environment"),
        "PATH": lambda _: engines.engines(engines.on_path(environment), "on PATH"),
        "common folders": lambda _: engines.engines(engines.below(root, engines.COMMON_PLACES), "in a common folder"),
        "the Hugging Face cache": lambda stop: checkpoints.in_hubs(checkpoints.hubs(environment, root), stop),
    }
    for folder in checkpoints.MODEL_FOLDERS:
        searches[f"/{folder}"] = partial(checkpoints.walk, root / folder, f"below /{folder}")
    return searches


def _of_serving(serving: Iterable[Serving]) -> Iterator[Item]:
    for one in serving:
        sign = f"the server with pid {one.pid} uses it"
        if one.python.startswith("/"):
            yield from engines.engines([Path(one.python)], sign, serving=True)
        if one.model.startswith("/") and (found := checkpoints.checkpoint(Path(one.model), sign, serving=True)):
            yield found
