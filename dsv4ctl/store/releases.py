"""The numbered releases on disk: one folder each, which counts from the moment its release.json is whole.

releases/0004/release.json    the generation, written once; without it this is no release, and its number is spent
              verdict.json    what came of the last attempt; missing while it is under way or after it was cut short
              evidence.json   what was seen of the last attempt that failed
"""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from dsv4ctl import record
from dsv4ctl.generations import Evidence, Generation, Kept, Verdict
from dsv4ctl.problems import Problem, WrongOption
from dsv4ctl.store import files


@dataclass(frozen=True, slots=True)
class Releases:
    """The releases kept in a folder."""

    folder: Path

    def all(self) -> tuple[Kept, ...]:
        """Every release that can be read, in ascending order.

        What runs is read from the host and not from here, so an unreadable file must stop neither deploy nor teardown.
        """
        return tuple(self.backwards())[::-1]

    def backwards(self) -> Iterator[Kept]:
        """The same, the youngest first, each read when it is asked for."""
        for number in reversed(self.numbers()):
            with suppress(Problem):
                yield self.read(number)

    def numbers(self) -> tuple[int, ...]:
        """The numbers of the releases kept, readable or not, in ascending order."""
        return tuple(sorted(int(file.parent.name) for file in self.folder.glob("[0-9]*/release.json")))

    def next(self) -> int:
        """The number of the next release: one that no folder has, not even one that a killed writer left."""
        return max((int(folder.name) for folder in self.folder.glob("[0-9]*")), default=0) + 1

    def read(self, number: int) -> Kept:
        """A release that was kept. Raises WrongOption when it is not there, Problem when no dsv4ctl like this
        one wrote it."""
        file = self.of(number) / "release.json"
        if not file.exists():
            there = ", ".join(map(str, self.numbers())) or "none"
            raise WrongOption(f"cannot find release {number} (there is: {there})", hint="dsv4ctl history")
        try:
            return Kept(record.load(files.read(file), Generation), self._verdict(number))
        except Problem as problem:
            raise Problem(f"cannot use {file}: {problem}", hint=problem.hint) from None

    def keep(self, generation: Generation) -> None:
        """Keep a generation under its number. Raises Problem when it cannot, and then it is not there."""
        files.write_atomic(self.of(generation.number) / "release.json", record.dump(generation), mode=0o600)

    def judge(self, number: int, verdict: Verdict) -> None:
        """Put beside a release what came of it. Raises Problem when it cannot be written."""
        files.write_atomic(self.of(number) / "verdict.json", record.dump(verdict), mode=0o600)

    def testify(self, number: int, evidence: Evidence) -> None:
        """Put beside a release what was seen of its failure. Raises Problem when it cannot be written."""
        files.write_atomic(self.of(number) / "evidence.json", record.dump(evidence), mode=0o600)

    def evidence(self, number: int) -> Evidence | None:
        """What was seen of a release that failed; None: it did not, or that cannot be read."""
        with suppress(Problem):
            return record.load(files.read(self.of(number) / "evidence.json"), Evidence)
        return None

    def forget(self, numbers: Iterable[int]) -> None:
        """Remove releases, and what killed writers left of others.

        release.json goes first, so that a cut leaves no release that is half there; the rest goes the next time.
        """
        for number in numbers:
            files.remove(self.of(number) / "release.json")
        kept = self.numbers()
        for folder in self.folder.glob("[0-9]*"):
            # The highest number says that it is spent, release or not.
            if int(folder.name) not in kept and int(folder.name) < self.next() - 1:
                files.remove_folder(folder)

    def of(self, number: int) -> Path:
        """The folder of a release."""
        return self.folder / f"{number:04}"

    def _verdict(self, number: int) -> Verdict | None:
        with suppress(Problem):
            return record.load(files.read(self.of(number) / "verdict.json"), Verdict)
        return None
