"""Whether the last attempt at a release came to its end: from kept releases, the lock and the audit trail."""

from contextlib import suppress

from dsv4ctl import generations, installed
from dsv4ctl.findings import Work
from dsv4ctl.generations import Kept, Outcome
from dsv4ctl.host import Host
from dsv4ctl.problems import Problem
from dsv4ctl.store import Face, lock
from dsv4ctl.store.unnamed import Unnamed


def words(host: Host, *, is_down: bool) -> str:
    """What is amiss with the newest release and what to type; '' when nothing is, or somebody is at work now.

    1. it has no verdict: its attempt was cut short, wherever that left the host
    2. it failed, is what is installed, and not all of it is up (`is_down`)
    A teardown after that makes both good: what is down then was put down.
    """
    if _amiss(host, is_down=is_down) is None:
        return ""
    if lock.holder(host.paths.lock, host.clock) is not None:
        return ""
    left = lock.face(host.paths.lock)
    # Read again, for whoever has let go of the lock meanwhile had written the verdict before.
    newest = _amiss(host, is_down=is_down)
    killed = left is not None and left.what in generations.ATTEMPTS
    if newest is None or (not killed and _is_taken_down(host, newest)):
        return ""
    if newest.verdict is not None:
        return f"release {newest.number} failed, and not all of it is up: dsv4ctl history {newest.number}   says why"
    return f"release {newest.number} was cut short: {_again(newest)}   goes on with it"


def _again(newest: Kept) -> str:
    """The command that goes on with an attempt: options are not remembered, so they must be typed again."""
    made = newest.generation
    typed = made.command if made.command.startswith("dsv4ctl deploy ") else "dsv4ctl deploy"
    return f"dsv4ctl rollback {made.restores}" if made.restores else typed


def at_work(host: Host) -> Work | None:
    """Who changes this host now, be it somebody who does not say who he is; None: nobody does."""
    match lock.holder(host.paths.lock, host.clock):
        case Face() as face:
            return Work(
                what=face.what,
                who=face.who,
                reason=face.reason,
                since=face.since,
                pid=face.process.pid,
                command=face.command,
                words=f"a {face.what} is at work: {face.words()}",
            )
        case Unnamed() as one:
            return Work(who=one.user, pid=one.pid, command=one.command, words=one.words())
    return None


def unreadable(host: Host) -> str:
    """That the newest release cannot be read, so that nobody knows what came of it; '' when it can."""
    numbers = host.store.releases.numbers()
    if not numbers or _newest(host) is not None:
        return ""
    return f"release {numbers[-1]} cannot be read, and what came of it is not known"


def _amiss(host: Host, *, is_down: bool) -> Kept | None:
    """The newest release, if it has no verdict, or one that explains why something is down."""
    newest = _newest(host)
    if newest is None or newest.verdict is None:
        return newest
    if newest.verdict.outcome is not Outcome.FAILED or not is_down:
        return None
    here = installed.release(host)
    return newest if here is not None and here.number == newest.number else None


def _newest(host: Host) -> Kept | None:
    numbers = host.store.releases.numbers()
    with suppress(Problem):
        return host.store.releases.read(numbers[-1]) if numbers else None
    return None


def _is_taken_down(host: Host, newest: Kept) -> bool:
    with suppress(Problem):
        return generations.is_taken_down(newest.generation, host.store.audit.lines())
    return False
