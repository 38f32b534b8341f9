"""Where the rehearsal finds the real router."""

import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from dsv4ctl.rehearsal import router, story

ASK = "from dsv4ctl.rehearsal import router; print(router.find())"


def _found(**environment: str) -> str:
    kept = {name: value for name, value in os.environ.items() if name != "DSV4CTL_ROUTER"}
    argv = (sys.executable, "-c", ASK)
    return subprocess.run(
        argv, env={**kept, **environment}, capture_output=True, text=True, check=True, timeout=20
    ).stdout.strip()


def test_the_router_that_is_named_is_taken_whatever_is_prepared(tmp_path: Path) -> None:
    assert _found(DSV4CTL_ROUTER=str(tmp_path)) == str(tmp_path)


def test_a_prepared_router_counts_only_when_it_is_whole() -> None:
    built = Path(router.__file__).parents[2] / "build/router"
    assert _found() == (str(built) if (built / router.STAMP).exists() else "None")


def test_an_installation_that_is_not_editable_finds_what_its_checkout_has_built(tmp_path: Path) -> None:
    """The set-up of `make try`: the package is a copy in .venv, and the router beside .venv."""
    venv.create(tmp_path / ".venv", with_pip=False)
    python = tmp_path / ".venv/bin/python"
    packages = tmp_path / f".venv/lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"
    shutil.copytree(Path(router.__file__).parents[1], packages / "dsv4ctl")
    stamp = tmp_path / "build/router" / router.STAMP
    stamp.parent.mkdir(parents=True)
    stamp.touch()

    found = subprocess.run((python, "-I", "-c", ASK), capture_output=True, text=True, check=True, timeout=20, env={})

    assert found.stdout.strip() == str(stamp.parent)


@pytest.mark.parametrize("mode", ["pd", "dual-tp4"])
def test_a_mode_that_needs_the_router_is_rehearsed_only_with_it_and_one_sentence_says_so(mode: str) -> None:
    assert story.possible(mode, Path("/opt/router")) == (mode, "")
    instead, why = story.possible(mode, None)
    assert instead == "single-tp4"
    assert why.startswith(f"cannot rehearse mode {mode}, so this is single-tp4: no sglang-router here")


def test_a_mode_without_a_router_needs_none() -> None:
    assert story.possible("single-tp8", None) == ("single-tp8", "")
