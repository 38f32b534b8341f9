"""What dsv4ctl keeps on disk: paths, whole files, the lock, releases, the audit trail. Knows no reason to keep it."""

from contextlib import AbstractContextManager
from dataclasses import dataclass

from dsv4ctl.clock import Clock
from dsv4ctl.store import files, lock
from dsv4ctl.store.audit import Audit
from dsv4ctl.store.engines import Engines
from dsv4ctl.store.files import read, write_atomic
from dsv4ctl.store.lock import Claim, Face
from dsv4ctl.store.paths import Paths
from dsv4ctl.store.releases import Releases

__all__ = ["Claim", "Face", "Paths", "Store", "files", "read", "write_atomic"]


@dataclass(frozen=True, slots=True)
class Store:
    """What is kept under `paths`; `clock` dates what is written."""

    paths: Paths
    clock: Clock

    def lock(self, claim: Claim) -> AbstractContextManager[Face | None]:
        """Hold the host-wide lock; gives the face of a holder that was killed. Raises Busy naming who holds it."""
        return lock.held(self.paths.lock, claim, self.clock)

    @property
    def releases(self) -> Releases:
        """The numbered releases."""
        return Releases(self.paths.releases)

    @property
    def audit(self) -> Audit:
        """The audit trail."""
        return Audit(self.paths.audit, self.clock)

    @property
    def engines(self) -> Engines:
        """The engine builds that were asked for their options."""
        return Engines(self.paths.engines)
