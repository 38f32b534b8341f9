"""However dsv4ctl is installed, it finds its templates and units."""

import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LOOK = """
from dsv4ctl import resources
print(len(resources.template("engine.service.j2")), len(resources.unit("dsv4.slice")))
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    # The dev extras hold hatchling, so the build needs no network.
    argv: list[str | Path] = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, ROOT]
    subprocess.run(argv, check=True, capture_output=True)
    return next(folder.glob("*.whl"))


def test_the_wheel_installed_into_an_empty_environment_finds_templates_and_units(wheel: Path, tmp_path: Path) -> None:
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv/bin/python"

    subprocess.run([python, "-m", "pip", "install", "-q", "--no-deps", wheel], check=True, capture_output=True)
    # The dependencies come from this environment; what is tested is where the wheel puts our own files.
    known = os.pathsep.join(p for p in sys.path if p.endswith("site-packages"))
    done = subprocess.run(
        [python, "-c", LOOK], cwd=tmp_path, env={"PYTHONPATH": known}, capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr
    assert all(int(n) > 0 for n in done.stdout.split())


def test_the_wheel_carries_what_the_rehearsal_needs(wheel: Path) -> None:
    names = subprocess.run(
        [sys.executable, "-m", "zipfile", "-l", wheel], check=True, capture_output=True, text=True
    ).stdout

    assert "dsv4ctl/rehearsal/boot.sh" in names
    assert "dsv4ctl/templates/engine.service.j2" in names
    assert "dsv4ctl/units/dsv4.target" in names


def test_an_editable_install_finds_them_too() -> None:
    done = subprocess.run([sys.executable, "-c", LOOK], cwd="/", capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
