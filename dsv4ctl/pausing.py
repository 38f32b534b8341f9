"""pause and resume: take a host out of its restarts for a time, and give it back."""

from dsv4ctl import execute, installed, maintenance, observe, plan, turn
from dsv4ctl.host import Host
from dsv4ctl.model import Pause
from dsv4ctl.problems import Problem
from dsv4ctl.steps import Step
from dsv4ctl.store import Claim
from dsv4ctl.store.audit import person
from dsv4ctl.telling import Tell


def pause(host: Host, tell: Tell, for_s: float, claim: Claim) -> Pause:
    """From now on nothing is started again and nothing is ended for its health, for `for_s` seconds, over reboots.

    Takes the place of a pause that lasts. Raises Busy while somebody changes the host, Problem for what cannot be kept.
    """
    host.require_live()
    reason = " ".join(claim.reason.split())
    if not reason:
        raise Problem(
            "cannot pause without a reason: whoever finds the host paused must know why", hint="--reason TEXT"
        )
    with turn.taken(host, claim, tell):
        now = host.clock.wall()
        wanted = Pause(who=person(), reason=reason, since=now, until=now + for_s)
        maintenance.keep_pause(host.paths, wanted)
    return wanted


def resume(host: Host, tell: Tell, claim: Claim) -> tuple[Step, ...]:
    """End the pause, let the brake go, and start what they have kept down, until it is proved. Returns the steps.

    Raises the Problem of the first step that fails.
    """
    host.require_live()
    with turn.taken(host, claim, tell) as taken:
        steps = plan.resume(installed.instances(host), observe.host(host, None))
        execute.carry_out(host, steps, taken.tell)
    return steps
