"""The look at all processes, with real ones."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from dsv4ctl import census, procs

Start = Callable[..., subprocess.Popen[str]]

MAPS = """
import mmap, os, sys
file = os.open({path!r}, os.O_RDONLY)
held = mmap.mmap(file, 0, prot=mmap.PROT_READ)
os.close(file)
print("up", flush=True)
sys.stdin.read() or __import__("time").sleep(60)
"""
OPENS = """
import time
held = open({path!r})
print("up", flush=True)
time.sleep(60)
"""

# Its first argument is no path: nobody is told by arguments.
EXECUTES = """
import os
os.chdir({folder!r})
wait = "print('up', flush=True); __import__('time').sleep(60)"
os.execv({name!r}, ["sglang::scheduler", "-I", "-S", "-c", wait])
"""


def test_the_census_agrees_with_a_close_look_at_each_process(start: Start) -> None:
    process = start("print('up', flush=True); __import__('time').sleep(60)")

    found = census.everything()[process.pid]

    close = procs.read(process.pid)
    assert close is not None
    assert (found.identity, found.parent_pid, found.session, found.group) == (
        close.identity,
        close.parent_pid,
        close.session,
        close.group,
    )
    assert (found.uid, found.user, found.comm, found.cgroup) == (close.uid, close.user, close.comm, close.cgroup)
    assert abs(found.started_at - close.started_at) <= 0.2
    assert found.executable == str(Path(f"/proc/{process.pid}/exe").readlink())
    assert found.pid_namespace == Path("/proc/self/ns/pid").stat().st_ino
    assert found.net_namespace == Path("/proc/self/ns/net").stat().st_ino
    assert census.with_command(found).command == close.command


def test_a_thread_of_the_kernel_is_told_and_nobody_else_is_taken_for_one() -> None:
    found = census.everything()

    assert not found[os.getpid()].kernel
    kernels = [process for process in found.values() if process.kernel]
    assert all(process.executable == "" and not census.mapped(process.pid) for process in kernels)


def test_a_look_at_2000_processes_takes_less_than_150_ms_of_processor_time() -> None:
    census.everything()
    best = []
    for _ in range(5):
        began = time.process_time()
        count = len(census.everything())
        best.append((time.process_time() - began) / count)

    assert min(best) * 2000 < 0.15


def package(folder: Path, name: str = "sglang", *, venv: bool = True) -> Path:
    """An environment with one package of a file that can be mapped; returns the file."""
    site = folder / "lib/python3.11/site-packages"
    (site / name).mkdir(parents=True)
    (site / name / "native.so").write_bytes(b"x" * 100)
    if venv:
        (folder / "pyvenv.cfg").touch()
    return site / name / "native.so"


def test_an_engine_is_told_by_a_library_of_its_environment_whatever_its_title(start: Start, tmp_path: Path) -> None:
    process = start(MAPS.format(path=str(package(tmp_path / "engine"))))

    assert census.environment_of(process.pid) == str(tmp_path / "engine")


def test_any_library_of_an_environment_of_the_engines_own_will_do(start: Start, tmp_path: Path) -> None:
    package(tmp_path / "engine")
    torch = package(tmp_path / "engine", "torch")

    process = start(MAPS.format(path=str(torch)))

    assert census.environment_of(process.pid) == str(tmp_path / "engine")


@pytest.mark.parametrize(
    ("name", "folder"), [("{engine}/bin/python", "/"), ("bin/python", "{engine}")], ids=["absolute", "relative"]
)
def test_an_engine_that_has_mapped_nothing_yet_is_told_by_how_it_was_executed(
    start: Start, tmp_path: Path, name: str, folder: str
) -> None:
    """B14: a worker in the first second of its life, as a link to an interpreter that lies elsewhere."""
    engine = tmp_path / "engine"
    package(engine)
    (engine / "bin").mkdir()
    (engine / "bin/python").symlink_to(Path(sys.executable).resolve())
    process = start(EXECUTES.format(folder=folder.format(engine=engine), name=name.format(engine=engine)))

    assert census.executed_as(process.pid) == f"{engine}/bin/python"
    assert census.libraries(process.pid) == {}
    assert census.environment_of(process.pid) == str(engine)


def test_a_program_of_the_systems_python_is_no_engine_because_sglang_lies_there_as_well(
    start: Start, tmp_path: Path
) -> None:
    package(tmp_path / "usr", venv=False)
    numpy = package(tmp_path / "usr", "numpy", venv=False)

    process = start(MAPS.format(path=str(numpy)))

    assert census.environment_of(process.pid) == ""


def test_a_program_of_another_environment_is_no_engine(start: Start, tmp_path: Path) -> None:
    process = start(MAPS.format(path=str(package(tmp_path / "notebook", "torch"))))

    assert census.environment_of(process.pid) == ""


def test_device_nodes_are_found_open_and_mapped(start: Start, tmp_path: Path) -> None:
    """B27: who holds memory of a GPU is looked for by its device nodes."""
    for name in ("nvidia0", "nvidiactl", "nvidia-caps", "null"):
        (tmp_path / name).write_bytes(b"x" * 100)
    opened = start(OPENS.format(path=str(tmp_path / "nvidia0")))
    mapped = start(MAPS.format(path=str(tmp_path / "nvidiactl")))
    others = [start(OPENS.format(path=str(tmp_path / name))) for name in ("nvidia-caps", "null")]

    found = census.device_users([p.pid for p in (opened, mapped, *others)], tmp_path)

    assert found == {opened.pid: {"nvidia0"}, mapped.pid: {"nvidiactl"}}


def test_nothing_is_told_of_a_process_that_went() -> None:
    beyond = int(Path("/proc/sys/kernel/pid_max").read_text())

    assert census.environment_of(beyond) == ""
    assert census.device_nodes(beyond) == frozenset()
    assert census.mapped(beyond) == frozenset()
    assert census.executed_as(beyond) == ""


@pytest.mark.parametrize("name", ["nvidia0", "nvidia15", "nvidiactl", "nvidia-uvm"])
def test_the_nodes_that_memory_is_held_through_are_known(name: str) -> None:
    assert census.NODE.fullmatch(name)
    assert not any(
        map(census.NODE.fullmatch, ("nvidia-modeset", "nvidia-caps/nvidia-cap1", "nvidiactl2", "nvidia-uvm-tools"))
    )
