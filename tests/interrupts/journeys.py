"""Commands that are cut off, and the way back from there: each journey begins and ends on a host that serves."""

from collections.abc import Callable
from dataclasses import dataclass

from dsv4ctl.problems import Status
from dsv4ctl.rehearsal.private import Machine
from tests.interrupts import promises
from tests.interrupts.cutting import Boundary, Cutter
from tests.interrupts.promises import DEPLOY, TEARDOWN

# Here the engine ends at its start: a deploy on this port returns to the release before.
BAD_PORT = 30009
BAD = (*DEPLOY[:-3], str(BAD_PORT), *DEPLOY[-2:])

# Two configs that take turns, so that every deploy has all to do.
CONFIGS = (("--max-running-requests", "7"), ("--max-running-requests", "8"))
PAUSE = ("dsv4ctl", "pause", "--for", "2h", "--reason")
RESUME, PURGED = ("dsv4ctl", "resume"), (*TEARDOWN, "--purge")
PURGE = "dsv4ctl teardown --purge >/dev/null && rm -rf /var/lib/dsv4ctl /run/dsv4ctl"


@dataclass
class Host:
    """The machine, which of the two configs it serves, and of the last command that was cut off how it ended, and
    whether it came to that act."""

    machine: Machine
    serves: int = 0
    status: int = 0
    reached: bool = False

    @property
    def other(self) -> tuple[str, ...]:
        """The config that it does not serve."""
        return CONFIGS[1 - self.serves]

    def deploy(self, which: int) -> list[str]:
        """Deploy one of the configs; why that did not reach its promise."""
        done = self.machine.run((*DEPLOY, *CONFIGS[which]), timeout_s=240, check=False)
        if done.status:
            return [f"deploy: {done.status} {done.stderr[-600:]}"]
        self.serves = which
        return promises.unserved(self.machine, *CONFIGS[which])

    def must_deploy(self, which: int) -> None:
        """The same for a host that nothing has happened to."""
        wrong = self.deploy(which)
        assert not wrong, wrong

    def cut(self, where: Boundary, how: str, *words: str) -> list[str]:
        """Cut a command off. One that is refused something says so in words; a fault of its own is one."""
        done, self.reached = Cutter(self.machine).cut(where, how, *words)
        self.status = done.status
        is_fault = done.status == Status.BUG or "Traceback" in done.stderr
        return [f"a fault of dsv4ctl itself: {done.stderr[-600:]}"] if is_fault else []

    def purge(self) -> None:
        """Take everything away."""
        self.machine.run(("sh", "-c", PURGE), timeout_s=120)


Journey = Callable[[Host, Boundary, str], list[str]]


def fresh(host: Host, where: Boundary, how: str) -> list[str]:
    """The first deploy of a host is cut off."""
    host.purge()
    said = host.cut(where, how, *DEPLOY, *CONFIGS[0])
    return [*said, *promises.untruths(host.machine, {}), *host.deploy(0)]


def change(host: Host, where: Boundary, how: str) -> list[str]:
    """A deploy that changes what is served is cut off."""
    kept = promises.releases(host.machine)
    said = host.cut(where, how, *DEPLOY, *host.other)
    return [*said, *promises.untruths(host.machine, newest(kept)), *host.deploy(1 - host.serves)]


def rollback(host: Host, where: Boundary, how: str) -> list[str]:
    """A rollback is cut off, and a deploy of what it was to bring back follows."""
    kept = promises.releases(host.machine)
    said = host.cut(where, how, "dsv4ctl", "rollback")
    return [*said, *promises.untruths(host.machine, newest(kept)), *host.deploy(1 - host.serves)]


def revert(host: Host, where: Boundary, how: str) -> list[str]:
    """A deploy of what cannot serve is cut off, and a deploy of what served before follows."""
    kept = promises.releases(host.machine)
    said = host.cut(where, how, *BAD)
    return [*said, *promises.untruths(host.machine, newest(kept)), *host.deploy(host.serves)]


def teardown(host: Host, where: Boundary, how: str) -> list[str]:
    """A teardown is cut off, and another one follows."""
    return _torn_down(host, where, how, TEARDOWN)


def purge(host: Host, where: Boundary, how: str) -> list[str]:
    """The same for a teardown that also removes what deploy has installed."""
    return _torn_down(host, where, how, PURGED)


def pause(host: Host, where: Boundary, how: str) -> list[str]:
    """The beginning of a pause is cut off; another one takes its place, and ends."""
    said = [*host.cut(where, how, *PAUSE, "cut off"), *promises.untruths(host.machine, {})]
    again = _done(host, (*PAUSE, "again", "--replace"))
    return [*said, *again, *promises.unpaused(host.machine, "again"), *_resumed(host)]


def resume(host: Host, where: Boundary, how: str) -> list[str]:
    """The end of a pause is cut off, and another one follows."""
    said = _done(host, (*PAUSE, "to begin with"))
    said += [*host.cut(where, how, *RESUME), *promises.untruths(host.machine, {})]
    return [*said, *_resumed(host)]


def _torn_down(host: Host, where: Boundary, how: str, words: tuple[str, ...]) -> list[str]:
    kept = promises.releases(host.machine)
    said = [*host.cut(where, how, *words), *promises.untruths(host.machine, newest(kept))]
    gone = _done(host, words) or promises.left(host.machine, installed=words != PURGED)
    return [*said, *gone, *host.deploy(host.serves)]


def _resumed(host: Host) -> list[str]:
    said = _done(host, RESUME) or promises.unpaused(host.machine, "")
    return [*said, *promises.unserved(host.machine, *CONFIGS[host.serves])]


def _done(host: Host, words: tuple[str, ...]) -> list[str]:
    """Run a command that must succeed; why it does not."""
    done = host.machine.run(words, timeout_s=240, check=False)
    return [f"{words[1]}: {done.status} {done.stderr[-600:]}"] if done.status else []


COMMANDS: dict[str, tuple[Journey, tuple[str, ...]]] = {
    "fresh": (fresh, (*DEPLOY, *CONFIGS[0])),
    "change": (change, (*DEPLOY, *CONFIGS[1])),
    "rollback": (rollback, ("dsv4ctl", "rollback")),
    "revert": (revert, BAD),
    "teardown": (teardown, TEARDOWN),
    "purge": (purge, PURGED),
    "pause": (pause, (*PAUSE, "cut off")),
    "resume": (resume, RESUME),
}


def acts(host: Host, name: str) -> list[Boundary]:
    """Where the command of a journey can be cut, from a run that is only listened to."""
    if name == "fresh":
        host.purge()
    else:
        host.must_deploy(1)
        host.must_deploy(0)
    if name == "resume":
        host.machine.run((*PAUSE, "to begin with"), timeout_s=60)
    found = Cutter(host.machine).acts(*COMMANDS[name][1], check=name != "revert")
    host.machine.run(RESUME, timeout_s=60)
    host.must_deploy(0)
    return found


def newest(kept: dict[int, str]) -> dict[int, str]:
    """The youngest releases; a deploy may drop old ones."""
    return dict(sorted(kept.items())[-5:])
