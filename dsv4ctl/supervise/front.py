"""A serving router's part for its workers: one that drains is sent nothing, a pair that changed is mended."""

from dataclasses import dataclass, replace
from functools import partial

from dsv4ctl import health, pair, pairing, probe
from dsv4ctl.clock import until
from dsv4ctl.engine.questions import Question
from dsv4ctl.model import SuperviseExit
from dsv4ctl.pair import Judged
from dsv4ctl.pairing import Pair
from dsv4ctl.problems import Busy
from dsv4ctl.supervise import mending, probes, rotation
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
        """Made before READY=1 is said: the router was proved with those that it was started for."""
        self._run = run
        self._listing = rotation.Listing(run.url(""), run.key, run.clock)
        self._pair = pairing.of((run.instance,))
        self._seen: tuple[Seen, ...] = ()
        self._mending = Mending()
        self._probe_at = run.clock.now()
        self._troubled: set[str] = set()
        self._know(Mending(met=run.voice.state.met, proved=run.voice.state.met))

    @property
    def words(self) -> str:
        """What is not whole."""
        halves = mending.of(self._seen)
        if halves and (amiss := mending.words(self._mending, halves, self._run.instance.together)):
            return amiss
        without = self._run.voice.state.without
        out = [f"dsv4-{one.peer.name}" for one in self._seen if one.stand is Stand.READY and one.peer.name in without]
        return f"the router sends nothing to {' and '.join(out)} yet" if out else ""

    def step(self, seen: tuple[Seen, ...]) -> None:
        """Do what is due after a look at the workers."""
        self._seen, halves = seen, mending.of(seen)
        self._rotate(seen, self._kept_out(halves))
        if self._pair and halves:
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

    def _kept_out(self, halves: Halves | None) -> Seen | None:
        """The half that must not meet the one that comes: it is sent nothing until it has been started again itself."""
        apart = mending.parted(self._mending, halves) if halves and self._run.instance.together else None
        return apart.stayed if apart else None

    def _rotate(self, seen: tuple[Seen, ...], kept_out: Seen | None) -> None:
        without = self._run.voice.state.without
        out = rotation.to_take_out(seen, without, kept_out)
        for one in out:
            self._run.inbox.send(f"rotation of {one.name}", partial(rotation.take_out, self._listing, one))
        # Whoever comes back does so to a router that sends to nobody any more whom it should not.
        for one in () if out else rotation.to_take_in(seen, without, kept_out):
            self._run.inbox.send(f"rotation of {one.name}", partial(rotation.take_in, self._listing, one))

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
        together = self._run.instance.together
        self._know(mending.meet(self._mending, halves, together))
        match mending.due(self._mending, halves, together):
            case Restart() as restart:
                self._restart(restart)
            case Probe() if self._may_probe(halves):
                self._run.inbox.send("pair", partial(_probe, self._run, found, halves))

    def _know(self, after: Mending) -> None:
        """Keep what is known, also for the halves and for the supervisor that comes after us."""
        self._mending, state = after, self._run.voice.state
        if (after.met, after.proved) != (state.met, state.proved):
            self._run.voice.tell(replace(state, met=after.met, proved=after.proved))

    def _may_probe(self, halves: Halves) -> bool:
        """Not before the router sends to both; and to the same halves, which did not answer, only now and then."""
        is_new = mending.supervisors(halves) != self._mending.tried
        return not self._run.voice.state.without and (is_new or self._run.clock.now() >= self._probe_at)

    def _judge(self, probed: Probed) -> Failed | None:
        # What a half said that has changed since then says nothing of the pair.
        halves = mending.of(self._run.peers.look()) or probed.halves
        is_same = mending.supervisors(halves) == mending.supervisors(probed.halves)
        if not is_same or any(half.stand is not Stand.READY for half in halves):
            return None
        after, action = mending.judged(self._mending, halves, probed.judged)
        self._know(after)
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
        if (ask := mending.request(restart)) is None:
            return
        self._mending = mending.asked(self._mending, restart.half)
        self._run.journal.note(f"{ask.unit} is asked to start again, once: {ask.because}")
        self._run.voice.tell(replace(self._run.voice.state, asks=ask))


def _probe(run: Run, found: Pair, halves: Halves) -> Probed | None:
    """Probe the pair once the router has noticed that both are back; None while somebody else does."""
    readiness = run.url(Question.READINESS)
    timeout_s = health.TIMEOUTS_S[Question.READINESS]
    until(
        lambda: probe.get(readiness, run.key, timeout_s=timeout_s).status == 200 or None,
        run.clock,
        NOTICED_WITHIN_S,
        0.5,
    )
    limit_s = min(PROBE_LIMIT_S, float(run.instance.limits.proof_s))
    try:
        with probes.turn(run):
            looked = pairing.look(found, pairing.nonce(), run.key, run.clock, limit_s=limit_s)
    except Busy:
        return None
    return Probed(halves, pair.judge(looked))
