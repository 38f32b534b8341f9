"""What dsv4ctl keeps on disk: paths, whole files, the lock, releases, the audit trail. Knows no reason to keep it."""

from contextlib import AbstractContextManager
from dataclasses import dataclass

from dsv4ctl.clock import Clock
from dsv4ctl.store import lock
from dsv4ctl.store.audit import Audit
from dsv4ctl.store.engines import Engines
from dsv4ctl.store.files import read, write_atomic
from dsv4ctl.store.paths import Paths
from dsv4ctl.store.releases import Releases

__all__ = ["Paths", "Store", "read", "write_atomic"]


@dataclass(frozen=True, slots=True)
class Store:
    """What is kept under `paths`; `clock` dates what is written."""

    paths: Paths
    clock: Clock

    def lock(self, why: str) -> AbstractContextManager[None]:
        """Hold the host-wide lock. Raises Busy naming who holds it, why and since when."""
        return lock.held(self.paths.lock, why, self.clock)

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
