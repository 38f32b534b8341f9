"""Deploy, teardown, status and the idle supervisor, in a private systemd with the stand-in engine."""

import json
import os
import select
import statistics
import time
from collections.abc import Iterator

from dsv4ctl import procs
from dsv4ctl.rehearsal import machine as rehearsal
from dsv4ctl.rehearsal.private import Machine

PORT = 30001
DEPLOYS = 5
IDLE_S = 20


def rows() -> Iterator[tuple[str, str, str]]:
    """Figure, goal, measured."""
    with rehearsal.boot() as machine:
        machine.write(f"/run/standin/{PORT}.json", json.dumps({"load_s": 0.5}))
        beyond = []
        gone = []
        for n in range(DEPLOYS):
            machine.run(("dsv4ctl", "deploy", "--mode", "single-tp4", "--port", str(PORT)), timeout_s=60)
            beyond.append(1000 * (time.time() - _logged_at(machine, "fired up")))
            if n == 0:
                yield from _while_it_runs(machine)
            gone.append(_teardown_ms(machine))
        yield "deploy: from 'engine can serve' to exit 0", "median under 150 ms", f"{statistics.median(beyond):.0f} ms"
        yield "teardown: beyond the last process's own exit", "under 150 ms", f"{statistics.median(gone):.0f} ms"


def _while_it_runs(machine: Machine) -> Iterator[tuple[str, str, str]]:
    status = _median_ms(machine, ("dsv4ctl", "status"))
    helped = _median_ms(machine, ("dsv4ctl", "--help"))
    entering = _median_ms(machine, ("true",))
    yield "dsv4ctl --help", "150 ms", f"{helped - entering:.0f} ms"
    yield "dsv4ctl status, one unit", "300 ms", f"{status - entering:.0f} ms"
    yield from _supervisor(machine)


def _supervisor(machine: Machine) -> Iterator[tuple[str, str, str]]:
    pid = machine.run(("systemctl", "show", "--value", "-p", "MainPID", "dsv4-server"), timeout_s=10).stdout.strip()
    look = ("sh", "-c", f"grep VmRSS /proc/{pid}/status; cut -d' ' -f14,15 /proc/{pid}/stat")
    before = machine.run(look, timeout_s=10).stdout.split()
    time.sleep(IDLE_S)
    after = machine.run(look, timeout_s=10).stdout.split()
    ticks = sum(map(int, after[-2:])) - sum(map(int, before[-2:]))
    share = 100 * ticks / os.sysconf("SC_CLK_TCK") / IDLE_S
    yield "supervisor, idle and ready: memory", "under 30 MB RSS", f"{int(after[1]) / 1024:.1f} MB"
    yield "supervisor, idle and ready: processor", "under 0.3 % of a core", f"{share:.2f} %"


def _teardown_ms(machine: Machine) -> float:
    """Milliseconds from the exit of the unit's last process to the exit of teardown."""
    inside = machine.group.rglob("dsv4-server.service/cgroup.procs")
    pids = [int(line) for file in inside for line in file.read_text().split()]
    waiting = {os.pidfd_open(pid): pid for pid in pids if procs.stat(pid)}
    done = machine.popen(("dsv4ctl", "teardown"))
    last = time.time()
    while waiting:
        for pidfd in select.select(list(waiting), [], [])[0]:
            os.close(pidfd)
            del waiting[pidfd]
            last = time.time()
    done.communicate()
    return 1000 * (time.time() - last)


def _logged_at(machine: Machine, words: str) -> float:
    argv = ("journalctl", "-u", "dsv4-server", "-o", "json", "-n", "100")
    entries = [json.loads(line) for line in machine.run(argv, timeout_s=30).stdout.splitlines()]
    return max(int(e["__REALTIME_TIMESTAMP"]) / 1e6 for e in entries if words in str(e.get("MESSAGE")))


def _median_ms(machine: Machine, argv: tuple[str, ...]) -> float:
    took = []
    for _ in range(5):
        began = time.perf_counter()
        machine.run(argv, timeout_s=30)
        took.append(1000 * (time.perf_counter() - began))
    return statistics.median(took)
