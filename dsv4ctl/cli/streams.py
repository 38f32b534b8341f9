"""Stdout and stderr of a command: who listens no more keeps nothing from being done, and changes no outcome."""

import errno
import io
import os
import select
import sys
from typing import TextIO

from typing_extensions import Buffer, override

from dsv4ctl.problems import Problem


class Output(io.FileIO):
    """One of the two. When it fails, what is said from then on goes nowhere.

    `raises`: a write that fails raises BrokenPipeError or Problem, for a command that does nothing but show. Else
    `lost` is the Problem, unless it is a reader who has seen enough.
    """

    def __init__(self, number: int, *, raises: bool) -> None:
        super().__init__(number, "w", closefd=False)
        self.lost: Problem | None = None
        self._raises = raises

    @override
    def write(self, b: Buffer, /) -> int:
        try:
            # None, which the types do not know: somebody who shares the terminal has made it non-blocking.
            while (written := super().write(b)) is None:
                select.select((), (self,), ())
        except OSError as error:
            self._fail(error)
            return memoryview(b).nbytes
        return written

    def _fail(self, error: OSError) -> None:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self.fileno())
        os.close(nowhere)
        lost = Problem(f"cannot write the outcome to stdout: {(error.strerror or str(error)).lower()}")
        if self._raises:
            raise error if error.errno == errno.EPIPE else lost
        if error.errno != errno.EPIPE:
            self.lost = lost


def install(*, changing: bool) -> Output:
    """Put them in their places; returns stdout's. `changing`: half done, the command leaves a host that does not serve.

    What was closed at the start is /dev/null: its number would go to the next file that is opened, and be written to.
    """
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    out = Output(1, raises=not changing)
    sys.stdout = _text(out, sys.stdout)
    sys.stderr = _text(Output(2, raises=False), sys.stderr)
    return out


def _text(output: Output, before: TextIO | None) -> TextIO:
    """A text stream as Python has made it, if it has: it makes none of a number that is closed."""
    encoding, errors = (before.encoding, before.errors) if before else ("utf-8", "backslashreplace")
    return io.TextIOWrapper(io.BufferedWriter(output), encoding=encoding, errors=errors, line_buffering=True)
