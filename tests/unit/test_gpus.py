"""GPUs as the program `dsv4ctl-nvml` prints them, and the programs in its place that hang, fail or talk nonsense."""

import json
import os
import time
from pathlib import Path

import pytest

from dsv4ctl import child, gpus, nvml, procs
from dsv4ctl.clock import RealClock, until
from dsv4ctl.model import Gpu, GpuProcess, GpuView, Identity
from dsv4ctl.problems import Problem

RECORDED = Path(__file__).parent / "recorded"


def gpu(index: int, **other: object) -> dict[str, object]:
    """One GPU as printed."""
    return {
        "index": index,
        "uuid": f"GPU-{index}",
        "name": "NVIDIA H200",
        "pci_address": f"0000:{index}b:00.0",
        "total_bytes": 150_754_820_096,
        "used_bytes": 0,
        "reserved_bytes": 645_922_816,
        "processes": [{"pid": 4711, "used_bytes": 2**33}, {"pid": 4712, "used_bytes": None}],
        **other,
    }


def said(*gpus: dict[str, object]) -> str:
    return json.dumps({"driver": "580.159.03", "gpus": gpus, "unreadable": ["GPU 2: GPU is lost"]})


def test_all_that_is_printed_is_read_and_the_numa_node_is_added(tmp_path: Path) -> None:
    device = tmp_path / "bus/pci/devices/0000:1b:00.0"
    device.mkdir(parents=True)
    (device / "numa_node").write_text("1\n")

    found = gpus.parse(said(gpu(0), gpu(1)), tmp_path)

    assert (found.driver, found.unreadable, found.problem) == ("580.159.03", ("GPU 2: GPU is lost",), "")
    assert found.gpus[1] == Gpu(
        index=1,
        uuid="GPU-1",
        name="NVIDIA H200",
        pci_address="0000:1b:00.0",
        total_bytes=150_754_820_096,
        used_bytes=0,
        reserved_bytes=645_922_816,
        processes=(GpuProcess(pid=4711, used_bytes=2**33), GpuProcess(pid=4712, used_bytes=None)),
        numa_node=1,
    )
    assert found.gpus[0].numa_node is None


def test_a_platform_without_a_process_list_is_not_one_without_processes(tmp_path: Path) -> None:
    # Row B31: WSL, vGPU and old drivers do not tell; that is never the same as free.
    (found,) = gpus.parse(said(gpu(0, processes=None, used_bytes=None)), tmp_path).gpus

    assert (found.processes, found.processes_told, found.used_bytes) == ((), False, None)


def test_a_problem_is_a_view_and_no_error() -> None:
    assert gpus.parse('{"problem": "no driver"}') == GpuView(problem="no driver")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "Expecting value"),
        ("Traceback (most recent call last)", "Expecting value"),
        ("[]", "list indices"),
        ("{}", "it does not say 'gpus'"),
        ('{"gpus": [{"index": 0}], "driver": "x"}', "it does not say 'processes'"),
        ('{"gpus": [], "drivers": "x"}', "it does not say 'driver'"),
    ],
)
def test_anything_else_is_refused_loudly(text: str, words: str) -> None:
    with pytest.raises(Problem, match="cannot understand what dsv4ctl-nvml says of the GPUs") as caught:
        gpus.parse(text)
    assert words in str(caught.value)
    assert caught.value.hint == "dsv4ctl-nvml"


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program on PATH in the place of `dsv4ctl-nvml`, found there because none lies beside the interpreter."""
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr("sys.executable", str(tmp_path / "python"))
    return tmp_path / "dsv4ctl-nvml"


def write(program: Path, script: str) -> None:
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)


def children() -> tuple[Identity, ...]:
    return procs.descendants(os.getpid())


def test_the_program_on_path_is_asked(program: Path) -> None:
    write(program, f"echo '{said(gpu(0), gpu(1))}'")

    assert [one.uuid for one in gpus.read().gpus] == ["GPU-0", "GPU-1"]


def test_a_query_that_hangs_is_ended_and_told(program: Path) -> None:
    # Row B34: it ignores SIGTERM and never returns.
    write(program, "trap '' TERM\nwhile :; do sleep 60; done")
    began = time.monotonic()

    assert gpus.read(timeout_s=0.3) == GpuView(problem="GPU query hung for 0.3 s")
    assert time.monotonic() - began < 3


def test_a_query_that_dies_is_a_problem_of_the_view(program: Path) -> None:
    write(program, "echo segmentation fault >&2; exit 139")

    assert "segmentation fault" in gpus.read().problem


def test_a_query_that_is_prepared_asks_when_it_is_put_and_not_before(program: Path, tmp_path: Path) -> None:
    answer = tmp_path / "answer"
    answer.write_text(said(gpu(0)))
    write(program, f'echo "$1" >{tmp_path}/came\nread _ || exit 1\ncat {answer}')

    with gpus.Query() as query:
        until(lambda: (tmp_path / "came").exists() or None, RealClock(), 30, 0.01)
        answer.write_text(said(gpu(0), gpu(1)))
        found = query.view()

    assert (tmp_path / "came").read_text() == "wait\n"
    assert [one.uuid for one in found.gpus] == ["GPU-0", "GPU-1"]


def test_a_query_that_is_prepared_keeps_nobody_from_asking_and_ends_when_it_is_not_put(program: Path) -> None:
    write(program, f"[ \"$1\" = wait ] || exit 1\nread _ || exit 1\necho '{said(gpu(0))}'")

    before = len(children())
    with gpus.Query():
        assert len(children()) == before + 1
        assert len(gpus.read().gpus) == 1

    assert len(children()) == before


def test_the_real_program_asks_nobody_when_nobody_asks_it() -> None:
    assert child.run([gpus.program(), "wait"], timeout_s=30).stdout == ""
    assert child.run([gpus.program(), "wait"], timeout_s=30, input_text="now\n").stdout.startswith("{")


def test_without_the_program_the_view_says_so(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(program.parent))

    assert "there is no such program" in gpus.read().problem


def test_a_host_without_a_driver_has_a_problem_and_the_program_exits_with_0() -> None:
    done = child.run([gpus.program()], timeout_s=30)
    printed = json.loads(done.stdout)

    assert printed.keys() in ({"problem"}, {"driver", "gpus", "unreadable"})
    assert "problem" not in printed or "driver" in printed["problem"]
    assert gpus.parse(done.stdout).problem == printed.get("problem", "")


def test_what_a_real_driver_says_is_read(tmp_path: Path) -> None:
    # Recorded on a host with two H200, while one process held 8 GiB of the second.
    found = gpus.parse((RECORDED / "dsv4ctl-nvml-2xh200.json").read_text(), tmp_path)

    assert found.driver == "580.159.04"
    assert [(one.index, one.name, one.pci_address, one.used_bytes, one.processes) for one in found.gpus] == [
        (0, "NVIDIA H200", "0000:00:06.0", 0, ()),
        (1, "NVIDIA H200", "0000:00:07.0", 9142337536, (GpuProcess(pid=564, used_bytes=9133096960),)),
    ]
    assert {(one.total_bytes, one.reserved_bytes) for one in found.gpus} == {(150754820096, 644939776)}


def test_a_gpu_that_is_split_is_told_as_that(tmp_path: Path) -> None:
    found = gpus.parse(said(gpu(0, mig=True), gpu(1)), tmp_path).gpus

    assert [one.mig for one in found] == [True, False]


@pytest.mark.parametrize(
    ("said", "sysfs"),
    [
        ("00000000:1B:00.0", "0000:1b:00.0"),
        ("00000000:C3:00.0", "0000:c3:00.0"),
        ("0000000A:01:00.0", "000a:01:00.0"),
        ("00010000:01:00.0", "10000:01:00.0"),
    ],
)
def test_a_pci_address_is_spelt_as_sysfs_spells_it(said: str, sysfs: str) -> None:
    assert nvml.sysfs_address(said) == sysfs
