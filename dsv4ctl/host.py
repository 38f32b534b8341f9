"""The rim in one frozen bundle: where this host's files are, and its clock. The rest of the rim is functions."""

from dataclasses import dataclass
from pathlib import Path
from typing import Self

from dsv4ctl.clock import Clock, RealClock
from dsv4ctl.problems import Problem
from dsv4ctl.store import Paths, Store


@dataclass(frozen=True, slots=True)
class Host:
    """One host, its files under `root`."""

    root: Path
    paths: Paths
    clock: Clock

    @classmethod
    def real(cls, root: Path = Path("/")) -> Self:
        """This machine."""
        return cls(root, Paths(root), RealClock())

    def require_live(self) -> None:
        """Raises Problem under another root: systemd reads its units from / alone, and those would be acted on."""
        if self.root.resolve() != Path("/"):
            raise Problem(
                f"cannot start or stop anything under --root {self.root}: systemd runs the units of /",
                hint=f"dsv4ctl render --out {self.root}   writes the files there",
            )

    @property
    def store(self) -> Store:
        """What we keep on this host."""
        return Store(self.paths, self.clock)
