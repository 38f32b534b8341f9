"""From the decision to stop to the last process: drain, TERM to the engine's main process, KILL, and a last look."""

import math
import signal
from dataclasses import replace
from functools import partial

from dsv4ctl import pidfd, probe, sockets
from dsv4ctl.engine import bodies
from dsv4ctl.model import Identity, Phase, Role, RunState, SuperviseExit
from dsv4ctl.problems import Problem
from dsv4ctl.supervise import drain, look, territory, words
from dsv4ctl.supervise.drain import Drain, Load
from dsv4ctl.supervise.engine import End, signal_name
from dsv4ctl.supervise.errands import Brought
from dsv4ctl.supervise.inbox import Told
from dsv4ctl.supervise.outcome import LOADING_GRACE_S, Asked, Failed
from dsv4ctl.supervise.peers import Stand
from dsv4ctl.supervise.run import Run, asked
from dsv4ctl.supervise.watch import LOADS

# GPU memory of killed processes is unmapped before they are gone: tens of seconds were seen on loaded hosts.
SWEEP_S = 60.0
MARGIN_S = 15.0
POLL_EVERY_S = 0.5
POLL_TIMEOUT_S = 3.0
ABORT_TIMEOUT_S = 10.0


class Ending:
    """An engine that is being ended. `end` is how its main process ended, None while it has not."""

    def __init__(self, run: Run, end: End | None) -> None:
        self._run = run
        self._end = end

    # ---- the three ways to get here --------------------------------------------------------------------------------

    def stop_loading(self, asked_: Asked) -> SuperviseExit:
        """Stop before READY=1. Nothing is served yet, so nothing is waited for.

        TERM alone would leave orphans: SGLang's children ask to die with their parent only after their imports.
        """
        was = self._run.voice.state.words
        self._run.say(Phase.STOPPING, f"stopping ({asked_.signal}) while {was}", "STOPPING=1")
        self._ended_within(LOADING_GRACE_S)
        return self._finish()

    def stop_serving(self, asked_: Asked) -> SuperviseExit:
        """Stop a serving engine: it drains, then ends by itself, and is made to at its limits.

        After SIGTERM an engine says that it is not ready, and goes on taking requests. Behind a router it is held back:
        our state says that we drain, at which the router's supervisor has the router send elsewhere.
        """
        now, instance = self._run.clock.now(), self._run.instance
        holds = bool(instance.peers) and instance.role is not Role.ROUTER
        plan = drain.begun(instance.limits, now, hurried=asked_.hurried, holds=holds)
        self._run.say(Phase.DRAINING, words.draining(None, plan.abort_at - now), "STOPPING=1")
        if not plan.holds:
            self._signal(signal.SIGTERM)
        self._drain(drain.routed(plan, now, sends=self._is_sent_to()))
        return self._finish(asked_.exit, f", as {asked_.signal} asked for" if asked_.exit else "")

    def fail(self, failed: Failed) -> SuperviseExit:
        """End an engine that failed, or what it left behind."""
        if failed.drains:
            now = self._run.clock.now()
            self._drain(drain.begun(self._run.instance.limits, now, hurried=False))
        # Within a pause we do not stop: systemd would end a supervisor that said so before the pause is over.
        serving = self._run.voice.state.phase in (Phase.READY, Phase.DRAINING) and not self._run.lull.again()
        state = replace(self._run.voice.state, phase=Phase.FAILED, words=failed.words, advice=failed.advice)
        self._run.voice.tell(replace(state, exit=int(failed.exit)), *(("STOPPING=1",) if serving else ()))
        self._run.voice.extend(failed.grace_s + SWEEP_S + MARGIN_S)
        self._ended_within(failed.grace_s)
        if left := self._sweep():
            return self._left_over(left, f"{failed.words}; ")
        return failed.exit

    # ---- drain -----------------------------------------------------------------------------------------------------

    def _drain(self, plan: Drain) -> None:
        left: int | None = None
        poll_at, aborted = self._run.clock.now(), False
        while self._end is None and (now := self._run.clock.now()) < plan.kill_at:
            plan = self._held(plan, now) if plan.holds else plan
            self._run.say(Phase.DRAINING, self._draining(plan, left, now))
            self._run.voice.extend(plan.kill_at - now + SWEEP_S + MARGIN_S)
            if now >= poll_at and self._run.inbox.send("loads", partial(requests_left, self._run)):
                poll_at = now + POLL_EVERY_S
            if now >= plan.abort_at and not aborted:
                aborted = self._run.inbox.send("abort", partial(abort_all, self._run))
            happening = self._run.inbox.next(min(POLL_EVERY_S, plan.kill_at - now))
            match happening:
                case End():
                    self._end = happening
                case Brought(found=Load() as load):
                    left, plan = load.left, drain.carries(plan, load, self._run.clock.now())
                case Told() if asked(happening.number, self._run.journal, self._run.voice):
                    plan = drain.hurry(plan, self._run.clock.now())
                case _:
                    pass

    def _held(self, plan: Drain, now: float) -> Drain:
        """Send the SIGTERM that was held back, once it is due."""
        plan = drain.routed(plan, now, sends=self._is_sent_to())
        if not drain.is_due(plan, now):
            return plan
        self._signal(signal.SIGTERM)
        return drain.termed(plan, now)

    def _is_sent_to(self) -> bool:
        """Whether a router may still send requests to this engine."""
        routers = [one for one in self._run.peers.look() if one.peer.role is Role.ROUTER and one.state is not None]
        name = self._run.instance.name
        return any(r.stand in (Stand.COMING, Stand.READY) and r.state and name not in r.state.without for r in routers)

    def _draining(self, plan: Drain, left: int | None, now: float) -> str:
        if now < plan.abort_at and (plan.idle_since is None or plan.holds):
            return words.draining(left, plan.abort_at - now)
        what = "no request left" if plan.idle_since is not None else "the drain limit is over, requests were aborted"
        return f"stopping: {what}; the {self._run.instance.role.program} has {math.ceil(plan.kill_at - now)} s to end"

    # ---- the end ---------------------------------------------------------------------------------------------------

    def _finish(self, exit_: SuperviseExit = SuperviseExit.OK, why: str = "") -> SuperviseExit:
        how = self._end.words if self._end else "was killed at its limit"
        self._run.voice.extend(SWEEP_S + MARGIN_S)
        if left := self._sweep():
            return self._left_over(left, "")
        line = f"stopped: the {self._run.instance.role.program} {how}{why}"
        state = replace(self._run.voice.state, phase=Phase.STOPPED, words=line, exit=int(exit_))
        self._run.voice.tell(state)
        return exit_

    def _ended_within(self, grace_s: float) -> None:
        """TERM to the engine's main process, and a wait for its end."""
        if self._end is None and grace_s:
            self._signal(signal.SIGTERM)
        end_at = self._run.clock.now() + grace_s
        while self._end is None and (left_s := end_at - self._run.clock.now()) > 0:
            happening = self._run.inbox.next(left_s)
            if isinstance(happening, End):
                self._end = happening

    def _signal(self, number: signal.Signals) -> None:
        # Only the main process: schedulers have no handler for TERM, and their death is a crash in its eyes.
        try:
            pidfd.signal(self._run.territory.engine, number)
        except Problem as problem:
            self._run.journal.note(f"cannot send {signal_name(number)}: {problem}")

    def _sweep(self) -> tuple[Identity, ...]:
        """KILL whatever is left of ours, looking again until nobody is; returns those that outlived the limit."""
        began, said = self._run.clock.now(), self._run.voice.state
        while left := territory.members(self._run.territory):
            waited = self._run.clock.now() - began
            if waited >= SWEEP_S:
                return left
            if waited >= 1:
                self._run.voice.tell(replace(said, words=_not_gone(said, left)))
            for process in left:
                try:
                    pidfd.signal(process, signal.SIGKILL)
                except Problem as problem:
                    self._run.journal.note(str(problem))
            self._run.inbox.next(0.02 if waited < 1 else 0.25)
        self._run.voice.tell(said)
        return ()

    def _left_over(self, left: tuple[Identity, ...], before: str) -> SuperviseExit:
        shown = ", ".join(look.one(process) for process in left[:5])
        line = f"{before}left over after KILL and {SWEEP_S:g} s: {shown}"
        advice = "look at it with `ps -o pid,stat,wchan,args -p " + ",".join(str(p.pid) for p in left) + "`"
        state = replace(self._run.voice.state, phase=Phase.FAILED, words=line, advice=advice)
        self._run.voice.tell(replace(state, exit=int(SuperviseExit.LEFT_OVER)))
        return SuperviseExit.LEFT_OVER


def requests_left(run: Run) -> Load:
    """How many requests the engine carries, or with how many clients a router is still connected.

    A router that stops lets go of idle connections, and its own count of requests never goes down for a client that
    gave up (seen with 0.3.2).
    """
    if run.instance.role is Role.ROUTER:
        try:
            return Load(sockets.connections(run.instance.port))
        except Problem:
            return Load(None)
    answer = probe.get(run.url(LOADS), run.key, timeout_s=POLL_TIMEOUT_S)
    return Load(bodies.requests_left(answer.body) if answer.status == 200 else None, tells=answer.status != 404)


def abort_all(run: Run) -> None:
    """Have the engine abort every request; what it answers changes nothing, for its end is waited for next."""
    probe.post(run.url("/abort_request"), {"abort_all": True}, run.key, timeout_s=ABORT_TIMEOUT_S)


def _not_gone(said: RunState, left: tuple[Identity, ...]) -> str:
    """What is said while killed processes do not go: one in a driver call goes when the driver lets it."""
    before = said.words if said.phase is Phase.FAILED else "stopping"
    return f"{before}; killed, and not gone yet: {', '.join(map(look.one, left[:5]))}"
