"""Steps that fail: which end the work, and which are told and passed over. On a real file system."""

from pathlib import Path

import pytest

from dsv4ctl import execute
from dsv4ctl.clock import RealClock
from dsv4ctl.host import Host
from dsv4ctl.names import INSTANCE_FOLDER, UNIT_FOLDER
from dsv4ctl.problems import Problem
from dsv4ctl.steps import RemoveFile, is_leftover, is_record
from dsv4ctl.store import Paths
from dsv4ctl.telling import Said, Warns


@pytest.fixture
def host(tmp_path: Path) -> Host:
    """A host under an empty root."""
    return Host(tmp_path, Paths(tmp_path), RealClock())


def removal(host: Host, path: str, *, stays: bool = False) -> RemoveFile:
    """The removal of a file that is there; one that `stays` is a folder, which cannot be removed as one."""
    file = host.paths.under(path)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.mkdir() if stays else file.touch()
    return RemoveFile(path=path, before="", reason="--purge")


def test_an_ending_goes_on_past_what_cannot_be_removed_and_says_it(host: Host) -> None:
    told: list[Said] = []
    steps = (removal(host, f"{UNIT_FOLDER}/a", stays=True), removal(host, f"{UNIT_FOLDER}/b"))

    (problem,) = execute.carry_out(host, steps, told.append, may_fail=is_record)

    assert str(problem) == f"cannot remove {host.paths.units}/a: is a directory"
    assert Warns(str(problem)) in told
    assert not (host.paths.units / "b").exists()


def test_a_change_ends_at_the_first_step_that_fails_unless_it_only_tidies_up(host: Host) -> None:
    unit, rest = removal(host, f"{UNIT_FOLDER}/a", stays=True), removal(host, f"{UNIT_FOLDER}/b")
    leftover = removal(host, f"{INSTANCE_FOLDER}/server-1.json", stays=True)

    with pytest.raises(Problem, match=r"cannot remove .*/a: is a directory"):
        execute.carry_out(host, (leftover, unit, rest), lambda _: None, may_fail=is_leftover)

    assert (host.paths.units / "b").exists()
