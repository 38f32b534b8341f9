"""What stands before the gate and behind the end: a pause, in which nothing starts, and the brake on failing starts,
which slows restarts down before it closes where systemd itself cannot.

Here and not in a command, for systemd starts units again without asking one, and at boot.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from dsv4ctl import brake, maintenance
from dsv4ctl.clock import Clock
from dsv4ctl.model import Limits, Phase, RunState, SuperviseExit, Tally, Unit
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


@dataclass(frozen=True, slots=True)
class Turn:
    """When a restart has its turn (monotonic seconds), by which tally, and how that is told."""

    at: float
    tally: Tally
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Barrier:
    """`folder` is the instance's own below `starts`, with those of the others beside it; None: started by hand.

    `unit` asks systemd for ours; None: it is not systemd that started us, or it does not say.
    """

    folder: Path | None
    unit: Callable[[], Unit | None]
    limits: Limits
    lull: Lull
    inbox: Inbox
    journal: Journal
    voice: Voice
    clock: Clock

    def until_open(self) -> Over | None:
        """Wait for the end of a pause and for a restart's turn, then ask the brake; None: the start may be, and it is
        under way from now on."""
        if held := self._parked(self._tally()):
            return held
        before, turn = self.voice.state, self._turn()
        if stop := self._wait(lambda: self._paused("the engine is started when it ends") or self._slowed(turn)):
            return stop
        if self.voice.state != before:
            self.voice.tell(before)
        now = self.clock.wall()
        tally = brake.begun(self._tally(), now)
        if why := self._verdict(tally, now):
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
        if stop := self._wait(lambda: self._paused(f"{over.words}; nothing is restarted before it ends")):
            words = f"stopped ({stop.signal}) within a pause; before, {over.words}"
            self.voice.tell(replace(self.voice.state, phase=Phase.STOPPED, words=words, exit=0), "STOPPING=1")
            return SuperviseExit.OK
        self.voice.tell(replace(over, words=f"the pause is over; before, {over.words}"))
        return status

    def _wait(self, held: Callable[[], RunState | None]) -> Asked | None:
        """As long as something holds us, saying so; or until somebody wants to stop."""
        extend_at = float("-inf")
        while state := held():
            if self.clock.now() >= extend_at:
                extend_at = self.clock.now() + PATIENCE_S / 3
                self.voice.extend(PATIENCE_S)
            self.voice.tell(state)
            happening = self.inbox.next(LOOK_EVERY_S)
            if isinstance(happening, Told) and (stop := asked(happening.number, self.journal, self.voice)):
                return stop
        return None

    def _paused(self, what: str) -> RunState | None:
        """What is told within a pause; None: none lasts."""
        if not (paused := self.lull.words()):
            return None
        return replace(self.voice.state, phase=Phase.PAUSED, words=f"{paused}; {what}", engine_pid=0, exit=None)

    def _turn(self) -> Turn | None:
        """The turn of a restart that systemd has made after limits.restart alone; None: it need not wait for one.

        Any other start is never held up: after one by hand or a boot systemd has counted no restart.
        """
        tally, now = self._tally(), self.clock.wall()
        left_s = brake.owed_s(tally, self.limits, now)
        # The start that the brake refuses is refused at once.
        if left_s <= 0 or self._verdict(brake.begun(tally, now), now):
            return None
        unit = self.unit()
        if unit is None or not unit.restarts or unit.restart_steps:
            return None
        return Turn(self.clock.now() + left_s, tally, brake.owed_words(tally, self.limits, left_s, now))

    def _slowed(self, turn: Turn | None) -> RunState | None:
        """What is told before a restart's turn; None: it has come, or the brake was released, by a deploy say."""
        if turn is None or self.clock.now() >= turn.at or self._tally() != turn.tally:
            return None
        return replace(self.voice.state, phase=Phase.GATE, words=turn.words)

    def _verdict(self, own: Tally, now: float) -> str:
        return brake.verdict(self._all(own), self.limits, now)

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
