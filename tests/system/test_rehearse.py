"""`dsv4ctl rehearse`: the timeline, and its proof that nothing is left."""

import sys
from pathlib import Path

import pytest

from dsv4ctl import child, procs
from dsv4ctl.problems import LeftOver
from dsv4ctl.rehearsal import cgroup, gpus, story
from dsv4ctl.rehearsal.private import Machine
from tests import needs

# What they compare is the whole host's.
pytestmark = pytest.mark.alone

HOLDER = f"""
import os, socket, time

open(f"{gpus.LEDGER}/{gpus.uuid(3)}/{{os.getpid()}}", "w").write("77")
server = socket.create_server(("127.0.0.1", 30001))
print("up", flush=True)
time.sleep(60)
"""


def left_cgroups() -> set[str]:
    """Folders of rehearsals whose maker has ended; others may rehearse meanwhile."""
    found = filter(None, (cgroup.NAME.fullmatch(path.name) for path in procs.cgroup_root().iterdir()))
    return {name.string for name in found if procs.stat(int(name["pid"])) is None}


def test_the_main_job_is_rehearsed_from_a_pair_over_one_server_to_an_empty_machine() -> None:
    needs.the_router()
    dsv4ctl = Path(sys.executable).with_name("dsv4ctl")
    before = left_cgroups()

    done = child.run((dsv4ctl, "rehearse", "--mode", "pd"), timeout_s=240)

    steps = [line.split(" s  ", 1)[1] for line in done.stdout.splitlines() if line.startswith("+")]
    assert steps == [
        "boot a private systemd with eight stand-in GPUs and a stand-in engine",
        "dsv4ctl deploy --mode pd --port 30001",
        "dsv4ctl probe",
        "dsv4ctl status",
        "systemctl status dsv4-decode --no-pager --lines=3",
        f'a chat completion through port 30001: "{story.QUESTION}"',
        "dsv4ctl deploy --mode single-tp4 --port 30001",
        "dsv4ctl status",
        "systemctl status dsv4-server --no-pager --lines=3",
        f'a chat completion through port 30001: "{story.QUESTION}"',
        "dsv4ctl teardown --verify",
        "what is left in the private machine?",
        "end the private machine",
    ]
    assert left_cgroups() <= before


def test_the_proof_names_every_unit_process_listener_and_byte_that_is_left(machine: Machine) -> None:
    machine.run(("systemd-run", "--quiet", "--unit=dsv4-left.service", "sleep", "60"), timeout_s=10)
    with machine.popen((sys.executable, "-c", HOLDER)) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "up\n"
        with pytest.raises(LeftOver) as left:
            story.prove_nothing_left(machine)
        machine.end_session()

    words = str(left.value)
    assert "active units: dsv4-left.service" in words
    assert "sleep 60" in words
    assert "127.0.0.1:30001" in words
    assert f"{gpus.uuid(3)} 77 bytes" in words


def test_an_empty_machine_is_proved_line_by_line(machine: Machine) -> None:
    assert [line.split() for line in story.prove_nothing_left(machine)] == [
        ["active", "units:", "none"],
        ["processes:", "none"],
        ["listeners:", "none"],
        ["GPU", "memory:", "none"],
    ]
