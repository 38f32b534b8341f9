"""Each system test finds the machine as it was booted."""

from collections.abc import Iterator

import pytest

from dsv4ctl.rehearsal.private import Machine
from dsv4ctl.rehearsal.standins import CONFIG
from tests.system.strays import Driver

# A unit that is being stopped is not started again by its restart policy, so the stop is queued before the kill.
RESET = """
units=$(systemctl list-units --all --plain --no-legend --type=service,scope,socket,timer,target,slice |
  awk '$2 == "loaded" { print $1 }' |
  grep -vxE 'init.scope|-.slice|system.slice|(systemd-journald|dbus)[^ ]*|[a-z-]+[.]target')
targets=$(systemctl list-units --all --plain --no-legend 'dsv4*.target' | awk '{ print $1 }')
if [ -n "$units$targets" ]; then
  systemctl stop --no-block $units $targets
  systemctl kill --signal=KILL $units 2>/dev/null
  systemctl stop $units $targets
fi
rm -rf /etc/systemd/system/* /etc/systemd/system.control /run/systemd/transient/*
rm -rf /etc/dsv4ctl /var/lib/dsv4ctl /var/cache/dsv4ctl /run/dsv4ctl /run/standin/* /dev/standin-gpus/*/*
systemctl daemon-reload
systemctl reset-failed
journalctl --quiet --lines=1 --show-cursor | sed -n 's/^-- cursor: //p' >/run/journal-before
"""


def reset(machine: Machine) -> None:
    """Take away what the test before left: units, sessions, state, memory of stand-in GPUs, config."""
    machine.end_session()
    machine.run(("sh", "-c", RESET), timeout_s=60)
    machine.write("/etc/dsv4ctl/config.toml", CONFIG)


@pytest.fixture(autouse=True)
def fresh(machine: Machine) -> None:
    """Find the machine as it was booted. A file whose tests share what one of them deployed has a wider one."""
    reset(machine)


@pytest.fixture
def driver(machine: Machine) -> Iterator[Driver]:
    """Have the GPU program of the machine answer something else, until the test is over."""
    # Written in place: the program is bound to where it is looked for.
    program = machine.root / "run/rehearsal/dsv4ctl-nvml"
    before = program.read_text()
    yield program.write_text
    program.write_text(before)
