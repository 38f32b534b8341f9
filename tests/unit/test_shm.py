"""Leftovers in /dev/shm, in a folder of the test's own and with real processes."""

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

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


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder of the test's own where segments lie: not every file system knows leases."""
    with TemporaryDirectory(dir="/dev/shm") as folder:
        yield Path(folder)


def dead_pid() -> int:
    ended = subprocess.Popen(["/bin/true"])
    ended.wait()
    return ended.pid


def segment(folder: Path, name: str) -> Path:
    (folder / name).write_bytes(b"x" * 4096)
    return folder / name


def names(folder: Path, uid: int = US) -> list[str]:
    return [Path(one.path).name for one in shm.leftovers([uid], folder)]


def test_segments_of_dead_creators_are_found_and_removed(shared: Path) -> None:
    segment(shared, f"sgl_shm_mq_{dead_pid()}_0")
    segment(shared, "sglang_loads_ab12.shm")

    found = shm.leftovers([US], shared)

    assert [shm.remove(one) for one in found] == [True, True]
    assert list(shared.iterdir()) == []
    assert found[0].size_bytes == 4096


@pytest.mark.parametrize("name", ["sgl_shm_mq_{pid}_0", "torch_{pid}_17_4"])
def test_a_segment_whose_creator_lives_stays(shared: Path, name: str) -> None:
    segment(shared, name.format(pid=os.getpid()))

    assert names(shared) == []


def test_a_segment_that_somebody_has_mapped_stays(shared: Path, start: Start) -> None:
    held = segment(shared, f"sgl_shm_mq_{dead_pid()}_0")
    process = start(MAPS.format(path=str(held)))

    assert names(shared) == []
    process.kill()
    process.wait()
    assert names(shared) == [held.name]


def test_a_segment_that_is_open_somewhere_is_not_even_removed_after_the_look(shared: Path) -> None:
    held = segment(shared, "psm_ab12")
    (found,) = shm.leftovers([US], shared)

    with held.open("rb"):
        assert names(shared) == []
        assert not shm.remove(found)
    assert shm.remove(found)


OPENS = """
import os
print("up", flush=True)
while True:
    os.close(os.open({path!r}, os.O_RDWR))
"""


def test_whoever_opens_a_segment_while_it_is_looked_at_does_not_end_us(shared: Path, start: Start) -> None:
    opened = segment(shared, "psm_ab12")
    start(OPENS.format(path=str(opened)))

    seen = {len(names(shared)) for _ in range(3000)}

    assert seen == {0, 1}


def test_what_no_engine_makes_or_another_user_owns_stays(shared: Path) -> None:
    segment(shared, "PostgreSQL.1804289383")
    segment(shared, "pulse-shm-12")
    (shared / "sglang_folder").mkdir()
    segment(shared, "sglang_loads_theirs.shm")

    assert names(shared, uid=US + 1) == []
    assert names(shared) == ["sglang_loads_theirs.shm"]


def test_a_segment_that_was_made_anew_meanwhile_is_not_removed(shared: Path) -> None:
    old = segment(shared, "sglang_loads_ab12.shm")
    (found,) = shm.leftovers([US], shared)
    segment(shared, "keeps_the_inode_taken")
    old.rename(shared / "sglang_elsewhere")
    segment(shared, "sglang_loads_ab12.shm")

    assert not shm.remove(found)
    assert (shared / "sglang_loads_ab12.shm").exists()


def test_the_space_tells_what_is_left_what_is_ours_and_who_has_the_most(shared: Path) -> None:
    segment(shared, "sglang_loads_ab12.shm")
    (shared / "inner").mkdir()
    (shared / "inner" / "somebodys").write_bytes(b"x" * 65536)

    found = shm.space([US], shared)

    assert found.ours_bytes == 4096
    assert shm.space([US + 1], shared).ours_bytes == 0
    assert 0 < found.free_bytes <= found.total_bytes
    (share,) = found.shares
    assert (share.used_bytes, share.files) == (69632, 2)
    assert share.largest == str(shared / "inner" / "somebodys")
