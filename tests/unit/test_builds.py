"""What an environment holds, asked of a real interpreter in front of which made-up packages stand."""

import sys
from pathlib import Path

import pytest

from dsv4ctl import builds
from dsv4ctl.engine import router
from dsv4ctl.model import EngineBuild, EngineParts, EngineSpec, HostSpec, RouterSpec
from dsv4ctl.modes import BUILT_IN
from dsv4ctl.problems import EngineMissing


def interpreter(folder: Path) -> str:
    """A Python that finds the packages of a folder, as one in a virtual environment does."""
    program = folder / "python"
    program.write_text(f'#!/bin/sh\nPYTHONPATH={folder} exec {sys.executable} "$@"\n')
    program.chmod(0o755)
    return str(program)


def package(folder: Path, name: str, **files: str) -> None:
    (folder / name).mkdir(parents=True)
    for file, text in {"__init__.py": "raise SystemExit('imported')\n", **files}.items():
        path = folder / name / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def spec(python: str, router_python: str | None = None) -> HostSpec:
    return HostSpec(mode=BUILT_IN["pd"], engine=EngineSpec(python=python), router=RouterSpec(python=router_python))


@pytest.mark.parametrize(("server", "has_ready"), [('@app.get("/ready")\n', True), ('@app.get("/health")\n', False)])
def test_what_an_engine_has_besides_is_found_and_nothing_is_imported(
    tmp_path: Path,
    server: str,
    has_ready: bool,  # noqa: FBT001 -- a parameter
) -> None:
    package(tmp_path, "sglang", **{"srt/entrypoints/http_server.py": server})
    package(tmp_path, "nixl")
    found = builds.parts_of(spec(interpreter(tmp_path)))
    assert found == EngineParts(modules=frozenset({"nixl"}), has_ready=has_ready)


def test_an_environment_without_transfer_modules_has_none(tmp_path: Path) -> None:
    package(tmp_path, "sglang")
    assert builds.parts_of(spec(interpreter(tmp_path))) == EngineParts()


def test_an_interpreter_without_the_engine_cannot_tell(tmp_path: Path) -> None:
    with pytest.raises(EngineMissing, match=f"cannot tell what {tmp_path}/python has besides sglang"):
        builds.parts_of(spec(interpreter(tmp_path)))


def test_the_router_is_found_in_an_environment_of_its_own(tmp_path: Path) -> None:
    package(tmp_path, "sglang_router", **{"launch_router.py": ""})
    package(tmp_path, "sglang_router-0.3.2.dist-info", METADATA="Name: sglang-router\nVersion: 0.3.2\n")
    python = interpreter(tmp_path)
    found = builds.router_of(spec("/no/engine", python))
    assert found is not None
    assert (found.python, found.version, found.launch) == (python, "0.3.2", router.LAUNCH)
    assert found.stamp.startswith(f"sglang-router {tmp_path}/sglang_router ")


def test_an_environment_without_a_router_has_none(tmp_path: Path) -> None:
    assert builds.router_of(spec(interpreter(tmp_path))) is None


def test_the_options_of_a_program_are_those_of_its_own_help(tmp_path: Path) -> None:
    package(
        tmp_path, "program", **{"__main__.py": "print('options:\\n  --policy {random,manual}  how')", "__init__.py": ""}
    )
    build = EngineBuild(python=interpreter(tmp_path), version="1", launch=("-m", "program"))
    found = builds.with_options(build, {})
    assert (found.options, found.choices) == (frozenset({"--policy"}), {"--policy": ("random", "manual")})


def test_a_program_without_a_help_is_told_with_what_it_said_last(tmp_path: Path) -> None:
    build = EngineBuild(python=interpreter(tmp_path), version="1", launch=("-m", "program"))
    with pytest.raises(EngineMissing, match=f"cannot read the options of {tmp_path}/python: .*No module named program"):
        builds.with_options(build, {})
