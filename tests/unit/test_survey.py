"""`topology` on trees that stand for other hosts' sysfs: what is shown, and the same as values."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from dsv4ctl import modes, screen_topology, survey
from dsv4ctl.cli import run
from dsv4ctl.model import HostSpec, Role, RoleShape
from tests.unit.test_topology import tree

BUSES = ("1b", "2b", "3b", "4b", "9b", "ab", "bb", "cb")


def host(folder: Path, *nodes: int, cpus: tuple[str, ...] = ("0-31", "32-63")) -> Path:
    """A host with eight GPUs near to these nodes."""
    devices = {bus: str(node) for bus, node in zip(BUSES, nodes, strict=True)}
    return tree(folder, dict(enumerate(cpus)), **devices)


def shown(sysfs: Path, mode: str = "pd") -> str:
    return screen_topology.text(survey.look(HostSpec(mode=modes.BUILT_IN[mode]), sysfs))


def test_each_half_of_a_pair_is_shown_on_its_own_node(tmp_path: Path) -> None:
    assert (
        shown(host(tmp_path, 0, 0, 0, 0, 1, 1, 1, 1))
        == """\
NUMA node 0  CPUs 0-31
NUMA node 1  CPUs 32-63

GPU  PCI address   NUMA node  role     name
0    0000:1b:00.0  0          prefill  -
1    0000:2b:00.0  0          prefill  -
2    0000:3b:00.0  0          prefill  -
3    0000:4b:00.0  0          prefill  -
4    0000:9b:00.0  1          decode   -
5    0000:ab:00.0  1          decode   -
6    0000:bb:00.0  1          decode   -
7    0000:cb:00.0  1          decode   -

mode pd:
  prefill  tp 4 on GPUs 0-3: node 0, CPUs 0-31
  decode   tp 4 on GPUs 4-7: node 1, CPUs 32-63
  router   no binding, because it uses no GPU"""
    )


def test_a_role_that_spans_nodes_is_warned_of(tmp_path: Path) -> None:
    found = survey.look(HostSpec(mode=modes.BUILT_IN["single-tp4"]), host(tmp_path, 0, 1, 0, 1, 0, 1, 0, 1))
    assert screen_topology.warnings(found) == (
        "server: no binding, because it spans nodes: GPUs 0,2 on 0 and GPUs 1,3 on 1",
    )


def test_gpus_of_which_nothing_is_told_and_nodes_without_cpus_are_shown_as_such(tmp_path: Path) -> None:
    text = shown(host(tmp_path, -1, -1, -1, -1, 1, 1, 1, 1, cpus=("0-31", "")), "dual-tp4")
    assert "NUMA node 1  no CPUs" in text
    assert "0    0000:1b:00.0  not told   server-0" in text
    assert (
        "server-0  tp 4 on GPUs 0-3: no binding, because the firmware does not tell the NUMA node of GPUs 0-3" in text
    )
    assert "server-1  tp 4 on GPUs 4-7: no binding, because node 1 has no CPUs" in text


def test_a_role_whose_gpus_are_not_there_is_placed_nowhere(tmp_path: Path) -> None:
    four = tree(tmp_path, {0: "0-31", 1: "32-63"}, **dict.fromkeys(BUSES[:4], "0"))
    assert "decode   tp 4 on GPUs 4-7: no binding, because this host has no GPU 4-7" in shown(four)


def test_the_command_prints_the_same_as_values(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sysfs = host(tmp_path / "sys", 0, 0, 0, 0, 1, 1, 1, 1)
    root = ("--root", str(tmp_path))
    assert run(["topology", *root, "--mode", "pd", "--sysfs", str(sysfs), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert [(one["name"], one["node"], one["gpus"]) for one in said["roles"]] == [
        ("prefill", 0, [0, 1, 2, 3]),
        ("decode", 1, [4, 5, 6, 7]),
        ("router", None, []),
    ]
    assert said["nodes"][1] == {"node": 1, "cpus": list(range(32, 64)), "usable": True}
    assert [gpu["role"] for gpu in said["gpus"]] == ["prefill"] * 4 + ["decode"] * 4


def test_the_command_warns_on_stderr_and_takes_other_gpus(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sysfs = host(tmp_path / "sys", 0, 0, 0, 0, 1, 1, 1, 1)
    assert run(["topology", "--root", str(tmp_path), "--gpus", "2-5", "--sysfs", str(sysfs)]) == 0
    out, err = capsys.readouterr()
    assert "server  tp 4 on GPUs 2-5: no binding" in out
    assert err == "warning: server: no binding, because it spans nodes: GPUs 2-3 on 0 and GPUs 4-5 on 1\n"


def test_two_h200_of_a_virtual_machine_are_on_its_one_node_although_their_own_is_not_told(tmp_path: Path) -> None:
    # As its /sys was seen: numa_node -1, local_cpulist all CPUs, one node.
    sysfs = tree(tmp_path, {0: "0-31"}, **dict.fromkeys(("06", "07"), "-1 0-31"))
    asked = modes.place(modes.BUILT_IN["single-tp4"], ())
    found = survey.look(HostSpec(mode=replace(asked, roles=(RoleShape(role=Role.SERVER, tp=2, gpus=(0, 1)),))), sysfs)
    assert screen_topology.text(found).splitlines()[2:] == [
        "GPU  PCI address   NUMA node  role    name",
        "0    0000:06:00.0  0          server  -",
        "1    0000:07:00.0  0          server  -",
        "",
        "mode single-tp4:",
        "  server  tp 2 on GPUs 0,1: no binding, because this host has one NUMA node",
    ]
    assert screen_topology.warnings(found) == ()
