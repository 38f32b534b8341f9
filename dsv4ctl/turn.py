"""A turn at changing the host: nobody else changes it meanwhile, and the audit trail has one line of it afterwards."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from dsv4ctl import screen_steps
from dsv4ctl.host import Host
from dsv4ctl.problems import Problem, Status
from dsv4ctl.store import Claim, Face
from dsv4ctl.store.lock import command
from dsv4ctl.telling import Doing, Said, Tell, Waits, Warns


class Turn:
    """One command's turn: passes on what it tells, and keeps what it did and how it ended.

    `adopted`: the scopes into which it moved what somebody had started by hand.
    """

    def __init__(self, tell: Tell) -> None:
        self._pass_on = tell
        self.steps: list[str] = []
        self.adopted: list[str] = []
        self.status: int = Status.OK
        self.says = ""

    def tell(self, said: Said) -> None:
        """Tell it, and keep which step was begun."""
        if isinstance(said, Doing):
            self.steps.append(screen_steps.step_line(said.step))
        self._pass_on(said)

    def ends_as(self, problem: BaseException | None) -> None:
        """How it ended: with nothing, a Problem, an interruption, or a fault of ours."""
        if isinstance(problem, Problem):
            self.status, self.says = problem.status, str(problem)
        elif problem is not None:
            interrupted = isinstance(problem, KeyboardInterrupt)
            self.status, self.says = Status.INTERRUPTED if interrupted else Status.BUG, type(problem).__name__


@contextmanager
def taken(host: Host, claim: Claim, tell: Tell) -> Iterator[Turn]:
    """Hold the lock, and write down what came of it whatever that was.

    Raises Busy naming who is at it. A holder that was killed could write nothing: the next one does that for it.
    """
    began, turn = host.clock.now(), Turn(tell)
    try:
        with host.store.lock(replace(claim, says=lambda words: tell(Waits(words)))) as left:
            if left is not None:
                _bury(host, left, tell)
            yield turn
    except BaseException as problem:
        turn.ends_as(problem)
        raise
    finally:
        line = {"reason": claim.reason, "command": command(), "took_s": round(host.clock.now() - began, 3)}
        line |= {"adopted": turn.adopted} if turn.adopted else {}
        _write(host, claim.what, {**line, "steps": turn.steps, "status": int(turn.status), "says": turn.says}, tell)


def _bury(host: Host, left: Face, tell: Tell) -> None:
    """The line of a command that was killed."""
    line = {"who": left.who, "pid": left.process.pid, "reason": left.reason, "command": left.command}
    _write(host, left.what, {**line, "began": left.since, "status": None, "says": "it was killed at its work"}, tell)


def _write(host: Host, what: str, line: dict[str, object], tell: Tell) -> None:
    """A trail that cannot be written is said, and keeps nobody from a deploy or a teardown."""
    try:
        host.store.audit.write(what, line)
    except Problem as problem:
        tell(Warns(f"{problem}; this {what} is not in the audit trail"))
