"""What the system tests of teardown share: engines that nobody deployed, and who is left of them, seen from outside."""

import json
import subprocess
import time
from collections.abc import Callable

from dsv4ctl.child import Done
from dsv4ctl.rehearsal import gpus
from dsv4ctl.rehearsal.private import Machine
from dsv4ctl.rehearsal.standins import ENGINE, MODEL

Driver = Callable[[str], object]

# A stand-in that is there at once.
QUICK: dict[str, object] = {"load_s": 0.2, "import_s": 0.0, "warmup_s": 0.05, "drain_poll_s": 0.1}

LISTEN = (
    "import socket, time; s = socket.create_server(('127.0.0.1', {port})); print('up', flush=True); time.sleep(600)"
)


def server_line(port: int, *, on: tuple[int, ...] = (0, 1), more: str = "") -> str:
    """The shell words that start a server by hand, as people do; its output goes nowhere."""
    uuids = ",".join(gpus.uuid(index) for index in on)
    return (
        f"CUDA_VISIBLE_DEVICES={uuids} {ENGINE}/bin/python -m sglang.launch_server --model-path {MODEL} "
        f"--host 127.0.0.1 --port {port} --tp {len(on)} {more} >/tmp/{port}.log 2>&1"
    )


def shell(machine: Machine, script: str) -> subprocess.Popen[str]:
    """A login shell that stays: it runs the script, says "up", and then whatever is written to it."""
    process = machine.popen(("bash", "-c", f"{script}\necho up\nexec bash"))
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    return process


def tell(shell_: subprocess.Popen[str], command: str) -> str:
    """Run a command in that shell; its output."""
    assert shell_.stdin is not None
    assert shell_.stdout is not None
    shell_.stdin.write(f"{command}\necho; echo done-$?\n")
    shell_.stdin.flush()
    lines = []
    while not (line := shell_.stdout.readline()).startswith("done-"):
        assert line, "the shell is gone"
        lines.append(line)
    return "".join(lines)


def command(machine: Machine, *words: str, timeout_s: float = 60) -> Done:
    return machine.run(("dsv4ctl", *words), timeout_s=timeout_s, check=False)


def everybody(machine: Machine) -> dict[int, str]:
    """Pid -> comm of whatever runs in the machine's session and units, systemd's own and kernel's aside."""
    found = machine.run(("ps", "-eo", "pid=,stat=,comm="), timeout_s=10).stdout.splitlines()
    split = [line.split(None, 2) for line in found]
    return {int(pid): comm for pid, state, comm in split if not state.startswith("Z")}


def engines(machine: Machine) -> dict[int, str]:
    """The processes of stand-in engines, by the library that they all have mapped."""
    script = "grep -ls sglang/standin /proc/[0-9]*/maps | cut -d/ -f3"
    pids = machine.run(("sh", "-c", script), timeout_s=10, check=False).stdout.split()
    return {int(pid): comm for pid in pids if (comm := everybody(machine).get(int(pid)))}


def held_bytes(machine: Machine) -> int:
    """The memory that is in use on all GPUs, as their driver tells."""
    seen = json.loads(machine.run(("dsv4ctl-nvml",), timeout_s=10).stdout)
    return sum(gpu["used_bytes"] for gpu in seen["gpus"])


def listening(machine: Machine, port: int) -> bool:
    return bool(machine.run(("ss", "-Hltn", f"sport = :{port}"), timeout_s=10).stdout.strip())


def until(found: Callable[[], object], *, limit_s: float = 30) -> None:
    end = time.monotonic() + limit_s
    while not found():
        assert time.monotonic() < end
        time.sleep(0.05)


def hear(process: subprocess.Popen[str], words: str) -> str:
    """Read what a command says on stderr up to the line that has these words; all of it."""
    assert process.stderr is not None
    said = ""
    while words not in said:
        line = process.stderr.readline()
        assert line, said
        said += line
    return said


def main_of(machine: Machine, port: int) -> int:
    """The pid of the process that listens on a port."""
    shown = machine.run(("ss", "-Hltnp", f"sport = :{port}"), timeout_s=10).stdout
    return int(shown.partition("pid=")[2].partition(",")[0])
