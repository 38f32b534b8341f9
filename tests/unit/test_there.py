"""Files of others, seen by whoever may not look: no sign, and no fault of ours."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from dsv4ctl import there
from dsv4ctl.discover import checkpoints, engines

NOBODY = 65534


@pytest.fixture
def hidden(tmp_path: Path) -> Iterator[Path]:
    """A folder that we, nobody from now on, may not look into."""
    if os.geteuid() != 0:
        pytest.skip("root alone can become somebody else")
    folder = tmp_path / "root"
    (folder / "venv/bin").mkdir(parents=True)
    (folder / "venv/pyvenv.cfg").write_text("")
    (folder / "venv/bin/python").write_text("")
    (folder / "venv/bin/python").chmod(0o755)
    folder.chmod(0o700)
    os.seteuid(NOBODY)
    yield folder
    os.seteuid(0)


def test_what_may_not_be_looked_at_is_not_there(hidden: Path) -> None:
    with pytest.raises(PermissionError):
        (hidden / "venv/pyvenv.cfg").is_file()

    assert not there.is_file(hidden / "venv/pyvenv.cfg")
    assert not there.is_folder(hidden / "venv")


def test_an_environment_and_a_checkpoint_of_others_are_no_find(hidden: Path) -> None:
    assert list(engines.engines([hidden / "venv/bin/python"], "on PATH")) == []
    assert checkpoints.checkpoint(hidden / "venv", "on PATH") is None
