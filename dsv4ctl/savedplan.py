"""A plan that was written down, as a contract: what it stands on, and what of that has moved since. Pure."""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from dsv4ctl import record, secret
from dsv4ctl.problems import Problem, WrongOption
from dsv4ctl.screen_steps import unit_diff


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedFile:
    """A unit file or drop-in that systemd has loaded: a digest of its text, and the text with its secrets hidden."""

    path: str
    digest: str
    shown: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedUnit:
    """A unit of ours as systemd has it. `waits`: its files changed and systemd has not read them yet."""

    name: str
    files: tuple[LoadedFile, ...]
    waits: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """What a plan stands on. `current`: the number of the installed release; None: none that is known."""

    digest: str
    current: int | None
    driver: str
    gpus: tuple[tuple[int, str], ...]
    units: tuple[LoadedUnit, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedPlan:
    """A plan on its ground: when and by whom it was made, from which config and options, and its steps in words."""

    at: float
    who: str
    config: str | None
    options: tuple[tuple[str, str], ...]
    switches: tuple[tuple[str, bool], ...]
    ground: Ground
    steps: tuple[str, ...]


def loaded(path: str, text: str) -> LoadedFile:
    """A file as it is fixed in a plan."""
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return LoadedFile(path=path, digest=digest, shown=secret.unit_shown(text))


def parse(text: str, name: str) -> SavedPlan:
    """The plan in the text of file `name`. Raises WrongOption for anything that `plan --out` does not write."""
    try:
        return record.load(text, SavedPlan)
    except Problem as problem:
        why = str(problem).partition(": ")[2]
        raise WrongOption(
            f"cannot deploy {name}: it is no plan, or not all of one ({why})", hint=f"dsv4ctl plan --out {name}"
        ) from problem


def moved(then: Ground, now: Ground) -> tuple[str, ...]:
    """What of the ground is not where it was, each in words; () when all is."""
    return tuple(_moved(then, now))


def _moved(then: Ground, now: Ground) -> Iterator[str]:
    if then.digest != now.digest:
        yield f"the release would be {now.digest}, not {then.digest}: config, templates, engine or GPUs changed"
    if then.current != now.current:
        yield f"installed is {_release(now.current)}, and was {_release(then.current)}"
    if then.driver != now.driver:
        yield f"the driver is {now.driver or 'not told'}, and was {then.driver or 'not told'}"
    before, after = dict(then.gpus), dict(now.gpus)
    for index in sorted(before.keys() | after.keys()):
        if before.get(index) != after.get(index):
            yield f"GPU {index} is {after.get(index, 'gone')}, and was {before.get(index, 'not there')}"
    yield from _units({one.name: one for one in then.units}, {one.name: one for one in now.units})


def _units(then: Mapping[str, LoadedUnit], now: Mapping[str, LoadedUnit]) -> Iterator[str]:
    for name in sorted(then.keys() | now.keys()):
        before, after = _files(then.get(name)), _files(now.get(name))
        for path in sorted(before.keys() | after.keys()):
            old, new = before.get(path), after.get(path)
            if old is None or new is None:
                yield f"{name}: {path} {'is gone' if new is None else 'is new'}"
            elif old.digest != new.digest:
                shown = unit_diff({path: old.shown}, {path: new.shown}).rstrip()
                yield f"{name}: {path} was changed" + (f"\n{shown}" if shown else ", in values that are not shown")
        if name in now and now[name].waits and not (name in then and then[name].waits):
            yield f"{name}: its files changed, and systemd has not read them yet"


def _files(unit: LoadedUnit | None) -> dict[str, LoadedFile]:
    return {file.path: file for file in unit.files} if unit else {}


def _release(number: int | None) -> str:
    return f"release {number}" if number is not None else "no known release"
