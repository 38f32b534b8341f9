"""The house keeps its own rules: formatting, types, the direction of imports, nothing dead, nothing undeclared."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent

CHECKS = {
    "ruff finds nothing": ["ruff", "check", "."],
    "everything is formatted": ["ruff", "format", "--check", "."],
    "mypy --strict finds nothing": ["mypy", "--strict"],
    "imports run from face to rim and the pure rooms are pure": ["lint-imports"],
    "every dependency is declared and used": ["deptry", "dsv4ctl"],
    "no code is dead": ["vulture", "dsv4ctl", "tests/house/vulture_allowed.py", "--min-confidence", "60"],
}


@pytest.mark.parametrize("claim", CHECKS)
def test_the_linters_find_nothing(claim: str) -> None:
    program, *words = CHECKS[claim]

    done = subprocess.run([BIN / program, *words], cwd=ROOT, capture_output=True, text=True, check=False)

    assert done.returncode == 0, f"{claim}: {done.stdout}{done.stderr}"


@pytest.mark.parametrize("path", sorted((ROOT / "dsv4ctl").rglob("*.py")), ids=lambda p: str(p.relative_to(ROOT)))
def test_no_file_outgrows_one_room(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= 320
