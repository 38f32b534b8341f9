"""The house keeps its own rules: formatting, types, the direction of imports, nothing dead, nothing undeclared."""

import ast
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
    "every dependency is declared and used": ["deptry", "."],
}

# What a framework calls by name: click, http.server, argparse, io, ctypes.
CALLED_BY_OTHERS = (
    "list_commands,get_command,format_commands,resolve_command,readinto,readable,makefile,do_*,log_*,handle*,"
    "version_string"
)


@pytest.mark.parametrize("claim", CHECKS)
def test_the_linters_find_nothing(claim: str) -> None:
    program, *words = CHECKS[claim]

    done = subprocess.run([BIN / program, *words], cwd=ROOT, capture_output=True, text=True, check=False)

    assert done.returncode == 0, f"{claim}: {done.stdout}{done.stderr}"


def test_no_code_is_dead() -> None:
    argv: list[str | Path] = [
        BIN / "vulture",
        "dsv4ctl",
        "tests",
        "bench",
        "--min-confidence=60",
        f"--ignore-names={CALLED_BY_OTHERS}",
    ]

    found = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False).stdout.splitlines()

    # Fields of values and members of enums are read by name elsewhere (JSON, pydantic), so only code itself counts.
    kinds = ("unused function", "unused class", "unused method", "unused import", "unreachable")
    dead = [line for line in found if line.startswith("dsv4ctl/") and any(kind in line for kind in kinds)]
    assert not dead, "\n".join(dead)


def functions(path: Path) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, kinds)]


def positional(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    """The names that may be given by their place alone, without whose method it is."""
    names = [one.arg for one in (*function.args.posonlyargs, *function.args.args)]
    return names[1:] if names[:1] in (["self"], ["cls"]) else names


def test_no_function_outgrows_one_page() -> None:
    long = [
        f"{path.relative_to(ROOT)}: {function.name}"
        for path in (ROOT / "dsv4ctl").rglob("*.py")
        for function in functions(path)
        if (function.end_lineno or 0) - function.lineno >= 50
    ]
    assert not long, "\n".join(long)


def test_no_function_takes_more_than_four_positional_parameters() -> None:
    # click calls commands by keyword alone.
    rooms = [path for path in (ROOT / "dsv4ctl").rglob("*.py") if path.parent.name != "cli"]
    wide = [
        f"{path.relative_to(ROOT)}: {function.name}{tuple(names)}"
        for path in rooms
        for function in functions(path)
        if len(names := positional(function)) > 4
    ]
    assert not wide, "\n".join(wide)


@pytest.mark.parametrize("path", sorted((ROOT / "dsv4ctl").rglob("*.py")), ids=lambda p: str(p.relative_to(ROOT)))
def test_no_file_outgrows_one_room(path: Path) -> None:
    assert len(path.read_text().splitlines()) < 300
