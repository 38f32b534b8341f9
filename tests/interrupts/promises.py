"""What must hold after a dsv4ctl was cut off: status tells the truth, nothing is lost, the next command arrives."""

import json
from dataclasses import dataclass

from dsv4ctl.problems import Status
from dsv4ctl.rehearsal.private import Machine
from dsv4ctl.store.releases import Releases
from tests.system.deploying import PORT, UNIT, processes_of_ours

# Two ranks: the same acts as with four, in less time.
MODE = "[modes.two]\nserver = { tp = 2, gpus = [0, 1] }"
DEPLOY = ("dsv4ctl", "deploy", "--mode", "two", "--port", str(PORT), "--context-length", "64k")
TEARDOWN = ("dsv4ctl", "teardown", "--verify")
INSTALLED = ("etc/systemd/system/dsv4*", "etc/systemd/system/*.wants/dsv4*", "var/lib/dsv4ctl/instances/*")


@dataclass(frozen=True, slots=True)
class Unit:
    """The unit as systemd shows it."""

    active: str
    pid: int


def unit(machine: Machine) -> Unit:
    argv = ("systemctl", "show", UNIT, "-p", "ActiveState", "-p", "MainPID")
    found = dict(line.split("=") for line in machine.run(argv, timeout_s=20).stdout.splitlines())
    return Unit(found["ActiveState"], int(found["MainPID"]))


def untruths(machine: Machine, kept: dict[int, str]) -> list[str]:
    """Where `status` and `history` do not tell what is. `kept`: number -> digest of the releases before the cut."""
    before = unit(machine)
    done = machine.run(("dsv4ctl", "status", "--json"), timeout_s=60, check=False)
    after = unit(machine)
    if done.status == Status.BUG or not done.stdout:
        return [f"status: {done.status} {done.stderr}"]
    rows = {row["unit"]: row for row in json.loads(done.stdout)["rows"]}
    wrong = []
    pid = rows[UNIT]["pid"] if UNIT in rows else 0
    if pid not in (before.pid, after.pid):
        wrong.append(f"status says pid {pid}, systemd {before} and {after}")
    if done.status == Status.OK and UNIT in rows and before.active == after.active not in ("active", "inactive"):
        wrong.append(f"status says that all is well, systemd {before} and {after}")
    now = releases(machine)
    whole = len(list((machine.root / "var/lib/dsv4ctl/releases").glob("*/release.json")))
    if whole != len(now):
        wrong.append(f"there are {whole} releases, and only {sorted(now)} can be read")
    lost = [number for number, digest in kept.items() if now.get(number) != digest]
    if lost:
        wrong.append(f"releases {lost} are lost: {sorted(now)}")
    return wrong


def releases(machine: Machine) -> dict[int, str]:
    """Number -> digest of the releases that can be read."""
    kept = Releases(machine.root / "var/lib/dsv4ctl/releases").all()
    return {one.number: one.generation.release.digest for one in kept}


def unserved(machine: Machine, *flags: str) -> list[str]:
    """Why the unit does not serve what is asked for by now, although a deploy has said so."""
    found = unit(machine)
    if found.active != "active":
        return [f"deploy exited 0 and the unit is {found}"]
    argv = (machine.root / f"proc/{found.pid}/cmdline").read_text().split("\0")
    missing = [word for word in flags if word not in argv]
    return [f"deploy exited 0 and {missing} are not in the unit's command"] if missing else []


def left(machine: Machine, *, installed: bool = True) -> list[str]:
    """What is left although a teardown has said that nothing is. `installed`: what deploy wrote may stay."""
    found, processes = unit(machine), processes_of_ours(machine)
    wrong = []
    if found.active not in ("inactive", "failed") or processes:
        wrong.append(f"teardown exited 0 and the unit is {found} with {processes} processes")
    files = [file for glob in INSTALLED for file in machine.root.glob(glob)]
    if files and not installed:
        wrong.append(f"teardown --purge exited 0 and there are {', '.join(map(str, files))}")
    return wrong


def unpaused(machine: Machine, reason: str) -> list[str]:
    """Why the host is not paused for this reason, or not without a pause for none, although a command has said so."""
    said = json.loads(machine.run(("dsv4ctl", "status", "--json"), timeout_s=60, check=False).stdout)["pause"]
    told = said["reason"] if said else ""
    return [f"the pause is {said}, not for {reason!r}"] if told != reason else []
