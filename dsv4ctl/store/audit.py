"""The audit trail: one JSON line a command, and who gave it."""

import json
import os
import pwd
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from dsv4ctl.clock import Clock
from dsv4ctl.store import files


@dataclass(frozen=True, slots=True)
class Audit:
    """The audit trail in `file`; `clock` dates its lines."""

    file: Path
    clock: Clock

    def write(self, what: str, details: Mapping[str, object]) -> None:
        """Add one line: when, who, what and `details`; on disk when this returns."""
        line = {"at": self.clock.wall(), "who": person(), "pid": os.getpid(), "what": what, **details}
        files.append(self.file, json.dumps(line, ensure_ascii=False))

    def lines(self) -> Iterator[dict[str, object]]:
        """Every line that can be read, the oldest first; none where there is no trail. Raises Problem."""
        if not self.file.exists():
            return
        for text in files.read(self.file).splitlines():
            with suppress(ValueError):
                if isinstance(line := json.loads(text), dict):
                    yield line


def person() -> str:
    """The person behind the command: whoever called sudo, else the user we run as."""
    try:
        return os.environ.get("SUDO_USER") or pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())
