"""Random forests on the real kernel: zero innocent deaths, zero survivors. DSV4CTL_FORESTS=500 for the whole of it."""

import json
import os
import sys
from pathlib import Path

from dsv4ctl.rehearsal.private import Machine

COUNT = int(os.environ.get("DSV4CTL_FORESTS", "12"))


def test_no_innocent_dies_and_no_stray_lives_in_random_forests_on_the_real_kernel(machine: Machine) -> None:
    machine.write("/opt/forests.py", Path(__file__).with_name("forests.py").read_text())

    done = machine.run((sys.executable, "-P", "/opt/forests.py", "1", str(COUNT)), timeout_s=60 + 5 * COUNT)

    found = json.loads(done.stdout.splitlines()[-1])
    assert (found["died"], found["lived"]) == ([], [])
    assert found["forests"] == COUNT
    assert found["ended"] > COUNT
