"""Commands that are cut off, and the way back from there: each journey begins and ends on a host that serves."""

from collections.abc import Callable
from dataclasses import dataclass

from dsv4ctl.problems import Status
from dsv4ctl.rehearsal.private import Machine
from tests.interrupts import promises
from tests.interrupts.cutting import Boundary, Cutter
from tests.interrupts.promises import DEPLOY, TEARDOWN

# Two configs that take turns, so that every deploy has all to do.
CONFIGS = (("--max-running-requests", "7"), ("--max-running-requests", "8"))
PURGE = "dsv4ctl teardown --purge >/dev/null && rm -rf /var/lib/dsv4ctl /run/dsv4ctl"


@dataclass
class Host:
    """The machine, which of the two configs it serves, and how the last command ended that was cut off."""

    machine: Machine
    serves: int = 0
    status: int = 0

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
        done = Cutter(self.machine).cut(where, how, *words)
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


def teardown(host: Host, where: Boundary, how: str) -> list[str]:
    """A teardown is cut off, and another one follows."""
    kept = promises.releases(host.machine)
    said = [*host.cut(where, how, *TEARDOWN), *promises.untruths(host.machine, newest(kept))]
    again = host.machine.run(TEARDOWN, timeout_s=240, check=False)
    gone = promises.left(host.machine) if not again.status else [f"teardown: {again.status} {again.stderr[-600:]}"]
    return [*said, *gone, *host.deploy(host.serves)]


COMMANDS: dict[str, tuple[Journey, tuple[str, ...]]] = {
    "fresh": (fresh, (*DEPLOY, *CONFIGS[0])),
    "change": (change, (*DEPLOY, *CONFIGS[1])),
    "rollback": (rollback, ("dsv4ctl", "rollback")),
    "teardown": (teardown, TEARDOWN),
}


def acts(host: Host, name: str) -> list[Boundary]:
    """Where the command of a journey can be cut, from a run that is only listened to."""
    if name == "fresh":
        host.purge()
    else:
        host.must_deploy(1)
        host.must_deploy(0)
    found = Cutter(host.machine).acts(*COMMANDS[name][1])
    host.must_deploy(0)
    return found


def newest(kept: dict[int, str]) -> dict[int, str]:
    """The youngest releases; a deploy may drop old ones."""
    return dict(sorted(kept.items())[-5:])
