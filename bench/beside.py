"""One server started by hand, with workers that renamed themselves and are deaf to SIGTERM: what ends it, and how long.

Everything runs in a private machine, whose pid namespace is all that a pattern can reach.
"""

import json
import time
from collections.abc import Callable, Iterator

from dsv4ctl import census, procs
from dsv4ctl.rehearsal import gpus
from dsv4ctl.rehearsal import machine as rehearsal
from dsv4ctl.rehearsal.private import Machine
from dsv4ctl.rehearsal.standins import ENGINE, MODEL

PORT = 30001
UNIT = "by-hand.service"
BEHAVIOUR = {"load_s": 0.5, "warmup_s": 0.0, "leave_renamed_children": 2}
SERVER = (
    f"{ENGINE}/bin/python", "-m", "sglang.launch_server", "--model-path", str(MODEL), "--port", str(PORT), "--tp", "4",
)  # fmt: skip
LIMIT_S = 120.0


def rows() -> Iterator[tuple[str, str, str]]:
    """Figure, goal, measured."""
    # The brackets keep the pattern from the shell that it stands in.
    pattern = "pkill -f sglang[.]launch_server; sleep 5"
    ways: dict[str, tuple[Callable[[Machine], None], tuple[str, ...]]] = {
        "pkill -f sglang.launch_server; sleep 5": (_in_a_session, ("sh", "-c", pattern)),
        "systemctl stop (a plain unit)": (_in_a_unit, ("systemctl", "stop", UNIT)),
        "dsv4ctl teardown --verify --strays": (_in_a_session, ("dsv4ctl", "teardown", "--verify", "--strays")),
    }
    with rehearsal.boot() as machine:
        machine.write(f"/run/standin/{PORT}.json", json.dumps(BEHAVIOUR))
        for name, (start, end) in ways.items():
            goal = "nothing left" if name.startswith("dsv4ctl") else "-"
            yield f"server by hand, ended by {name}", goal, _measured(machine, start, end)


def _measured(machine: Machine, start: Callable[[Machine], None], end: tuple[str, ...]) -> str:
    """Seconds, and what is left of the server when the command has returned."""
    start(machine)
    theirs = [identity for pid in _everybody(machine) if _is_engine(pid) and (identity := procs.identity(pid))]
    shared = machine.root / "dev/shm"
    began = time.perf_counter()
    machine.run(end, timeout_s=LIMIT_S, check=False)
    took = time.perf_counter() - began
    left = sum(map(procs.alive, theirs))
    said = f"{took:.1f} s; left: {left} of {len(theirs)} processes, {_held_gib(machine):.0f} GiB on GPUs"
    segments = list(shared.iterdir())
    machine.end_session()
    for segment in segments:
        segment.unlink(missing_ok=True)
    return f"{said}, {len(segments)} files in /dev/shm"


def _in_a_session(machine: Machine) -> None:
    # As from a shell that goes on: its output goes nowhere, and nobody waits for it.
    machine.popen(("sh", "-c", f"CUDA_VISIBLE_DEVICES={_uuids()} {' '.join(SERVER)} >/dev/null 2>&1 & sleep 600"))
    _wait_until_it_listens(machine)


def _in_a_unit(machine: Machine) -> None:
    run = ("systemd-run", "--quiet", f"--unit={UNIT}", f"--setenv=CUDA_VISIBLE_DEVICES={_uuids()}", *SERVER)
    machine.run(run, timeout_s=20)
    _wait_until_it_listens(machine)


def _wait_until_it_listens(machine: Machine) -> None:
    end = time.monotonic() + 60
    while not machine.run(("ss", "-Hltn", f"sport = :{PORT}"), timeout_s=10).stdout.strip():
        if time.monotonic() > end:
            raise SystemExit("the server by hand did not come up")
        time.sleep(0.1)


def _uuids() -> str:
    return ",".join(gpus.uuid(index) for index in range(4))


def _everybody(machine: Machine) -> set[int]:
    """Whatever runs in the machine, by the numbers of this host."""
    return {int(line) for file in machine.group.rglob("cgroup.procs") for line in file.read_text().split()}


def _is_engine(pid: int) -> bool:
    """By the library that all of the stand-in's processes have mapped, whatever they call themselves."""
    return any("/sglang/standin/" in path for path in census.mapped(pid))


def _held_gib(machine: Machine) -> float:
    seen = json.loads(machine.run(("dsv4ctl-nvml",), timeout_s=10).stdout)
    return float(sum(gpu["used_bytes"] for gpu in seen["gpus"])) / 2**30
