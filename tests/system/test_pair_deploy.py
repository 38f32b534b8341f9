"""A pair on the real systemd with the real router: deployed, proved, looked at, switched, torn down."""

import json
from collections.abc import Iterator

import pytest

from dsv4ctl.problems import Status
from dsv4ctl.rehearsal import gpus
from dsv4ctl.rehearsal.private import Machine
from tests.system.deploying import UNIT, processes_of_ours, prop
from tests.system.pairs import DECODE, PREFILL, ROUTER, ask, deploy, engine, prepare, probe, words

# What stands in for the driver lists the GPUs from the last to the first.
TURNED = """
import json, sys
import json
from collections.abc import Iterator

import pytest

from dsv4ctl.problems import Status
from dsv4ctl.rehearsal import gpus

seen = [gpus.seen(index) for index in reversed(range(gpus.COUNT))]
sys.stdout.write(json.dumps({"driver": gpus.DRIVER, "gpus": seen, "unreadable": []}) + "\\n")
"""


# A stranger on one GPU.
HOLDER = """
import os, sys, time
held = open("/dev/nvidia" + sys.argv[2])
open(f"{sys.argv[1]}/{os.getpid()}", "w").write(f"{2**30}")
print("up", flush=True)
time.sleep(600)
"""


def started(machine: Machine, pid: int) -> int:
    """When a process began, in the clock ticks of the kernel."""
    return int((machine.root / f"proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])


def held(machine: Machine) -> dict[str, set[int]]:
    """GPU -> who holds memory on it, in the words of the ledger itself."""
    folder = machine.root / "dev/standin-gpus"
    return {gpus.uuid(n): {int(file.name) for file in (folder / gpus.uuid(n)).iterdir()} for n in range(gpus.COUNT)}


def units_of(machine: Machine, pids: set[int]) -> set[str]:
    """The units that processes are in."""
    paths = [(machine.root / f"proc/{pid}/cgroup").read_text().strip() for pid in pids]
    return {path.rpartition("/")[2] for path in paths}


def test_a_pair_serves_is_switched_to_one_server_and_back_and_leaves_nothing(machine: Machine) -> None:
    prepare(machine, on_gpus=True)
    deploy(machine, "pd")
    assert "ok" in probe(machine).stdout
    assert words(machine, DECODE).startswith("ready: ")
    assert ask(machine)
    first = {unit: engine(machine, unit) for unit in (PREFILL, DECODE, ROUTER)}

    deploy(machine, "pd")
    assert {unit: engine(machine, unit) for unit in first} == first

    deploy(machine, "single-tp4")
    assert [prop(machine, "ActiveState", unit) for unit in (*first, UNIT)] == ["inactive"] * 3 + ["active"]
    assert ask(machine)

    deploy(machine, "pd")
    assert ask(machine)
    assert prop(machine, "ActiveState") == "inactive"

    machine.run(("dsv4ctl", "teardown", "--verify"), timeout_s=120)
    assert processes_of_ours(machine) == 0
    assert machine.run(("ss", "-Hltn"), timeout_s=10).stdout == ""


@pytest.fixture
def turned(machine: Machine) -> Iterator[None]:
    """The driver lists its GPUs the other way round."""
    program = f"{gpus.FOLDER}/dsv4ctl-nvml"
    before = (machine.root / program[1:]).read_text()
    machine.write(program, before.splitlines()[0] + TURNED, mode=0o755)
    yield
    machine.write(program, before, mode=0o755)


@pytest.mark.usefixtures("turned")
def test_b64_whatever_order_the_driver_lists_them_in_every_half_gets_its_own_gpus(machine: Machine) -> None:
    """B64: placement, the engines themselves, the gate and status all mean the same GPUs by the same numbers."""
    prepare(machine, on_gpus=True)
    shown = machine.run(("dsv4ctl", "topology", "--mode", "pd"), timeout_s=20).stdout
    placed = [line.split()[1:4] for line in shown.splitlines() if "Stand-in" in line]
    deploy(machine, "pd")

    assert sorted(placed) == [[gpus.pci_address(n), str(n // 4), "prefill" if n < 4 else "decode"] for n in range(8)]
    assert [units_of(machine, pids) for pids in held(machine).values()] == [{PREFILL}] * 4 + [{DECODE}] * 4

    machine.run(("systemctl", "stop", DECODE), timeout_s=60)
    # Not well: a half is down.
    rows = json.loads(machine.run(("dsv4ctl", "status", "--json"), timeout_s=20, check=False).stdout)["rows"]
    used = {row["unit"]: row["gpu_used_bytes"] for row in rows}
    assert used[PREFILL] > 2**30
    assert not used[DECODE]

    with machine.popen(("python3", "-c", HOLDER, f"/dev/standin-gpus/{gpus.uuid(6)}", "6")) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "up\n"
        refused = deploy(machine, "pd", check=False)
        machine.end_session()
    assert refused.status == Status.FOREIGN
    assert "GPU 6" in refused.stderr
    assert "GPU 1" not in refused.stderr
