"""Our stderr, which is the journal: the engine's bytes as they come, and lines of our own between them."""

import os
import select
import sys


class Journal:
    """A stream to write to. Nothing that is wrong with it ends us: a log that cannot be written is no crash."""

    def __init__(self, file: int | None = None) -> None:
        self._file = sys.stderr.fileno() if file is None else file
        self._within_a_line = False

    def forward(self, output: bytes) -> None:
        """Pass the engine's bytes on, all of them; a reader that is slow is waited for."""
        left = memoryview(output)
        while left:
            try:
                left = left[os.write(self._file, left) :]
            except BlockingIOError:
                select.select([], [self._file], [])
            except OSError:
                return
        if output:
            self._within_a_line = not output.endswith(b"\n")

    def note(self, text: str) -> None:
        """One line of our own. A progress bar of the engine's that stands there without a line end is ended first."""
        start = "\n" if self._within_a_line else ""
        self.forward(f"{start}dsv4ctl: {text}\n".encode(errors="replace"))
