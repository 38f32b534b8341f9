"""Leftovers in /dev/shm, in a folder of the test's own and with real processes."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from dsv4ctl import shm

Start = Callable[..., subprocess.Popen[str]]
US = os.geteuid()

MAPS = """
import mmap, os, time
file = os.open({path!r}, os.O_RDWR)
held = mmap.mmap(file, 0)
os.close(file)
print("up", flush=True)
time.sleep(60)
"""


def dead_pid() -> int:
    ended = subprocess.Popen(["/bin/true"])
    ended.wait()
    return ended.pid


def segment(folder: Path, name: str) -> Path:
    (folder / name).write_bytes(b"x" * 4096)
    return folder / name


def names(folder: Path, uid: int = US) -> list[str]:
    return [Path(one.path).name for one in shm.leftovers([uid], folder)]


def test_segments_of_dead_creators_are_found_and_removed(tmp_path: Path) -> None:
    segment(tmp_path, f"sgl_shm_mq_{dead_pid()}_0")
    segment(tmp_path, "sglang_loads_ab12.shm")

    found = shm.leftovers([US], tmp_path)

    assert [shm.remove(one) for one in found] == [True, True]
    assert list(tmp_path.iterdir()) == []
    assert found[0].size_bytes == 4096


@pytest.mark.parametrize("name", ["sgl_shm_mq_{pid}_0", "torch_{pid}_17_4"])
def test_a_segment_whose_creator_lives_stays(tmp_path: Path, name: str) -> None:
    segment(tmp_path, name.format(pid=os.getpid()))

    assert names(tmp_path) == []


def test_a_segment_that_somebody_has_mapped_stays(tmp_path: Path, start: Start) -> None:
    held = segment(tmp_path, f"sgl_shm_mq_{dead_pid()}_0")
    process = start(MAPS.format(path=str(held)))

    assert names(tmp_path) == []
    process.kill()
    process.wait()
    assert names(tmp_path) == [held.name]


def test_what_no_engine_makes_or_another_user_owns_stays(tmp_path: Path) -> None:
    segment(tmp_path, "PostgreSQL.1804289383")
    segment(tmp_path, "pulse-shm-12")
    (tmp_path / "sglang_folder").mkdir()
    segment(tmp_path, "sglang_loads_theirs.shm")

    assert names(tmp_path, uid=US + 1) == []
    assert names(tmp_path) == ["sglang_loads_theirs.shm"]


def test_a_segment_that_was_made_anew_meanwhile_is_not_removed(tmp_path: Path) -> None:
    old = segment(tmp_path, "sglang_loads_ab12.shm")
    (found,) = shm.leftovers([US], tmp_path)
    segment(tmp_path, "keeps_the_inode_taken")
    old.rename(tmp_path / "sglang_elsewhere")
    segment(tmp_path, "sglang_loads_ab12.shm")

    assert not shm.remove(found)
    assert (tmp_path / "sglang_loads_ab12.shm").exists()
