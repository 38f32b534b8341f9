"""The host's pause as a running supervisor sees it: read from its file now and then, for nobody tells of it."""

from pathlib import Path

from dsv4ctl import brake, maintenance
from dsv4ctl.clock import Clock
from dsv4ctl.model import Pause

LOOK_EVERY_S = 1.0


class Lull:
    """The pause, if one lasts. `file` None: we were started by hand, and there is none."""

    def __init__(self, file: Path | None, clock: Clock) -> None:
        self._file, self._clock = file, clock
        self._found: Pause | None = None
        self._looked_at = self._lasted_at = float("-inf")

    def now(self) -> Pause | None:
        """The pause that lasts; None: there is none, or it has ended."""
        now = self._clock.now()
        if self._file is not None and now - self._looked_at >= LOOK_EVERY_S:
            self._looked_at, self._found = now, maintenance.pause(self._file)
        if self._found is None or brake.is_over(self._found, self._clock.wall()):
            return None
        self._lasted_at = now
        return self._found

    def again(self) -> Pause | None:
        """The same after a look at the file at this moment, for what cannot be taken back."""
        self._looked_at = float("-inf")
        return self.now()

    def words(self) -> str:
        """The pause in words; '' when none lasts."""
        found = self.now()
        return brake.pause_words(found, self._clock.wall()) if found else ""

    def began_or(self, since: float) -> float:
        """From when on a limit counts that began at `since` (monotonic seconds): anew after a pause, and not in one."""
        return max(since, self._clock.now() if self.now() else self._lasted_at)
