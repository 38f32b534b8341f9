"""What engines took is kept on disk, a file a key, and found again by key and by instance."""

from dataclasses import replace
from pathlib import Path

from dsv4ctl import measurements
from dsv4ctl.memory.marks import Amounts, Key, Mark
from dsv4ctl.store import Paths

KEY = Key(host="h", engine_version="0.5.23", model="m", gpu="h200", flags="[1]")
MARK = Mark(key=KEY, digest="d1", fraction=0.88, planned=Amounts(tokens=2), reported=Amounts(tokens=1), at=10.0)


def test_a_mark_is_found_by_its_key_and_by_its_instance(tmp_path: Path) -> None:
    paths = Paths(tmp_path)

    measurements.keep(paths, MARK)

    assert measurements.of_key(paths, KEY) == MARK
    assert measurements.of_digest(paths, "d1") == MARK
    assert measurements.of_key(paths, replace(KEY, model="other")) is None
    assert measurements.of_digest(paths, "d2") is None
    assert [file.parent for file in tmp_path.rglob("*.json")] == [tmp_path / "var/lib/dsv4ctl/memory"]


def test_a_second_measurement_of_a_key_takes_the_place_of_the_first(tmp_path: Path) -> None:
    paths = Paths(tmp_path)
    measurements.keep(paths, MARK)

    measurements.keep(paths, replace(MARK, digest="d2", at=20.0))

    assert measurements.of_digest(paths, "d1") is None
    assert [mark.digest for mark in measurements.all_of(paths)] == ["d2"]


def test_a_file_that_is_no_mark_is_passed_over(tmp_path: Path) -> None:
    paths = Paths(tmp_path)
    measurements.keep(paths, MARK)
    (file,) = (paths.state / "memory").glob("*.json")
    file.write_text("{")

    assert measurements.of_key(paths, KEY) is None
    assert measurements.all_of(paths) == ()


def test_the_oldest_marks_go(tmp_path: Path) -> None:
    paths = Paths(tmp_path)

    for number in range(measurements.KEPT + 3):
        measurements.keep(paths, replace(MARK, key=replace(KEY, flags=str(number)), at=float(number)))

    kept = [mark.at for mark in measurements.all_of(paths)]
    assert len(kept) == measurements.KEPT
    assert min(kept) == 3.0


def test_nothing_was_measured_on_a_new_host(tmp_path: Path) -> None:
    assert measurements.all_of(Paths(tmp_path)) == ()
    assert measurements.of_key(Paths(tmp_path), KEY) is None
