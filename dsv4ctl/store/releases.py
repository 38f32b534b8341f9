"""The numbered releases on disk: one folder each, which counts from the moment its release.json is whole."""

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from dsv4ctl import record
from dsv4ctl.model import Release
from dsv4ctl.problems import Problem
from dsv4ctl.store import files


@dataclass(frozen=True, slots=True)
class Releases:
    """The releases kept in a folder."""

    folder: Path

    def numbers(self) -> tuple[int, ...]:
        """The numbers of the releases kept, in ascending order."""
        return tuple(sorted(int(file.parent.name) for file in self.folder.glob("[0-9]*/release.json")))

    def read(self, number: int) -> Release:
        """A release that was kept. Raises Problem when it is not there, or no dsv4ctl like this one wrote it."""
        text = files.read(file := self.of(number) / "release.json")
        try:
            return record.load_release(text)
        except Problem as problem:
            raise Problem(f"cannot use {file}: {problem}", hint=problem.hint) from None

    def current(self) -> tuple[int, Release] | None:
        """The release kept last, with its number; None: none was kept, or the last one cannot be read.

        What runs is read from the host and not from here, so an unreadable file must stop neither deploy nor teardown.
        """
        numbers = self.numbers()
        with suppress(Problem):
            return (numbers[-1], self.read(numbers[-1])) if numbers else None
        return None

    def keep(self, release: Release) -> int:
        """Keep a release and return its number: the next one, or the current one's when that has the same digest."""
        current = self.current()
        if current and current[1].digest == release.digest:
            return current[0]
        # A folder without release.json is left by a writer that was killed; its number is not used again.
        taken = [int(folder.name) for folder in self.folder.glob("[0-9]*")]
        number = max(taken, default=0) + 1
        files.write_atomic(self.of(number) / "release.json", record.dump_release(release), mode=0o600)
        return number

    def write_verdict(self, number: int, verdict: Mapping[str, object]) -> None:
        """Put beside a release what came of it."""
        files.write_atomic(self.of(number) / "verdict.json", json.dumps(verdict, indent=2) + "\n", mode=0o644)

    def of(self, number: int) -> Path:
        """The folder of a release."""
        return self.folder / f"{number:04}"
