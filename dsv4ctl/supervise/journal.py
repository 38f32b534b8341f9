"""Our stderr, which is the journal: the engine's bytes as they come, and lines of our own between them."""

import os
import re
import select
import sys
from collections.abc import Mapping

from dsv4ctl.names import NOTE

_COLOUR = re.compile(rb"\x1b\[[0-9;]*m")
# journald's own LineMax= of 48 KiB: it breaks a longer line as well.
LONGEST_LINE_BYTES = 48 * 1024


class Journal:
    """A stream to write to. Nothing that is wrong with it ends us: a log that cannot be written is no crash.

    `plain`: carriage returns become line ends and colours are left out, for what journald takes with them it shows as
    "[3.2K blob data]": all progress bars and every warning of SGLang's. A line is passed on when it is whole, which is
    when journald shows it: a note of ours then never stands in the middle of a line of the engine's, and no colour or
    line end is cut in two by the way in which the output was read.
    """

    def __init__(self, *, plain: bool = False) -> None:
        self._file = sys.stderr.fileno()
        self._plain = plain
        self._within_a_line = False
        self._begun = b""

    def forward(self, output: bytes) -> None:
        """Pass the engine's bytes on, all of them; a reader that is slow is waited for."""
        if not self._plain:
            self._write(output)
            return
        text = self._begun + output
        # A carriage return at the very end may be half a line end.
        end = max(text.rfind(b"\n"), text.rfind(b"\r", 0, len(text) - 1)) + 1
        if len(text) - end > LONGEST_LINE_BYTES:
            end = len(text)
        self._begun = text[end:]
        self._write(_plain(text[:end]))

    def finish(self) -> None:
        """Pass on a line that was begun: nobody ends it any more."""
        begun, self._begun = self._begun, b""
        self._write(_plain(begun))

    def _write(self, output: bytes) -> None:
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
        self._write(f"{start}{NOTE}{text}\n".encode(errors="replace"))


def _plain(text: bytes) -> bytes:
    return _COLOUR.sub(b"", text.replace(b"\r\n", b"\n").replace(b"\r", b"\n"))


def is_journald(environment: Mapping[str, str]) -> bool:
    """Whether stderr goes to journald: systemd says which stream it connected, by device and inode."""
    found = os.fstat(sys.stderr.fileno())
    return environment.get("JOURNAL_STREAM") == f"{found.st_dev}:{found.st_ino}"
