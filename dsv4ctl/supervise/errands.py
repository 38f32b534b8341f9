"""Questions that may take long, asked in threads, so that the loop hears signals and the engine meanwhile."""

import os
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Brought:
    """An errand has come back with `found`."""

    name: str
    found: object


class Errands:
    """Threads that each run one function and bring its result back; never two of one name at a time.

    A thread that hangs in the kernel is left behind, and as its name stays taken, it is at most one a name. `ready`
    is a file that can be read when a result is there.
    """

    def __init__(self) -> None:
        self.ready = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._out: set[str] = set()
        self._results: queue.SimpleQueue[tuple[str, object, BaseException | None]] = queue.SimpleQueue()

    def send(self, name: str, errand: Callable[[], object]) -> bool:
        """Start an errand unless one of that name is still out; whether it was started."""
        if name in self._out:
            return False
        self._out.add(name)
        threading.Thread(target=self._run, args=(name, errand), name=name, daemon=True).start()
        return True

    def is_out(self, name: str) -> bool:
        """Whether an errand of that name has not come back yet."""
        return name in self._out

    def collect(self) -> list[Brought]:
        """What has come back. An errand that raised raises here: what it did not expect, nobody did."""
        os.eventfd_read(self.ready)
        found = []
        while not self._results.empty():
            name, result, error = self._results.get_nowait()
            self._out.discard(name)
            if error is not None:
                raise error
            found.append(Brought(name, result))
        return found

    def _run(self, name: str, errand: Callable[[], object]) -> None:
        result: object = None
        failed: BaseException | None = None
        try:
            result = errand()
        except BaseException as error:  # a thread's error would only be printed; it is raised in the loop
            failed = error
        self._results.put((name, result, failed))
        os.eventfd_write(self.ready, 1)
