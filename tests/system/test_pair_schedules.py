"""Random schedules of stops, kills and restarts under traffic. DSV4CTL_SCHEDULES=200 for the whole of it."""

import json
import os
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from dsv4ctl import record
from dsv4ctl.model import Phase, RunState
from dsv4ctl.rehearsal.private import Machine
from tests.system import schedules
from tests.system.deploying import PORT, prop, until
from tests.system.pairs import PREFILL, ROUTER, all_words, deploy, prepare
from tests.system.schedules import UNITS, Command, Request, Wrong

COUNT = int(os.environ.get("DSV4CTL_SCHEDULES", "6"))
LOG = "/run/traffic.jsonl"
CLIENTS = 3
CALM_S = 0.4
SETTLED_WITHIN_S = WHOLE_WITHIN_S = 90.0
# As the others of a pair are spoken of that are not there, or not whole together.
AMISS = re.compile("degraded|waiting for")
MANY_STARTS = {"starts": 100}
DOWN = ("inactive", "failed")


@contextmanager
def traffic(machine: Machine) -> Iterator[None]:
    """Clients that ask all the time; whatever became of their last requests is written when this ends."""
    machine.write("/opt/traffic.py", Path(__file__).with_name("traffic.py").read_text())
    argv = ("python3", "/opt/traffic.py", str(PORT), str(CLIENTS), LOG)
    with machine.popen(argv) as clients:
        assert clients.stdout is not None
        assert clients.stdout.readline() == "up\n"
        yield
        clients.communicate(timeout=90)


def requests(machine: Machine, since: float) -> list[Request]:
    """What became of the requests that began since then."""
    lines = (machine.root / LOG[1:]).read_text().splitlines()
    found = [Request(**json.loads(line)) for line in lines]
    return [one for one in found if one.began >= since]


def states(machine: Machine) -> dict[str, str]:
    """Unit -> its state; "" while something other than a start is still to be done to it."""
    argv = ("systemctl", "show", *UNITS, "--property=Id,ActiveState,Job")
    blocks = machine.run(argv, timeout_s=20).stdout.strip().split("\n\n")
    found = [dict(line.split("=", 1) for line in block.splitlines()) for block in blocks]
    waits = {one["Id"]: one["ActiveState"] != "activating" and one.get("Job", "0") not in ("", "0") for one in found}
    return {one["Id"]: "" if waits[one["Id"]] else one["ActiveState"] for one in found}


def do(machine: Machine, command: Command) -> None:
    """Carry a command out as an operator, or a fault, would."""
    match command.verb:
        case "teardown":
            machine.run(("dsv4ctl", "teardown"), timeout_s=120)
        case "kill":
            main = prop(machine, "MainPID", command.unit)
            victim = main if command.victim == "supervisor" else f"$(cat /proc/{main}/task/*/children)"
            if main != "0":
                machine.run(("sh", "-c", f"kill -KILL {victim}"), timeout_s=20, check=False)
        case verb:
            block = () if command.waits else ("--no-block",)
            machine.run(("systemctl", verb, *block, command.unit), timeout_s=120, check=False)


def carried_out(machine: Machine, commands: tuple[Command, ...]) -> list[tuple[Command, float]]:
    """The commands with when each was given."""
    times = []
    for command in commands:
        time.sleep(command.pause_s)
        times.append((command, time.monotonic()))
        do(machine, command)
    return times


def is_as_wanted(unit: str, state: str, want: Mapping[str, bool]) -> bool:
    """Whether a unit is up or down as it was asked to be. A router that lacks a half waits for it, and says so."""
    if not want[unit]:
        return state in DOWN
    return state == "active" or (unit == ROUTER and not all(want.values()) and state == "activating")


def has_settled(machine: Machine, want: Mapping[str, bool]) -> bool:
    """Wait until every unit is as wanted, or for the limit."""
    end = time.monotonic() + SETTLED_WITHIN_S
    while time.monotonic() < end:
        if all(is_as_wanted(unit, state, want) for unit, state in states(machine).items()):
            return True
        time.sleep(0.1)
    return False


def open_at_sigterm(machine: Machine, since: float, *, killed: bool) -> list[str]:
    """What a prefill that was told to end still had to do, if it had.

    It never may be sending. Requests whose decode was killed may wait at it for ever, and are given up at the limit.
    """
    machine.run(("journalctl", "--sync"), timeout_s=60)
    argv = ("journalctl", "--output=cat", "--no-pager", "-u", PREFILL, f"--since=@{since:.3f}")
    said = [line for line in machine.run(argv, timeout_s=60).stdout.splitlines() if "open at SIGTERM" in line]
    fine = ", 0 of them being sent" if killed else "stand-in: 0 requests open"
    return [line for line in said if fine not in line]


def said(machine: Machine, unit: str) -> RunState | None:
    """What its supervisor said last."""
    name = unit.removeprefix("dsv4-").removesuffix(".service")
    file = machine.root / f"run/dsv4ctl/{name}/state.json"
    return record.load_state(file.read_text()) if file.exists() else None


def lives(machine: Machine, pid: int) -> bool:
    """Whether a process of the machine runs: one that was killed does not, whoever has noticed it."""
    try:
        return (machine.root / f"proc/{pid}/stat").read_text().rpartition(") ")[2][0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def is_whole(machine: Machine) -> bool:
    """Whether the pair serves, nothing is amiss and nothing is still to come.

    Each unit runs under the supervisor and the engine that said that they are ready, and those of the halves are the
    ones that the router's supervisor had a generation go through.
    """
    mains = {unit: int(prop(machine, "MainPID", unit)) for unit in UNITS}
    prefill, decode, router = (said(machine, unit) for unit in UNITS)
    if not prefill or not decode or not router or set(states(machine).values()) != {"active"}:
        return False
    all_said = (prefill, decode, router)
    are_well = all(one.phase is Phase.READY and not AMISS.search(one.words) for one in all_said)
    are_there = all(lives(machine, pid) for one in all_said for pid in (one.pid, one.engine_pid))
    are_theirs = [one.pid for one in all_said] == list(mains.values())
    return are_well and are_there and are_theirs and [one.pid for one in router.proved] == [prefill.pid, decode.pid]


def one(machine: Machine, seed: int) -> Wrong:
    """One schedule from a whole pair to its end state, and what was wrong with it."""
    commands = schedules.drawn(seed)
    until(lambda: is_whole(machine), lambda: all_words(machine), limit_s=WHOLE_WITHIN_S)
    calm, wall = time.monotonic(), time.time()
    time.sleep(CALM_S)
    times = carried_out(machine, commands)
    want = schedules.wanted(commands)
    shown = f"seed {seed} ({', '.join(f'{command.verb} {command.unit}' for command in commands)})"
    has_ended = has_settled(machine, want)
    transfers = open_at_sigterm(machine, wall, killed=any(command.verb == "kill" for command in commands))
    lost = schedules.lost(requests(machine, calm), times)
    # Whoever was to stay down is down still.
    has_ended = has_ended and all(state in DOWN for unit, state in states(machine).items() if not want[unit])
    return Wrong(
        ends=() if has_ended else (f"{shown}: {states(machine)}, not {want}: {all_words(machine)}",),
        transfers=tuple(f"{shown}: {line}" for line in transfers),
        requests=tuple(f"{shown}: {request}" for request in lost),
    )


def heal(machine: Machine) -> None:
    """Start what is down, whatever the schedule before did."""
    machine.run(("systemctl", "reset-failed"), timeout_s=20)
    machine.run(("systemctl", "start", *UNITS), timeout_s=120, check=False)


@pytest.mark.parametrize("backend", ["nixl", "mooncake"])
def test_whatever_is_stopped_killed_or_restarted_the_last_command_wins_and_no_drain_loses_a_request(
    machine: Machine, backend: str
) -> None:
    # Over nixl an engine serves the other half that it met first, and no later one: the two must never meet.
    prepare(machine, limits=MANY_STARTS, backend=backend, transfer_s=0.2, stale_peer=backend == "nixl")
    first = 1 if backend == "nixl" else COUNT // 2 + 1
    found: list[Wrong] = []
    began = time.monotonic()
    deploy(machine, "small")
    with traffic(machine):
        for seed in range(first, first + COUNT // 2):
            found.append(one(machine, seed))
            heal(machine)
        until(lambda: is_whole(machine), lambda: all_words(machine), limit_s=WHOLE_WITHIN_S)
    print(f"{backend}: {schedules.totals(found, requests(machine, 0), time.monotonic() - began)}")  # noqa: T201 -- make soak shows it
    assert [what for schedule in found for what in schedule.all] == []
    assert len(requests(machine, 0)) > 10 * COUNT
