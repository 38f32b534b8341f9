"""systemd-analyze on what is rendered: verify prints nothing at all, and the sandbox is as tight as it was measured."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from dsv4ctl import modes, systemd
from dsv4ctl.model import HostSpec, Numa
from tests import releases

pytestmark = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
MOST_EXPOSED = 2.7


def written(folder: Path, spec: HostSpec, **facts: Any) -> list[Path]:
    """The unit files of a release for the systemd of this machine, in a folder; what they start is really there."""
    made = releases.render(spec, releases.here(systemd_version=systemd.version(), **facts))
    texts = {folder / Path(file.path).name: file.text for file in made.files if "/systemd/" in file.path}
    for path, text in texts.items():
        path.write_text(text)
    return list(texts)


@pytest.mark.parametrize("name", releases.SPECS)
def test_verify_prints_nothing(name: str, tmp_path: Path) -> None:
    assert systemd.verify(written(tmp_path, releases.SPECS[name])) == ""


@pytest.mark.parametrize("host", releases.HOSTS.values(), ids=releases.HOSTS)
@pytest.mark.parametrize("mode", modes.BUILT_IN)
def test_verify_prints_nothing_on_any_topology(mode: str, host: Numa, tmp_path: Path) -> None:
    assert systemd.verify(written(tmp_path, releases.spec(mode), numa=host)) == ""


def test_verify_would_have_complained(tmp_path: Path) -> None:
    unit = next(path for path in written(tmp_path, releases.spec()) if path.suffix == ".service")
    unit.write_text(unit.read_text().replace("RestartSec=", "RestartSeconds="))
    assert "RestartSeconds" in systemd.verify([unit])


@pytest.mark.skipif(
    shutil.which("systemd-analyze") is not None and systemd.version() < 250, reason="no --offline before 250"
)
@pytest.mark.parametrize("name", releases.SPECS)
def test_the_sandbox_is_as_tight_as_it_can_be_with_gpus(name: str, tmp_path: Path) -> None:
    (unit,) = (path for path in written(tmp_path, releases.SPECS[name]) if path.suffix == ".service")
    assert systemd.security(unit) <= MOST_EXPOSED
