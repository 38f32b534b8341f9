"""A pair on the real systemd with the real router: deployed, proved, looked at, switched, torn down."""

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from dsv4ctl import topology
from dsv4ctl.problems import Status
from dsv4ctl.rehearsal import gpus
from dsv4ctl.rehearsal.private import Machine
from tests.system.deploying import PORT, UNIT, children, inside, processes_of_ours, prop, wait_for_active
from tests.system.pairs import DECODE, PREFILL, ROUTER, ask, deploy, engine, prepare, probe, words

# What stands in for the driver lists the GPUs from the last to the first.
TURNED = """
import json, sys
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
    proof = json.loads((machine.root / "var/lib/dsv4ctl/releases/0001/verdict.json").read_text())["proof"]
    assert proof["seconds"] >= proof["answer_s"] > 0

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


@pytest.fixture
def own_cpus(machine: Machine) -> Iterator[dict[str, str]]:
    """Half -> the CPUs of its GPUs' node as the stand-in sysfs lists them; no CPU is on both nodes."""
    *others, last = sorted(os.sched_getaffinity(0))
    if not others:
        pytest.skip("this host has one CPU: a thread can be on no other one")
    if not Path("/proc/self/numa_maps").exists():
        pytest.skip("this kernel knows no NUMA nodes")
    lists = {"node0": str(last), "node1": str(others[0])}
    files = {f"{gpus.FOLDER}/node/{name}/cpulist": cpus for name, cpus in lists.items()}
    before = {path: (machine.root / path[1:]).read_text() for path in files}
    for path, cpus in files.items():
        machine.write(path, f"{cpus}\n")
    yield {PREFILL: lists["node0"], DECODE: lists["node1"]}
    for path, text in before.items():
        machine.write(path, text)


def allowed(machine: Machine, pid: int | str, what: str) -> str:
    """The CPUs or memory nodes that the kernel lets a process have, as it lists them."""
    found = re.search(
        rf"^{what}_allowed_list:\s*(\S+)$", (machine.root / f"proc/{pid}/status").read_text(), re.MULTILINE
    )
    assert found is not None
    return found[1]


def policies(machine: Machine, pid: int) -> set[str]:
    """The policies by which a process gets its memory, in the kernel's words: `bind:0`, or `default`."""
    return {line.split()[1] for line in (machine.root / f"proc/{pid}/numa_maps").read_text().splitlines()}


def test_b65_every_rank_has_the_cpus_and_the_memory_of_its_gpus_node_or_neither(
    machine: Machine, own_cpus: dict[str, str]
) -> None:
    """B65: what the unit says is what the kernel gives the ranks; no half has the CPUs of the other's GPUs."""
    prepare(machine, on_gpus=True)
    machine.run(("dsv4ctl", "render", "--mode", "pd", "--port", str(PORT), "--out", "/"), timeout_s=60)
    machine.run(("systemctl", "daemon-reload"), timeout_s=30)
    machine.run(("systemctl", "start", "--no-block", *own_cpus), timeout_s=30)
    every = allowed(machine, 1, "Cpus")
    # A node that this kernel does not have cannot be bound to: then there is no binding at all.
    nodes = topology.parse_list(allowed(machine, 1, "Mems"))

    for node, (unit, cpus) in enumerate(own_cpus.items()):
        wait_for_active(machine, unit=unit)
        bound = node in nodes
        asked = [prop(machine, name, unit) for name in ("CPUAffinity", "NUMAMask")]
        assert asked == ([cpus, str(node)] if bound else ["", ""])
        engine = inside(machine, unit)["engine"]
        ranks = [pid for pid in children(machine, engine) if is_rank(machine, pid)]
        assert len(ranks) == 4
        assert {allowed(machine, pid, "Cpus") for pid in ranks} == {cpus if bound else every}
        assert set.union(*(policies(machine, pid) for pid in ranks)) == {f"bind:{node}" if bound else "default"}


def is_rank(machine: Machine, pid: int) -> bool:
    return (machine.root / f"proc/{pid}/comm").read_text().startswith("sglang::schedul")
