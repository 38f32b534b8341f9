"""From the engine's first breath to READY=1: follow its load, keep its port, prove it."""

from dataclasses import dataclass, replace
from functools import partial
from typing import assert_never

from dsv4ctl import health, probe, sockets
from dsv4ctl.engine import log
from dsv4ctl.engine.log import Event
from dsv4ctl.engine.trouble_kinds import Kind
from dsv4ctl.health import Answers, Question, Verdict, Want
from dsv4ctl.model import Capacity, Phase, SuperviseExit
from dsv4ctl.probe import Answer
from dsv4ctl.problems import Problem
from dsv4ctl.supervise import look, progress, words
from dsv4ctl.supervise.engine import End
from dsv4ctl.supervise.errands import Brought
from dsv4ctl.supervise.hearing import Said
from dsv4ctl.supervise.inbox import Happening, Quiet, Told
from dsv4ctl.supervise.look import Looked, Who
from dsv4ctl.supervise.outcome import SERVING_GRACE_S, Failed, Over, Ready
from dsv4ctl.supervise.progress import PastStart
from dsv4ctl.supervise.run import Run, asked

# An impostor must be named within 2 s, ending included.
LOOK_EVERY_S = 0.4
# From the engine's first 200 to READY=1 at most this much is lost by waiting. A warm-up that compiles kernels takes
# minutes, and each question is a line in the engine's log: after a while its own ready line is waited for, at which it
# is asked at once, and the questions in between are only for builds and log levels without that line.
ASK_READY_EVERY_S = 0.04
ASK_READY_OFTEN_FOR_S = 5.0
ASK_AGAIN_S = 0.25
# How long ending a stalled or failed engine may take: its grace, and the last KILL. systemd is asked for this much more
# than our own limits, so that our verdict, which has a reason, comes before its timeout, which has none.
ENDING_S = 100.0


@dataclass(frozen=True, slots=True)
class Asking:
    """One question's answer, as its errand brings it."""

    question: Question
    answer: Answer


class Loading:
    """A start on its way. Each happening moves it on or ends it."""

    def __init__(self, run: Run, past: tuple[PastStart, ...]) -> None:
        now = run.clock.now()
        self.progress = progress.begun(now)
        self._run, self._past = run, past
        self._answers = Answers()
        self._capacity: Capacity | None = None
        self._looked = Looked(Who.NOBODY)
        self._look_at = self._ask_at = self._ours_since = now
        self._proving_since: float | None = None
        self._extended_for = float("-inf")

    def until_over(self) -> Ready | Over:
        """Go on until the engine is proved, has failed, or somebody wants to stop."""
        while True:
            self._tell()
            if failed := self._overdue():
                return failed
            self._send_errands()
            if outcome := self._take(self._run.inbox.next(self._patience_s())):
                return outcome

    # ---- what is due ---------------------------------------------------------------------------------------------

    def _tell(self) -> None:
        run, now = self._run, self._run.clock.now()
        left_s = progress.left_s(self.progress, self._past, run.instance.digest, now)
        line = words.loading(self.progress, left_s)
        if self._looked.who is Who.RELATIVE:
            line += f"; port {run.instance.port} is held by {self._looked.words}, not by the engine's main process"
        here = self.progress
        state = replace(run.voice.state, done=here.done, total=here.total, left_s=left_s, capacity=self._capacity)
        run.voice.tell(replace(state, phase=here.phase, words=line))
        if here.moved_at > self._extended_for:
            self._extended_for = here.moved_at
            limits = run.instance.limits
            run.voice.extend(max(limits.stall_s, limits.proof_s) + ENDING_S)

    def _overdue(self) -> Failed | None:
        """Stalled, or not proved in time. While we prove, the engine has nothing to make progress with."""
        now, limits, here = self._run.clock.now(), self._run.instance.limits, self.progress
        if self._proving_since is not None:
            late = now - self._proving_since >= limits.proof_s
            why = health.judge(self._want(), self._answers).words
            return self._unproved(f"not proved within {limits.proof_s} s: {why}") if late else None
        if progress.stalled_for(here, now) < limits.stall_s:
            return None
        line = f"stalled in {words.place(here)} for {limits.stall_s} s{self._standing()}"
        return Failed(exit=SuperviseExit.STALLED, words=line, advice=f"dsv4ctl logs {self._run.instance.name}")

    def _send_errands(self) -> None:
        run, now = self._run, self._run.clock.now()
        if now >= self._look_at and run.inbox.send("look", partial(look.at_port, run.instance, run.territory)):
            self._look_at = now + LOOK_EVERY_S
        if not self._looked.ours or now < self._ask_at:
            return
        question = health.judge(self._want(), self._answers).ask
        errand = partial(look.at_port, run.instance, run.territory) if question is None else self._errand(question)
        if run.inbox.send("ask", errand):
            often = question is Question.READY and now - self._ours_since < ASK_READY_OFTEN_FOR_S
            self._ask_at = now + (ASK_READY_EVERY_S if often else ASK_AGAIN_S)

    def _patience_s(self) -> float:
        """Seconds until something is due; what an errand brings wakes us before."""
        asks = self._looked.ours and not self._run.inbox.waits_for("ask")
        due = min(self._look_at, self._ask_at) if asks else self._look_at
        return min(max(due - self._run.clock.now(), 0.01), LOOK_EVERY_S)

    # ---- what happened -------------------------------------------------------------------------------------------

    def _take(self, happening: Happening) -> Ready | Over | None:
        match happening:
            case Said():
                return self._hear(happening.event)
            case Brought(found=Asking() as asking):
                return self._judge(asking)
            case Brought(name="ask", found=Looked() as looked):
                return self._see(looked) or self._ready(looked)
            case Brought(found=Looked() as looked):
                return self._see(looked)
            case Told():
                return asked(happening.number, self._run.journal, self._run.voice)
            case End():
                return self._died(happening)
            case Brought() | Quiet():
                return None
            case _:
                assert_never(happening)
        return None

    def _hear(self, event: Event) -> Failed | None:
        now = self._run.clock.now()
        match event:
            case log.PhaseSeen(phase) if phase in words.DOING:
                self._enter(phase)
                # The sign of the bound port; who has bound it is looked at before anybody is asked.
                self._look_at = now if phase is Phase.WARMUP else self._look_at
            case log.Progress(phase, done, total):
                self.progress = progress.counted(self.progress, phase, (done, total), now)
            case log.CapacitySeen(capacity):
                self._capacity = capacity
            case log.ReadyLine():
                self._answers = replace(self._answers, ready_line=True)
                self._look_at = self._ask_at = now
            case log.TroubleSeen(trouble) if trouble.kind is Kind.HTTP_PORT:
                # It has lost, and may still wait for minutes: its warm-up asks the port, whoever answers there.
                return self._not_bound()
            case _:
                pass
        return None

    def _see(self, looked: Looked) -> Failed | None:
        if looked.who is Who.IMPOSTOR:
            line = f"port {self._run.instance.port} is taken while the engine loads: {looked.words}"
            return Failed(exit=SuperviseExit.PORT, words=line, advice="end it, or deploy on another port", grace_s=0.0)
        if looked.ours and not self._looked.ours:
            self._ask_at = self._ours_since = self._run.clock.now()
        if looked.who is Who.ENGINE:
            self._enter(Phase.WARMUP)
        if looked.who is not Who.UNKNOWN:
            self._looked = looked
        return None

    def _judge(self, asking: Asking) -> Failed | None:
        before = health.judge(self._want(), self._answers).ask
        self._answers = _answered(self._answers, asking)
        finding, now = health.judge(self._want(), self._answers), self._run.clock.now()
        if asking.answer.status is not None:
            self._enter(Phase.WARMUP)
        if finding.verdict is Verdict.FAILED:
            return self._unproved(finding.words)
        if finding.ask is not before:
            self._ask_at = now
        if finding.proving and self._proving_since is None:
            self._proving_since = now
            self._enter(Phase.PROOF)
        return None

    def _ready(self, looked: Looked) -> Ready | None:
        """Every answer was right; it counts only if our own unit still listens there now."""
        if not looked.ours:
            return None
        model = self._run.instance.served_model_name
        body = self._answers.models.body if self._answers.models else b""
        context = health.served_models(body).get(model)
        return Ready(replace(self._capacity or Capacity(max_total_tokens=0), context_length=context))

    def _died(self, end: End) -> Failed:
        name, where = self._run.instance.name, words.place(self.progress)
        cause, advice = self._run.hearing.cause()
        if end.status == 2:
            line = f"the engine refuses its arguments: {self._run.hearing.refusal()}"
            return Failed(exit=SuperviseExit.USAGE, words=line, advice=advice or f"dsv4ctl logs {name}")
        if end.status == 3:
            return self._not_bound()
        line = f"the engine {end.words} in {where}: {cause}"
        return Failed(exit=SuperviseExit.DIED_LOADING, words=line, advice=advice or f"dsv4ctl logs {name}")

    def _not_bound(self) -> Failed:
        holder = self._holder()
        line = f"the engine could not bind port {self._run.instance.port}: {holder or self._run.hearing.cause()[0]}"
        advice = "deploy on another port" if holder.startswith("its own") else "end it, or deploy on another port"
        return Failed(exit=SuperviseExit.PORT, words=line, advice=advice)

    # ---- helpers -------------------------------------------------------------------------------------------------

    def _enter(self, phase: Phase) -> None:
        self.progress = progress.entered(self.progress, phase, self._run.clock.now())

    def _want(self) -> Want:
        instance = self._run.instance
        keyed = bool(self._run.key)
        return Want(model=instance.served_model_name, context_length=instance.context_length, keyed=keyed)

    def _errand(self, question: Question) -> partial[Asking]:
        left_s = self._run.instance.limits.proof_s
        if self._proving_since is not None:
            left_s -= round(self._run.clock.now() - self._proving_since)
        # Half of what is left: one request that an engine has lost must not take the chance from the next.
        timeout_s = health.TIMEOUTS_S.get(question, max(5.0, left_s / 2))
        return partial(ask, self._run, question, timeout_s)

    def _unproved(self, why: str) -> Failed:
        line = f"cannot prove {self._run.instance.served_model_name} on {words.address(self._run.instance)}: {why}"
        advice = f"dsv4ctl logs {self._run.instance.name}"
        return Failed(exit=SuperviseExit.PROOF, words=line, advice=advice, grace_s=SERVING_GRACE_S)

    def _standing(self) -> str:
        """What a stalled engine that has its port was last asked."""
        return f" ({health.judge(self._want(), self._answers).words})" if self._looked.ours else ""

    def _holder(self) -> str:
        if self._looked.who is Who.RELATIVE:
            return f"its own {self._looked.words} was given that port"
        try:
            why = sockets.blocked(self._run.instance.host, self._run.instance.port)
        except Problem as problem:
            return str(problem)
        return f"its own {why}" if f" of {self._run.instance.unit} " in why else why


def ask(run: Run, question: Question, timeout_s: float) -> Asking:
    """Ask the engine one question, with the key."""
    if question is Question.GENERATION:
        request = health.generation_request(run.instance.served_model_name)
        return Asking(question, probe.post(run.url(question), request, run.key, timeout_s=timeout_s))
    return Asking(question, probe.get(run.url(question), run.key, timeout_s=timeout_s))


def _answered(answers: Answers, asking: Asking) -> Answers:
    match asking.question:
        case Question.READY:
            return replace(answers, ready=asking.answer)
        case Question.HEALTH:
            return replace(answers, health=asking.answer)
        case Question.MODELS:
            return replace(answers, models=asking.answer)
        case Question.GENERATION:
            return replace(answers, generation=asking.answer)
        case _:
            assert_never(asking.question)
