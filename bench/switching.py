"""Switches between modes in a private systemd, with stand-in engines that load at once and the real router."""

import json
import statistics
import time
from collections.abc import Iterator

from dsv4ctl.rehearsal import machine as rehearsal
from dsv4ctl.rehearsal import router
from dsv4ctl.rehearsal.private import Machine
from dsv4ctl.rehearsal.standins import CONFIG, CONFIG_FILE

SWITCHES = 3
LOOKS = 5
INSTANT = {"load_s": 0.0, "import_s": 0.0, "warmup_s": 0.0, "drain_poll_s": 0.05}


def rows() -> Iterator[tuple[str, str, str]]:
    """Figure, goal, measured; nothing where no router is prepared."""
    if (found := router.find()) is None:
        return
    with rehearsal.boot(extra=(found,)) as machine:
        machine.write(CONFIG_FILE, CONFIG + router.config(found))
        machine.write("/run/standin/all.json", json.dumps(INSTANT))
        away, back = [], []
        for _ in range(SWITCHES):
            back.append(_deploy_s(machine, "pd"))
            looks = [_seconds(machine, "dsv4ctl", "status") for _ in range(LOOKS)]
            away.append(_deploy_s(machine, "single-tp4"))
        yield "mode switch pd -> single-tp4, all proofs", "under 3 s", f"{statistics.median(away):.1f} s"
        yield "mode switch single-tp4 -> pd, all proofs", "-", f"{statistics.median(back[1:]):.1f} s"
        status_ms = 1000 * (statistics.median(looks) - _seconds(machine, "true"))
        yield "dsv4ctl status, three units", "300 ms", f"{status_ms:.0f} ms"


def _deploy_s(machine: Machine, mode: str) -> float:
    return _seconds(machine, "dsv4ctl", "deploy", "--mode", mode)


def _seconds(machine: Machine, *argv: str) -> float:
    began = time.perf_counter()
    machine.run(argv, timeout_s=120)
    return time.perf_counter() - began
