"""From the engine's first breath to READY=1: follow its load, keep its port, have it proved."""

from dataclasses import replace
from functools import partial
from typing import assert_never

from dsv4ctl import sockets
from dsv4ctl.engine import log
from dsv4ctl.engine.log import Event
from dsv4ctl.engine.trouble_kinds import Kind
from dsv4ctl.health import Finding, Verdict
from dsv4ctl.model import Capacity, Phase, Role, SuperviseExit
from dsv4ctl.problems import Problem
from dsv4ctl.starts import PastStart
from dsv4ctl.supervise import look, mending, peers, progress, words
from dsv4ctl.supervise.engine import End
from dsv4ctl.supervise.errands import Brought
from dsv4ctl.supervise.hearing import Said
from dsv4ctl.supervise.inbox import Happening, Quiet, Told
from dsv4ctl.supervise.look import Looked, Who
from dsv4ctl.supervise.mending import Mending, Parted
from dsv4ctl.supervise.outcome import SERVING_GRACE_S, Failed, Over, Ready
from dsv4ctl.supervise.peers import Seen, Stand
from dsv4ctl.supervise.proving import Asking, Proving, pace_s
from dsv4ctl.supervise.run import Run, asked
from dsv4ctl.supervise.territory import owns

# An impostor must be named within 2 s, ending included.
LOOK_EVERY_S = 0.4
# How long ending a stalled or failed engine may take: its grace, and the last KILL. systemd is asked for this much more
# than our own limits, so that our verdict, which has a reason, comes before its timeout, which has none.
ENDING_S = 100.0
OTHER_PORT = "end it, or deploy on another port"


class Loading:
    """A start on its way. Each happening moves it on or ends it."""

    def __init__(self, run: Run, past: tuple[PastStart, ...]) -> None:
        now = run.clock.now()
        self.progress = progress.begun(now)
        self._run, self._past = run, past
        self._program = run.instance.role.program
        self._proving = Proving(run)
        self._capacity: Capacity | None = None
        self._looked = Looked(Who.NOBODY)
        self._missing: tuple[Seen, ...] = ()
        self._parted: Parted | None = None
        self._look_at = self._ask_at = self._ours_since = now
        self._extended_for = float("-inf")

    def until_over(self) -> Ready | Over:
        """Go on until the engine is proved, has failed, or somebody wants to stop."""
        while True:
            self._look_at_workers()
            self._tell()
            if failed := self._overdue():
                return failed
            self._send_errands()
            if outcome := self._take(self._run.inbox.next(self._patience_s())):
                return outcome

    # ---- what is due ---------------------------------------------------------------------------------------------

    def _look_at_workers(self) -> None:
        """A router has nothing to make progress with while a worker that it was started for is away again."""
        if self._run.instance.role is Role.ROUTER:
            seen, together = self._run.peers.look(), self._run.instance.together
            self._missing, halves = peers.awaited(seen, {}, 1.0), mending.of(seen)
            known = Mending(met=self._run.voice.state.met)
            self._parted = mending.parted(known, halves) if halves and together else None
            if any(one.stand is Stand.COMING for one in self._missing):
                self.progress = progress.held_up(self.progress, self._run.clock.now())

    def _tell(self) -> None:
        run, here, now = self._run, self.progress, self._run.clock.now()
        left_s = progress.left_s(here, self._past, run.instance.digest, now)
        line = words.loading(here, run.instance.role, left_s)
        if self._looked.who is Who.RELATIVE:
            line += (
                f"; port {run.instance.port} is held by {self._looked.words}, not by the {self._program}'s main process"
            )
        line += "".join(f"; {one.words}" for one in self._missing)
        if paused := run.lull.words():
            line += f"; {paused}"
        state = replace(run.voice.state, done=here.done, total=here.total, left_s=left_s, capacity=self._capacity)
        run.voice.tell(replace(state, phase=here.phase, words=line))
        if (moved_at := run.lull.began_or(here.moved_at)) > self._extended_for:
            self._extended_for = moved_at
            run.voice.extend(max(run.instance.limits.stall_s, run.instance.limits.proof_s) + ENDING_S)

    def _overdue(self) -> Failed | None:
        """Stalled, or not proved in time. While we prove, the engine has nothing to make progress with.

        Within a pause neither limit runs, and after it they run anew.
        """
        now, limits, lull = self._run.clock.now(), self._run.instance.limits, self._run.lull
        if self._parted and not lull.words():
            # Already now it would bring them together. It is tried again, and has the other half restarted first.
            line = f"{self._parted.words} before the router was proved: {self._run.instance.together}"
            return Failed(exit=SuperviseExit.PEER, words=line, advice=self._run.logs, grace_s=SERVING_GRACE_S)
        if (since := self._proving.since) is not None:
            late = now - lull.began_or(since) >= limits.proof_s
            found = self._proving.finding
            why = f"not proved within {limits.proof_s} s: {found.words}"
            return self._unproved(replace(found, words=why)) if late else None
        waiting = replace(self.progress, moved_at=lull.began_or(self.progress.moved_at))
        if progress.stalled_for(waiting, now) < limits.stall_s:
            return None
        said = f" ({self._proving.finding.words})" if self._looked.ours else ""
        line = f"stalled in {words.place(self.progress)} for {limits.stall_s} s{said}"
        return Failed(exit=SuperviseExit.STALLED, words=line, advice=self._run.logs)

    def _send_errands(self) -> None:
        run, now = self._run, self._run.clock.now()
        look_at_port = partial(look.at_port, run.instance, run.territory)
        if now >= self._look_at and run.inbox.send("look", look_at_port):
            self._look_at = now + LOOK_EVERY_S
        if not self._looked.ours or now < self._ask_at:
            return
        question = self._proving.finding.ask
        # Nothing left to ask: every answer was right, and counts if our own unit still listens there.
        if run.inbox.send("ask", look_at_port if question is None else self._proving.errand(question)):
            self._ask_at = now + pace_s(question, now - self._ours_since)

    def _patience_s(self) -> float:
        """Seconds until something is due; what an errand brings wakes us before."""
        inbox, now = self._run.inbox, self._run.clock.now()
        asks = self._looked.ours and not inbox.waits_for("ask")
        due = [at for at, is_due in ((self._look_at, not inbox.waits_for("look")), (self._ask_at, asks)) if is_due]
        return max(0.0, min(*due, now + LOOK_EVERY_S) - now) if due else LOOK_EVERY_S

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
                self._proving.heard_ready()
                self._look_at = self._ask_at = now
            case log.TroubleSeen(trouble) if trouble.kind is Kind.HTTP_PORT and self._names_port(trouble.text):
                # It has lost, and may still wait for minutes: its warm-up asks the port, whoever answers there.
                return self._not_bound()
            case _:
                pass
        return None

    def _see(self, looked: Looked) -> Failed | None:
        if looked.who is Who.IMPOSTOR:
            line = f"port {self._run.instance.port} is taken while the {self._program} loads: {looked.words}"
            return Failed(exit=SuperviseExit.PORT, words=line, advice=OTHER_PORT, grace_s=0.0)
        if looked.ours and not self._looked.ours:
            self._ask_at = self._ours_since = self._run.clock.now()
        if looked.who is Who.ENGINE:
            self._enter(Phase.WARMUP)
        if looked.who is not Who.UNKNOWN:
            self._looked = looked
        return None

    def _judge(self, asking: Asking) -> Failed | None:
        finding = self._proving.take(asking)
        if asking.answer.status is not None:
            self._enter(Phase.WARMUP)
        if finding.verdict is Verdict.FAILED:
            return self._unproved(finding)
        if finding.ask is not asking.question:
            self._ask_at = self._run.clock.now()
        if self._proving.since is not None:
            self._enter(Phase.PROOF)
        return None

    def _ready(self, looked: Looked) -> Ready | None:
        if not looked.ours:
            return None
        capacity = self._run.hearing.with_memory(self._capacity or Capacity(max_total_tokens=0))
        return Ready(replace(capacity, context_length=self._proving.context_length))

    def _died(self, end: End) -> Failed:
        cause, advice = self._run.hearing.cause()
        if end.status == 2:
            line = f"the {self._program} refuses its arguments: {self._run.hearing.refusal()}"
            return Failed(exit=SuperviseExit.USAGE, words=line, advice=advice or self._run.logs)
        if end.status == 3:
            return self._not_bound()
        line = f"the {self._program} {end.words} in {words.place(self.progress)}: {cause}"
        return Failed(exit=SuperviseExit.DIED_LOADING, words=line, advice=advice or self._run.logs)

    def _not_bound(self) -> Failed:
        holder, port = self._holder(), self._run.instance.port
        line = f"the {self._program} could not bind port {port}: {holder or self._run.hearing.cause()[0]}"
        advice = "deploy on another port" if holder.startswith("its own") else OTHER_PORT
        return Failed(exit=SuperviseExit.PORT, words=line, advice=advice)

    def _unproved(self, found: Finding) -> Failed:
        if self._missing:
            # No fault of the router's: it is tried again, and waits for them then.
            line = f"a worker went away before the router was proved ({self._missing[0].words})"
            advice = f"dsv4ctl logs {self._missing[0].peer.name}"
            return Failed(exit=SuperviseExit.PEER, words=line, advice=advice, grace_s=SERVING_GRACE_S)
        line = (
            f"cannot prove {self._run.instance.served_model_name} on {words.address(self._run.instance)}: {found.words}"
        )
        advice = found.advice or self._run.logs
        return Failed(exit=SuperviseExit.PROOF, words=line, advice=advice, grace_s=SERVING_GRACE_S)

    def _holder(self) -> str:
        if self._looked.who is Who.RELATIVE:
            return f"its own {self._looked.words} was given that port"
        run, port = self._run, self._run.instance.port
        try:
            seen = sockets.view(run.instance.host, port)
            keeping = seen.holders or sockets.bound_on(port)
        except Problem as problem:
            return str(problem)
        is_own = bool(seen.blocked and keeping) and all(owns(run.territory, one) for one in keeping)
        return f"its own {seen.blocked}" if is_own else seen.blocked

    def _names_port(self, text: str) -> bool:
        return f", {self._run.instance.port}" in text

    def _enter(self, phase: Phase) -> None:
        self.progress = progress.entered(self.progress, phase, self._run.clock.now())
