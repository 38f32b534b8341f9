"""What stands before the gate and behind the end: a pause, in which nothing starts, and the brake on failing starts.

Here and not in a command, for systemd starts units again without asking one, and at boot.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from dsv4ctl import brake, maintenance
from dsv4ctl.clock import Clock
from dsv4ctl.model import Limits, Phase, SuperviseExit, Tally
from dsv4ctl.problems import Problem
from dsv4ctl.supervise.inbox import Inbox, Told
from dsv4ctl.supervise.journal import Journal
from dsv4ctl.supervise.lull import LOOK_EVERY_S, Lull
from dsv4ctl.supervise.notify import Voice
from dsv4ctl.supervise.outcome import Asked, Failed, Over
from dsv4ctl.supervise.run import asked

# systemd is asked for this much at each look of a wait whose end nobody knows.
PATIENCE_S = 60.0
# A stop that somebody asked for, also for the sake of a pair; a router without workers, whose own ends count.
NO_FAILURE = (SuperviseExit.OK, SuperviseExit.ASKED, SuperviseExit.PEER)


@dataclass(frozen=True, slots=True, kw_only=True)
class Barrier:
    """`folder` is the instance's own below `starts`, with those of the others beside it; None: started by hand."""

    folder: Path | None
    limits: Limits
    lull: Lull
    inbox: Inbox
    journal: Journal
    voice: Voice
    clock: Clock

    def until_open(self) -> Over | None:
        """Wait for the end of a pause, then ask the brake; None: the start may be, and it is under way from now on."""
        if held := self._parked(self._tally()):
            return held
        if stop := self._wait(lambda paused: f"{paused}; the engine is started when it ends"):
            return stop
        now = self.clock.wall()
        tally = brake.begun(self._tally(), now)
        if why := brake.verdict(self._all(tally), self.limits, now):
            tally = brake.parked(brake.stopped(tally), why, now)
        self._keep(tally)
        return self._parked(tally)

    def passed(self, status: SuperviseExit) -> SuperviseExit:
        """Note how the run ended; after a failure within a pause wait for its end, so that systemd restarts it then."""
        over = self.voice.state
        if status in NO_FAILURE:
            self._keep(brake.stopped(self._tally()))
        else:
            self._keep(brake.failed(self._tally(), over.words, self.clock.wall()))
        if status is SuperviseExit.OK or self.voice.stopping or not self.lull.again():
            return status
        if stop := self._wait(lambda paused: f"{paused}; {over.words}; nothing is restarted before it ends"):
            words = f"stopped ({stop.signal}) within a pause; before, {over.words}"
            self.voice.tell(replace(self.voice.state, phase=Phase.STOPPED, words=words, exit=0), "STOPPING=1")
            return SuperviseExit.OK
        self.voice.tell(replace(over, words=f"the pause is over; before, {over.words}"))
        return status

    def _wait(self, words: Callable[[str], str]) -> Asked | None:
        """Until no pause lasts, saying so; or until somebody wants to stop."""
        extend_at = float("-inf")
        while paused := self.lull.words():
            if self.clock.now() >= extend_at:
                extend_at = self.clock.now() + PATIENCE_S / 3
                self.voice.extend(PATIENCE_S)
            state = replace(self.voice.state, phase=Phase.PAUSED, words=words(paused), engine_pid=0, exit=None)
            self.voice.tell(state)
            happening = self.inbox.next(LOOK_EVERY_S)
            if isinstance(happening, Told) and (stop := asked(happening.number, self.journal, self.voice)):
                return stop
        return None

    def _parked(self, tally: Tally) -> Failed | None:
        if tally.parked is None:
            return None
        words = brake.parked_words(tally.parked, self.clock.wall())
        return Failed(exit=SuperviseExit.PARKED, words=words, advice=brake.ADVICE)

    def _tally(self) -> Tally:
        return maintenance.tally(self.folder / maintenance.TALLY) if self.folder else Tally()

    def _all(self, own: Tally) -> dict[str, Tally]:
        return {**maintenance.tallies(self.folder.parent), self.folder.name: own} if self.folder else {}

    def _keep(self, tally: Tally) -> None:
        """A disk that cannot be written is told and keeps no engine from its start: systemd's own limit is there."""
        try:
            if self.folder:
                maintenance.keep_tally(self.folder / maintenance.TALLY, tally)
        except Problem as problem:
            self.journal.note(str(problem))
