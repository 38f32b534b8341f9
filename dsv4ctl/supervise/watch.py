"""A serving engine: probe it now and then, say how it is, notice its end."""

import time
from dataclasses import dataclass, replace
from functools import partial
from typing import assert_never

from dsv4ctl import health, probe
from dsv4ctl.engine import bodies
from dsv4ctl.engine.log import PhaseSeen
from dsv4ctl.engine.questions import Question
from dsv4ctl.health import HEALTH_TIMEOUT_S, Pulse
from dsv4ctl.model import Capacity, Phase, Role, SuperviseExit
from dsv4ctl.probe import Answer
from dsv4ctl.supervise import look, words
from dsv4ctl.supervise.company import Company
from dsv4ctl.supervise.engine import End
from dsv4ctl.supervise.errands import Brought
from dsv4ctl.supervise.hearing import Said
from dsv4ctl.supervise.inbox import Happening, Quiet, Told
from dsv4ctl.supervise.look import Who
from dsv4ctl.supervise.outcome import SERVING_GRACE_S, Failed, Over
from dsv4ctl.supervise.run import Run, asked

LOADS = "/v1/loads"
# One token, also where the environment has /health answer without one (SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION=0), as
# older builds do anyway: then /health is green while the scheduler hangs.
HEALTH_GENERATE = "/health_generate"
# Answered from shared memory in 20 ms; SHORTEST_S is for /health and its like, which take 1.0 s by construction.
LOADS_TIMEOUT_S = 3.0
SHORTEST_S = 3.0
# A router that has lost workers gets them back at any moment, and says so at once when it is asked.
DEGRADED_EVERY_S = 3.0
# A pause is told of and heeded this soon.
LULL_EVERY_S = 2.0
# An event loop that answers nothing at all does not hear SIGTERM either.
SILENT_GRACE_S = 3.0


@dataclass(frozen=True, slots=True)
class Beat:
    """One probe: when it began, what was wrong ('' nothing), and the mark of the engine's work.

    `silent`: nothing was answered at all. `beside`: who else listens on the port, on another address. `degraded`: what
    a router that is well cannot do.
    """

    at: float
    complaint: str
    mark: tuple[object, ...] = ()
    silent: bool = False
    beside: str = ""
    degraded: str = ""


class Serving:
    """An engine after READY=1. Nothing here is decided on one bad answer: long prefills make /health fail too."""

    def __init__(self, run: Run, capacity: Capacity) -> None:
        self._run = run
        self._words = words.ready(run.instance, capacity)
        self._pulse = Pulse()
        self._beat = Beat(run.clock.now(), "")
        self._company = Company(run)
        self._failing_at = self._paused = self._amiss = ""
        self._told_to_drain = self._silent = False
        self._probe_at = run.clock.now() + run.instance.limits.watch_s
        state = replace(run.voice.state, done=0, total=0, left_s=None, capacity=capacity)
        run.voice.tell(replace(state, phase=Phase.READY, words=self._words), "READY=1")

    def until_over(self) -> Over:
        """Go on until the engine ends, is unhealthy for too long, or somebody wants to stop."""
        while True:
            now = self._run.clock.now()
            if (paused := self._run.lull.words()) != self._paused:
                self._paused = paused
                self._say()
            if over := self._unhealthy(now) or self._look_around():
                return over
            if now >= self._probe_at and self._run.inbox.send("watch", partial(probe_once, self._run)):
                self._probe_at = now + self._run.instance.limits.watch_s
            if outcome := self._take(self._run.inbox.next(self._patience_s(now))):
                return outcome

    def _patience_s(self, now: float) -> float:
        since, limit = self._pulse.failing_since, self._run.instance.limits.unhealthy_s
        ends = limit if since is None else self._run.lull.began_or(since) + limit - now
        soonest = min(self._probe_at - now, ends) if self._probe_at > now else 1.0
        return max(0.05, min(soonest, self._company.due_in_s(), LULL_EVERY_S))

    def _look_around(self) -> Over | None:
        """Look at the others of the mode. When one goes or comes back, our own is asked at once, too."""
        over = self._company.look()
        before, self._amiss = self._amiss, self._company.words
        # Nobody might say anything else for long.
        if self._amiss != before or self._run.voice.is_behind:
            self._say()
        if bool(self._amiss) != bool(before):
            self._probe_at = self._run.clock.now()
        return None if over and self._run.lull.again() else over

    def _unhealthy(self, now: float) -> Failed | None:
        limits, since = self._run.instance.limits, self._pulse.failing_since
        # Within a pause the limit does not run, and after it it runs anew.
        pulse = replace(self._pulse, failing_since=None if since is None else self._run.lull.began_or(since))
        if not health.unhealthy(pulse, now, limits.unhealthy_s):
            return None
        line = f"unhealthy since {self._failing_at}, for {limits.unhealthy_s} s: {self._pulse.words}"
        grace_s = SILENT_GRACE_S if self._silent else SERVING_GRACE_S
        return Failed(exit=SuperviseExit.UNHEALTHY, words=line, advice=self._run.logs, grace_s=grace_s)

    def _take(self, happening: Happening) -> Over | None:
        match happening:
            case Brought(found=Beat() as beat):
                return self._feel(beat)
            case Said(event=PhaseSeen(phase=Phase.DRAINING)):
                self._told_to_drain, self._probe_at = True, self._run.clock.now()
            case Told():
                return asked(happening.number, self._run.journal, self._run.voice)
            case End():
                return self._died(happening)
            case Brought():
                return self._company.take(happening)
            case Said() | Quiet():
                return None
            case _:
                assert_never(happening)
        return None

    def _feel(self, beat: Beat) -> Failed | None:
        """Take a probe in. An engine that says that it drains, and is not healthy, was told to by somebody else."""
        if self._told_to_drain and beat.complaint:
            line = f"somebody else told the {self._run.instance.role.program} to stop (SIGTERM to its main process)"
            return Failed(exit=SuperviseExit.DIED_SERVING, words=line, advice="stop it through systemctl", drains=True)
        self._told_to_drain, self._silent = False, beat.silent
        self._note(beat)
        return None

    def _note(self, beat: Beat) -> None:
        run, was = self._run, self._pulse.failing_since
        now = run.clock.now()
        self._pulse = health.beat(self._pulse, beat.complaint, beat.mark, beat.at)
        if self._pulse.failing_since is None:
            if was is not None:
                run.journal.note(f"well again after {words.duration(now - was)}")
            self._beat = beat
            if beat.degraded:
                self._probe_at = min(self._probe_at, now + DEGRADED_EVERY_S)
        elif self._pulse.failing_since != was:
            self._failing_at = time.strftime("%H:%M:%S", time.localtime(run.clock.wall()))
            run.journal.note(f"the {run.instance.role.program} does not answer well: {beat.complaint}")
        self._say()

    def _say(self) -> None:
        """Say that the instance serves, and what is amiss around it; while it fails its probes, that comes first."""
        if (since := self._pulse.failing_since) is not None:
            self._run.say(Phase.READY, f"failing since {self._failing_at}: {self._pulse.words}; {self._fate(since)}")
            return
        beware = f"beware: {self._beat.beside} as well" if self._beat.beside else ""
        # Whoever of the others is missing says more than the router's own "insufficient healthy workers".
        degraded = self._amiss or (f"degraded: {self._beat.degraded}" if self._beat.degraded else "")
        self._run.say(Phase.READY, "; ".join(filter(None, (self._words, beware, degraded, self._paused))))

    def _fate(self, since: float) -> str:
        """What comes of an engine that fails its probes since then."""
        if self._paused:
            return f"left alone, {self._paused}"
        left_s = self._run.lull.began_or(since) + self._run.instance.limits.unhealthy_s - self._run.clock.now()
        return f"ended in {words.duration(max(0.0, left_s))} unless it recovers"

    def _died(self, end: End) -> Failed:
        cause, advice = self._run.hearing.cause()
        line = f"the {self._run.instance.role.program} {end.words} while it served: {cause}"
        return Failed(exit=SuperviseExit.DIED_SERVING, words=line, advice=advice or self._run.logs)


def probe_once(run: Run) -> Beat:
    """Look whose the port is, ask for a sign of health, and when that fails what the engine works on."""
    at, port = run.clock.now(), run.instance.port
    looked = look.at_port(run.instance, run.territory)
    if looked.who is Who.NOBODY:
        return Beat(at, f"the port is lost: nobody listens on {words.address(run.instance)}")
    if looked.who is Who.IMPOSTOR and not looked.beside:
        return Beat(at, f"the port is lost: {looked.words} listens on {port}")
    # Somebody beside a serving engine is no fault of the engine's, and clients that reach it must hear of it.
    beside = looked.words if looked.who is Who.IMPOSTOR else ""
    if run.instance.role is Role.ROUTER:
        return _router_beat(run, at, beside)
    asked_for, answer = _health(run)
    if not (complaint := health.complaint(asked_for, answer)):
        return Beat(at, "", beside=beside)
    loads = probe.get(run.url(LOADS), run.key, timeout_s=LOADS_TIMEOUT_S)
    mark = bodies.work_mark(loads.body) if loads.status == 200 else ()
    return Beat(at, complaint, mark, silent=answer.status is None and loads.status is None)


def _health(run: Run) -> tuple[str, Answer]:
    """How an engine is, and by which question: by one token of its own where it is whole.

    A half of a pair is asked what its configuration has it answer, and is sent no generation beyond that.
    """
    # A probe need not hang longer than the engine may.
    timeout_s = min(HEALTH_TIMEOUT_S, max(SHORTEST_S, run.instance.limits.unhealthy_s))
    if run.instance.role is Role.SERVER:
        answer = probe.get(run.url(HEALTH_GENERATE), run.key, timeout_s=timeout_s)
        # 404: a build without it is no sick one.
        if answer.status != 404:
            return HEALTH_GENERATE, answer
    return Question.HEALTH, probe.get(run.url(Question.HEALTH), run.key, timeout_s=timeout_s)


def _router_beat(run: Run, at: float, beside: str) -> Beat:
    """A router without workers says 503 and is well: it takes them in when they are back."""
    answer = probe.get(run.url(Question.READINESS), run.key, timeout_s=health.TIMEOUTS_S[Question.READINESS])
    said = health.complaint(Question.READINESS, answer)
    if answer.status == 503:
        return Beat(at, "", beside=beside, degraded=said)
    return Beat(at, said, silent=answer.status is None, beside=beside)
