"""Real processes and real cgroups for the tests of the rim, each test's own gone when it ends; and golden files."""

import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dsv4ctl import procs
from dsv4ctl.clock import RealClock, until

Start = Callable[..., subprocess.Popen[str]]
Golden = Callable[[str, str], None]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that takes what is rendered now as what is wanted; read the diff before it is committed."""
    parser.addoption("--regold", action="store_true", help="rewrite the golden files of tests/unit/golden")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """Compare a text, whole, with the golden file of that name."""

    def compare(name: str, text: str) -> None:
        file = Path(__file__).with_name("golden") / name
        if request.config.getoption("--regold"):
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        assert text == file.read_text(), f"{file} differs; --regold takes what is rendered now"

    return compare


@pytest.fixture
def start() -> Iterator[Start]:
    """Start a Python program with words of its own, in a cgroup or in ours, and wait until it prints "up"."""
    started: list[subprocess.Popen[str]] = []

    def begin(script: str, *words: str | Path, cgroup: Path | None = None) -> subprocess.Popen[str]:
        enter = ["sh", "-c", 'echo $$ > "$0/cgroup.procs"; exec "$@"', str(cgroup)] if cgroup else []
        argv = [*enter, sys.executable, "-c", script, *words]
        process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        return process

    yield begin
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture
def cgroup() -> Iterator[Path]:
    """A cgroup below the one we run in, named like a unit's, with `inner` in it as a container engine would make."""
    folder = procs.cgroup_root() / procs.own_cgroup()[1:] / f"dsv4ctl-test-{uuid.uuid4().hex[:8]}.service"
    try:
        (folder / "inner").mkdir(parents=True)
    except OSError as error:
        pytest.skip(f"cannot make a cgroup: {error}")
    yield folder
    for pid in procs.cgroup_pids(f"/{folder.relative_to(procs.cgroup_root())}"):
        os.kill(pid, signal.SIGKILL)
    assert until(lambda: remove(folder) or None, RealClock(), deadline_s=10, every_s=0.01)


def remove(folder: Path) -> bool:
    """Remove a cgroup; False while something in it has not ended yet."""
    for group in (folder / "inner", folder):
        try:
            group.rmdir()
        except FileNotFoundError:
            continue
        except OSError:
            return False
    return True
