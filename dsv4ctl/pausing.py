"""pause and resume: take a host out of its restarts for a time, and give it back."""

from dsv4ctl import brake, execute, installed, maintenance, observe, plan, turn
from dsv4ctl.host import Host
from dsv4ctl.model import Pause
from dsv4ctl.problems import Busy, Problem
from dsv4ctl.steps import Step
from dsv4ctl.store import Claim
from dsv4ctl.store.audit import person
from dsv4ctl.telling import Tell, Warns


def pause(host: Host, tell: Tell, for_s: float, claim: Claim, *, replace: bool = False) -> Pause:
    """From now on nothing is started again and nothing is ended for its health, for `for_s` seconds, over reboots.

    `replace`: takes the place of a pause that lasts, which else raises Busy, as does somebody who changes the host.
    Raises Problem for what cannot be kept.
    """
    host.require_live()
    reason = " ".join(claim.reason.split())
    if not reason:
        raise Problem(
            "cannot pause without a reason: whoever finds the host paused must know why", hint="--reason TEXT"
        )
    with turn.taken(host, claim, tell):
        now = host.clock.wall()
        if not replace:
            require_none(maintenance.lasting(host.paths.pause, now), now)
        wanted = Pause(who=person(), reason=reason, since=now, until=now + for_s)
        maintenance.keep_pause(host.paths, wanted)
    return wanted


def require_none(lasting: Pause | None, now: float) -> None:
    """Raise Busy for a pause that lasts: who, why, until when, and what to type."""
    if why := brake.objection(lasting, now):
        hint = "dsv4ctl pause --replace …   puts the new one in its place; dsv4ctl resume   ends it"
        raise Busy(why, hint=hint, details={"pause": lasting})


def resume(host: Host, tell: Tell, claim: Claim) -> tuple[Step, ...]:
    """End the pause, let the brake go, and start what they have kept down, until it is proved. Returns the steps.

    Raises the Problem of the first step that fails.
    """
    host.require_live()
    with turn.taken(host, claim, tell) as taken:
        if why := maintenance.unreadable(host.paths.pause):
            tell(Warns(f"{why}; it is removed"))
            maintenance.end_pause(host.paths)
        steps = plan.resume(installed.instances(host), observe.host(host, None))
        execute.carry_out(host, steps, taken.tell)
    return steps
