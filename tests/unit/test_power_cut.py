"""A power cut between any two acts of a writer leaves what was or what was to be: recorded, replayed for each cut."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.interrupts import cutting, powercut
from tests.interrupts.powercut import Act

WRITES = """
import sys
from pathlib import Path
from dsv4ctl import maintenance
from dsv4ctl.model import Failure, Pause, Tally
from dsv4ctl.store import Paths, files
paths = Paths(Path(sys.argv[1]))
for text in ("one", "two two", "three" * 10000):
    files.write_atomic(paths.releases / "0001/release.json", text, mode=0o600)
    files.append(paths.audit, text[:20])
files.write_atomic(paths.releases / "0002/release.json", "{}", mode=0o600)
maintenance.keep_pause(paths, Pause(who="alice", reason="a fan", since=1.0, until=2.0))
maintenance.keep_tally(paths.all_starts / "server/tally.json", Tally(parked=Failure(at=1.0, words="too often")))
maintenance.end_pause(paths)
files.remove(paths.releases / "0001/release.json")
files.remove_folder(paths.releases / "0001")
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("cc") is None:
        pytest.skip("needs a C compiler; try: apt-get install gcc libc6-dev")
    return cutting.build(tmp_path_factory.mktemp("cut"))


def recorded(library: Path, folder: Path, program: str, **there: str) -> tuple[Act, ...]:
    """What a program does below a folder in which these files are."""
    log, root = folder / "log", folder / "root"
    root.mkdir()
    for name, text in there.items():
        (root / name).write_text(text)
    environment = {**os.environ, "LD_PRELOAD": str(library), "CUT_ROOTS": str(root), "CUT_LOG": str(log)}
    subprocess.run([sys.executable, "-c", program, root], env=environment, check=True)
    return powercut.parse(log.read_text())


def test_a_power_cut_anywhere_leaves_every_file_old_or_new_and_whole(library: Path, tmp_path: Path) -> None:
    acts = recorded(library, tmp_path, WRITES)
    audit = str(tmp_path / "root/var/lib/dsv4ctl/audit.jsonl")

    assert len(acts) > 60
    assert powercut.broken(powercut.begun({}, {str(tmp_path / "root")}), acts, frozenset({audit})) == []


def test_the_first_line_of_a_trail_outlives_a_power_cut_as_soon_as_it_is_written(library: Path, tmp_path: Path) -> None:
    program = "import sys; from pathlib import Path; from dsv4ctl.store import files; root = Path(sys.argv[1])"
    acts = recorded(library, tmp_path, f"{program}; files.append(root / 'trail', 'line')")
    root = str(tmp_path / "root")

    assert powercut.broken(powercut.begun({}, {root}), acts, frozenset({f"{root}/trail"})) == []


@pytest.mark.parametrize(
    ("program", "complaint"),
    [
        ("open(root / 'file', 'a').write('more')", "neither old nor new"),
        ("(root / 'new').write_text('new'); (root / 'new').replace(root / 'file')", "neither old nor new"),
        ("(root / 'other').unlink()", "at the end not everything is on the disk"),
    ],
)
def test_a_writer_that_syncs_too_little_is_found_out(
    library: Path, tmp_path: Path, program: str, complaint: str
) -> None:
    begin = "import sys; from pathlib import Path; root = Path(sys.argv[1])"
    acts = recorded(library, tmp_path, f"{begin}; {program}", file="old", other="old")
    root = str(tmp_path / "root")
    disk = powercut.begun({f"{root}/file": b"old", f"{root}/other": b"old"}, {root})

    found = powercut.broken(disk, acts, frozenset())

    assert any(complaint in line for line in found), found
