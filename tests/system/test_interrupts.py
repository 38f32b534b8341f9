"""dsv4ctl is cut off in the middle: one cut of each kind here; `make interrupts` tries every act there is."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from dsv4ctl.problems import Status
from dsv4ctl.rehearsal.private import Machine
from tests.conftest import Behave
from tests.interrupts import cutting, powercut, promises
from tests.interrupts.cutting import FULL, KILL, ORPHAN, READ_ONLY, RUNTIME, STATE, UNITS, Boundary, Cutter
from tests.interrupts.journeys import COMMANDS, CONFIGS, Host
from tests.interrupts.promises import DEPLOY, MODE, TEARDOWN
from tests.system.deploying import PORT, QUICK, UNIT, configure, prop

SYSTEMCTL = "start systemctl --no-ask-password"
CUTS = {
    "killed between the unit and its reload": ("change", f"{SYSTEMCTL} daemon-reload", KILL),
    "killed while systemd stops the unit": ("change", f"{SYSTEMCTL} stop --no-block dsv#-server.service", ORPHAN),
    "the disk is full when the release is kept": ("change", f"write {STATE}/releases/#/.release.json.new", FULL),
    "the units' folder turns read-only": ("change", f"open {UNITS}/.dsv#-server.service.new", READ_ONLY),
    "a teardown is killed before the stop": ("teardown", f"{SYSTEMCTL} stop --no-block dsv#-server.service", KILL),
}


@pytest.fixture
def host(machine: Machine, behaviour: Behave, tmp_path: Path) -> Host:
    if shutil.which("cc") is None:
        pytest.skip("needs a C compiler; try: apt-get install gcc libc6-dev")
    configure(machine, MODE)
    behaviour(PORT, **QUICK)
    Cutter(machine).install(cutting.build(tmp_path))
    return Host(machine)


def test_a_command_that_is_cut_off_leaves_a_host_from_which_the_next_arrives(host: Host) -> None:
    host.must_deploy(0)
    wrong = []
    for name, (command, label, how) in CUTS.items():
        where = Boundary(cutting.plain(label), 1)
        wrong += [f"{name}: {said}" for said in COMMANDS[command][0](host, where, how)]
        assert host.status != 0, f"{name}: there was no such act"

    assert not wrong, "\n".join(wrong)


READ_ONLY_FOLDERS = """
for folder in /run/dsv4ctl /var/lib/dsv4ctl /etc/systemd/system; do
  mount --bind $folder $folder
  mount -o remount,bind,ro $folder
done
"""
WRITABLE = "umount /run/dsv4ctl /var/lib/dsv4ctl /etc/systemd/system"


@pytest.fixture
def read_only(host: Host) -> Iterator[Host]:
    """A host that serves, and whose folders of ours are read-only until the test is over."""
    host.must_deploy(0)
    host.machine.run(("sh", "-euc", READ_ONLY_FOLDERS), timeout_s=30)
    yield host
    host.machine.run(("sh", "-c", WRITABLE), timeout_s=30, check=False)


def test_a_teardown_ends_everything_where_nothing_of_ours_can_be_written_and_says_what_stays(
    read_only: Host,
) -> None:
    machine, purged = read_only.machine, (*TEARDOWN, "--purge")

    torn = machine.run(purged, timeout_s=120, check=False)

    assert promises.left(machine) == []
    assert torn.status == Status.HOST, torn.stderr
    assert f"cannot remove /etc/systemd/system/{UNIT}: read-only file system" in torn.stderr
    assert "this teardown is not in the audit trail" in torn.stderr
    assert prop(machine, "Result") == "success"

    machine.run(("sh", "-c", WRITABLE), timeout_s=30)
    machine.run(purged, timeout_s=120)
    assert promises.left(machine, installed=False) == []


def test_a_file_that_nobody_reads_any_more_and_that_cannot_be_removed_ends_nothing_that_serves(host: Host) -> None:
    host.must_deploy(0)
    removal = Boundary(cutting.plain(f"unlink {STATE}/instances/server-0123456789ab.json"), 1)

    assert host.cut(removal, READ_ONLY, *DEPLOY, *CONFIGS[1]) == []

    assert host.reached
    assert host.status == Status.HOST  # for the verdict cannot be written either
    assert promises.unserved(host.machine, *CONFIGS[1]) == []
    assert host.deploy(1) == []


def test_a_full_run_folder_keeps_nobody_from_a_deploy(host: Host) -> None:
    lock = Boundary(cutting.plain(f"write {RUNTIME}/lock"), 1)
    wrong = COMMANDS["fresh"][0](host, lock, FULL)

    assert host.status == 0
    assert not wrong, "\n".join(wrong)


def test_a_power_cut_anywhere_within_a_deploy_leaves_every_file_old_or_new_and_whole(host: Host) -> None:
    host.must_deploy(0)
    root = host.machine.root
    paths = {f"/{path.relative_to(root)}": path for above in (STATE, UNITS) for path in (root / above[1:]).rglob("*")}
    files = {name: path.read_bytes() for name, path in paths.items() if path.is_file() and not path.is_symlink()}
    folders = {STATE, UNITS, *(name for name, path in paths.items() if path.is_dir())}

    acts = powercut.parse(Cutter(host.machine).log(*DEPLOY, *CONFIGS[1]))

    kept = tuple(act for act in acts if act.path.startswith((STATE, UNITS)))
    assert len(kept) > 40
    assert powercut.broken(powercut.begun(files, folders), kept, frozenset({f"{STATE}/audit.jsonl"})) == []
