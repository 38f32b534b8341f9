"""The audit trail: one JSON line a command, and who gave it."""

import json
import os
import pwd
from collections.abc import Mapping
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


def person() -> str:
    """The person behind the command: whoever called sudo, else the user we run as."""
    try:
        return os.environ.get("SUDO_USER") or pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())
