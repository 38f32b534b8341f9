"""A serving router's part for its workers: one that drains is sent nothing, a pair that changed is mended."""

import secrets
from dataclasses import dataclass, replace
from functools import partial

from dsv4ctl import health, pair, pairing, probe
from dsv4ctl.clock import until
from dsv4ctl.health import Question
from dsv4ctl.model import SuperviseExit
from dsv4ctl.pair import Judged
from dsv4ctl.pairing import Pair
from dsv4ctl.supervise import mending, rotation
from dsv4ctl.supervise.errands import Brought
from dsv4ctl.supervise.mending import Halves, Mending, Probe, Renew, Restart
from dsv4ctl.supervise.outcome import SERVING_GRACE_S, Failed
from dsv4ctl.supervise.peers import Seen, Stand
from dsv4ctl.supervise.rotation import Turned
from dsv4ctl.supervise.run import Run

# A router's own health checks notice within some seconds that a worker is back; the probe waits for that.
NOTICED_WITHIN_S = 30.0
# After a probe that failed with nothing left to try.
PROBE_AGAIN_S = 60.0
PROBE_LIMIT_S = 60.0


@dataclass(frozen=True, slots=True)
class Probed:
    """What a probe of these halves found."""

    halves: Halves
    judged: Judged


class Front:
    """What a router's supervisor does while its router serves. `words`: what is not whole, '' when all is."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._listing = rotation.Listing(run.url(""), run.key, run.clock)
        self._pair = pairing.of((run.instance,))
        self._mending: Mending | None = None
        self._probe_at = run.clock.now()
        self._troubled: set[str] = set()

    @property
    def words(self) -> str:
        """What is not whole."""
        if self._mending and self._mending.trouble:
            return f"degraded: the pair does not answer ({self._mending.trouble})"
        asked = self._mending is not None and self._mending.asked is not None
        return "degraded: the pair is being proved again" if asked or self._run.inbox.waits_for("pair") else ""

    def step(self, seen: tuple[Seen, ...]) -> None:
        """Do what is due after a look at the workers."""
        self._rotate(seen)
        if self._pair and (halves := mending.of(seen)):
            self._mend(self._pair, halves)

    def take(self, brought: Brought) -> Failed | None:
        """Take in what an errand of ours has found."""
        match brought.found:
            case Turned() as turned:
                self._turn(turned)
            case Probed() as probed:
                return self._judge(probed)
        return None

    # ---- rotation --------------------------------------------------------------------------------------------------

    def _rotate(self, seen: tuple[Seen, ...]) -> None:
        without = self._run.voice.state.without
        for one in seen:
            is_out = one.peer.name in without
            if one.stand is Stand.GOING and not is_out:
                self._run.inbox.send("rotation", partial(rotation.take_out, self._listing, one.peer))
            elif one.stand is Stand.READY and is_out:
                self._run.inbox.send("rotation", partial(rotation.take_in, self._listing, one.peer))

    def _turn(self, turned: Turned) -> None:
        state = self._run.voice.state
        rest = tuple(name for name in state.without if name != turned.name)
        without = (*rest, turned.name) if turned.out else rest
        if without != state.without:
            self._run.voice.tell(replace(state, without=without))
            self._run.journal.note(f"the router sends {'nothing' if turned.out else 'again'} to dsv4-{turned.name}")
        if turned.trouble and turned.name not in self._troubled:
            self._run.journal.note(f"the router's workers cannot be changed for dsv4-{turned.name}: {turned.trouble}")
        self._troubled = self._troubled | {turned.name} if turned.trouble else self._troubled - {turned.name}

    # ---- mending ---------------------------------------------------------------------------------------------------

    def _mend(self, found: Pair, halves: Halves) -> None:
        if self._mending is None:
            # The router was proved with these, by a generation that came through both.
            if all(half.stand is Stand.READY for half in halves):
                self._proved(Mending(proved=mending.supervisors(halves)))
            return
        match mending.due(self._mending, halves, self._run.instance.together):
            case Restart() as restart:
                self._restart(restart)
            case Probe() if self._may_probe(halves):
                self._run.inbox.send("pair", partial(_probe, self._run, found, halves))

    def _proved(self, after: Mending) -> None:
        """Keep what is known, also for the supervisor that comes after us."""
        self._mending = after
        self._run.voice.tell(replace(self._run.voice.state, proved=after.proved))

    def _may_probe(self, halves: Halves) -> bool:
        """Not before the router sends to both; and to the same halves, which did not answer, only now and then."""
        is_new = self._mending is None or mending.supervisors(halves) != self._mending.proved
        return not self._run.voice.state.without and (is_new or self._run.clock.now() >= self._probe_at)

    def _judge(self, probed: Probed) -> Failed | None:
        # What a half said that has changed since then says nothing of the pair.
        halves = mending.of(self._run.peers.look()) or probed.halves
        is_same = mending.supervisors(halves) == mending.supervisors(probed.halves)
        if self._mending is None or not is_same or any(half.stand is not Stand.READY for half in halves):
            return None
        after, action = mending.judged(self._mending, halves, probed.judged)
        self._proved(after)
        self._run.journal.note(f"probe of the pair: {probed.judged.verdict}: {probed.judged.words}")
        self._probe_at = self._run.clock.now() + (PROBE_AGAIN_S if after.trouble else 0.0)
        match action:
            case Restart() as restart:
                self._restart(restart)
            case Renew(because):
                advice = self._run.logs
                return Failed(exit=SuperviseExit.UNHEALTHY, words=because, advice=advice, grace_s=SERVING_GRACE_S)
        return None

    def _restart(self, restart: Restart) -> None:
        """Ask the half's own supervisor: nobody ends another's engine."""
        if self._mending is None or (ask := mending.request(restart)) is None:
            return
        self._mending = mending.asked(self._mending, restart.half)
        self._run.journal.note(f"{ask.unit} is asked to start again, once: {ask.because}")
        self._run.voice.tell(replace(self._run.voice.state, asks=ask))


def _probe(run: Run, found: Pair, halves: Halves) -> Probed:
    """Probe the pair once the router has noticed that both are back."""
    readiness = run.url(Question.READINESS)
    timeout_s = health.TIMEOUTS_S[Question.READINESS]
    until(
        lambda: probe.get(readiness, run.key, timeout_s=timeout_s).status == 200 or None,
        run.clock,
        NOTICED_WITHIN_S,
        0.5,
    )
    limit_s = min(PROBE_LIMIT_S, float(run.instance.limits.proof_s))
    looked = pairing.look(found, secrets.token_hex(6), run.key, run.clock, limit_s=limit_s)
    return Probed(halves, pair.judge(looked))
