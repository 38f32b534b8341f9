"""Searches side by side under one time limit, whatever file system hangs."""

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping

from dsv4ctl.clock import Clock
from dsv4ctl.found import CheckpointFound, EngineFound

Item = EngineFound | CheckpointFound
Search = Callable[[threading.Event], Iterator[Item]]


def within(limit_s: float, searches: Mapping[str, Search], clock: Clock) -> tuple[list[Item], list[str]]:
    """What the searches find in `limit_s` seconds, in their order, and the names of those that were not done.

    Each has a thread of its own, so that a mount that hangs keeps nobody else waiting, and not us at the end either.
    """
    stop = threading.Event()
    items: dict[str, list[Item]] = {name: [] for name in searches}
    threads = {
        name: threading.Thread(target=_collect, args=(search, stop, items[name]), daemon=True)
        for name, search in searches.items()
    }
    for thread in threads.values():
        thread.start()
    end = clock.now() + limit_s
    for thread in threads.values():
        thread.join(max(0, end - clock.now()))
    stop.set()
    late = [name for name, thread in threads.items() if thread.is_alive()]
    return [item for some in items.values() for item in tuple(some)], late


def _collect(search: Search, stop: threading.Event, into: list[Item]) -> None:
    # A folder that cannot be read holds nothing that an engine could use either.
    with contextlib.suppress(OSError):
        into.extend(search(stop))
