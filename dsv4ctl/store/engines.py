"""What engines' --help said, by interpreter, version and install time. A cache: losing it costs time only."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from dsv4ctl.model import EngineBuild
from dsv4ctl.problems import Problem
from dsv4ctl.store import files


@dataclass(frozen=True, slots=True)
class Engines:
    """The engine builds remembered in a folder."""

    folder: Path

    def cached(self, key: str) -> EngineBuild | None:
        """The engine build remembered under `key`; None: none, or the file is not one of ours."""
        try:
            found = json.loads(self._file(key).read_text())
            build = found["build"]
            build |= {"launch": tuple(build["launch"]), "options": frozenset(build["options"])}
            build["choices"] = {option: tuple(values) for option, values in build["choices"].items()}
            return EngineBuild(**build) if found["key"] == key else None
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None  # a cache: what cannot be read is asked for again

    def cache(self, key: str, build: EngineBuild) -> str:
        """Remember an engine build under `key`, unless it is; '' or why it cannot be written, which stops nobody."""
        if self.cached(key) == build:
            return ""
        values = {**asdict(build), "options": sorted(build.options)}
        try:
            files.write_atomic(self._file(key), json.dumps({"key": key, "build": values}, indent=1), mode=0o644)
        except Problem as problem:
            return str(problem)
        return ""

    def _file(self, key: str) -> Path:
        import hashlib  # noqa: PLC0415 -- loads OpenSSL, which a supervisor that only writes files need not carry

        return self.folder / f"{hashlib.sha256(key.encode()).hexdigest()[:16]}.json"
