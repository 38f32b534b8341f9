"""The rim in one frozen bundle: where this host's files are, and its clock. The rest of the rim is functions."""

from dataclasses import dataclass
from pathlib import Path
from typing import Self

from dsv4ctl.clock import Clock, RealClock
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

    @property
    def store(self) -> Store:
        """What we keep on this host."""
        return Store(self.paths, self.clock)
