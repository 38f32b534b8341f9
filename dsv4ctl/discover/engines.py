"""Engine environments on disk: interpreters with SGLang's package metadata beside them. Imports and runs nothing."""

import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path

from dsv4ctl import there
from dsv4ctl.found import EngineFound

COMMON_PLACES = (
    *("opt/*/bin/python", "opt/*/*/bin/python", "opt/*/envs/*/bin/python", "srv/*/bin/python", "srv/*/*/bin/python"),
    *("venv/bin/python", "root/*/bin/python", "home/*/*/bin/python", "usr/local/bin/python3", "usr/bin/python3"),
)
_DIST_INFO = re.compile(r"sglang-([0-9][^-]*)\.dist-info")


def engines(candidates: Iterable[Path], sign: str, *, serving: bool = False) -> Iterator[EngineFound]:
    """The candidates that are interpreters with SGLang, found by `sign`."""
    for candidate in candidates:
        for python in dict.fromkeys((_plain(candidate), candidate.resolve())):
            version = installed_version(python)
            if version and str(python).isprintable():
                yield EngineFound(path=str(python), version=version, signs=(sign,), serving=serving)
                break


def _plain(python: Path) -> Path:
    """bin/python where it is the same as this bin/python3 or bin/python3.11, so that one environment is found once."""
    plain = python.with_name("python")
    return plain if there.is_file(plain) and plain.resolve() == python.resolve() else python


def installed_version(python: Path) -> str:
    """The version of SGLang installed for an interpreter, by the metadata in its site-packages; '' when there is none.

    An interpreter in a virtual environment is a link, and the link's own place counts.
    """
    if not (there.is_file(python) and python.stat().st_mode & 0o111):
        return ""
    prefix = python.parent.parent
    folders = chain(prefix.glob("lib*/python3*/*-packages"), prefix.glob("local/lib/python3*/*-packages"))
    names = (entry.name for folder in folders for entry in folder.glob("sglang-*.dist-info"))
    versions = [match[1] for name in names if (match := _DIST_INFO.fullmatch(name))]
    return versions[0] if versions else ""


def active(environment: Mapping[str, str]) -> Iterator[Path]:
    """The interpreter of the virtual environment that this environment is in."""
    if environment.get("VIRTUAL_ENV"):
        yield Path(environment["VIRTUAL_ENV"]) / "bin/python"


def on_path(environment: Mapping[str, str]) -> Iterator[Path]:
    """The interpreters that PATH leads to, that of the `sglang` script first."""
    for name in ("sglang", "python3", "python"):
        program = shutil.which(name, path=environment.get("PATH", ""))
        if program:
            yield Path(program) if name != "sglang" else _beside(Path(program))


def _beside(script: Path) -> Path:
    """The interpreter of an installed script: the one its first line names, else the one beside it."""
    with script.open("rb") as file:
        first = file.readline(4096)
    match = re.match(rb"#!(/\S+/python[0-9.]*)\s", first)
    return Path(os.fsdecode(match[1])) if match else script.parent / "python"


def below(root: Path, patterns: Iterable[str]) -> Iterator[Path]:
    """What is there of the patterns, in their order."""
    return chain.from_iterable(sorted(root.glob(pattern)) for pattern in patterns)
