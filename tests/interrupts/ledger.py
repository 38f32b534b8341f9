"""What was cut off so far, in files: workers side by side share one list of acts, and a run that broke off goes on.

The files are those of one state of the sources: whatever was changed since is cut off anew.
"""

import fcntl
import hashlib
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.interrupts.cutting import Boundary

ROOT = Path(__file__).parents[2]
SOURCES = ("dsv4ctl/**/*", "templates/*", "units/*", "tests/interrupts/*")
CUTS, ENV = "cuts.jsonl", "DSV4CTL_CUTS"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """One command that was cut off once. `reached`: it came to that act at all; `wrong`: the promises it broke."""

    command: str
    how: str
    where: Boundary
    reached: bool
    status: int
    wrong: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Ledger:
    """The files, in a folder of theirs."""

    folder: Path

    def acts(self, command: str, listen: Callable[[], list[Boundary]]) -> list[Boundary]:
        """Where a command can be cut off: `listen` finds it out once for all workers."""
        file = self.folder / f"{command}.json"
        with self._alone(command):
            if not file.exists():
                found = [(where.label, where.turn) for where in listen()]
                new = file.with_suffix(".new")
                new.write_text(json.dumps(found, indent=0))
                new.replace(file)
            return [Boundary(label, turn) for label, turn in json.loads(file.read_text())]

    def keep(self, cut: Cut) -> None:
        """Write down one that was tried, at the instant it is over."""
        where = (cut.where.label, cut.where.turn)
        line = json.dumps([cut.command, cut.how, where, cut.reached, cut.status, cut.wrong])
        with (self.folder / CUTS).open("a") as file:
            file.write(f"{line}\n")

    def cuts(self) -> list[Cut]:
        """All that were tried."""
        file = self.folder / CUTS
        return [_cut(line) for line in file.read_text().splitlines()] if file.exists() else []

    def arrived(self, command: str, how: str) -> set[Boundary]:
        """Where this command was cut off in this way, and nothing was wrong after it."""
        return {cut.where for cut in self.cuts() if (cut.command, cut.how, cut.wrong) == (command, how, ())}

    @contextmanager
    def _alone(self, command: str) -> Iterator[None]:
        with (self.folder / f"{command}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def of_these_sources(otherwise: Path) -> Ledger:
    """The ledger of the sources as they are: below $DSV4CTL_CUTS, or in a folder that is kept for nobody."""
    said = hashlib.sha256()
    for path in sorted(path for pattern in SOURCES for path in ROOT.glob(pattern)):
        if path.is_file() and "__pycache__" not in path.parts:
            said.update(f"{path.relative_to(ROOT)}\0".encode() + path.read_bytes())
    folder = Path(os.environ.get(ENV, otherwise)) / said.hexdigest()[:12]
    folder.mkdir(parents=True, exist_ok=True)
    return Ledger(folder)


def table(cuts: list[Cut]) -> list[str]:
    """Counts for each command and way of cutting it off."""
    last = {(cut.command, cut.how, cut.where): cut for cut in cuts}.values()
    rows = [f"{'command':10} {'cut off by':26} {'acts':>5} {'reached':>8} {'arrived':>8}"]
    for command, how in dict.fromkeys((cut.command, cut.how) for cut in sorted(last, key=lambda c: (c.command, c.how))):
        some = [cut for cut in last if (cut.command, cut.how) == (command, how)]
        reached, arrived = sum(cut.reached for cut in some), sum(not cut.wrong for cut in some)
        rows.append(f"{command:10} {how:26} {len(some):5} {reached:8} {arrived:8}")
    return [*rows, f"{'in all':37} {len(last):5} {sum(c.reached for c in last):8} {sum(not c.wrong for c in last):8}"]


def _cut(line: str) -> Cut:
    command, how, (label, turn), reached, status, wrong = json.loads(line)
    where = Boundary(label, turn)
    return Cut(command=command, how=how, where=where, reached=reached, status=status, wrong=tuple(wrong))
