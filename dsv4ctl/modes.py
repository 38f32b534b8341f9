"""The built-in topologies, the operator's own, and on which GPUs a mode is placed. Knows the words of the house."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from difflib import get_close_matches

from dsv4ctl.model import Mode, Role, RoleShape

DEFAULT = "single-tp4"
ROUTER = RoleShape(role=Role.ROUTER, tp=0, gpus=())


def _mode(name: str, *roles: tuple[Role, range], router: bool = False) -> Mode:
    shapes = tuple(RoleShape(role=role, tp=len(gpus), gpus=tuple(gpus)) for role, gpus in roles)
    return Mode(name=name, roles=(*shapes, ROUTER) if router else shapes)


BUILT_IN: Mapping[str, Mode] = {
    mode.name: mode
    for mode in (
        _mode("single-tp4", (Role.SERVER, range(4))),
        _mode("single-tp8", (Role.SERVER, range(8))),
        _mode("pd", (Role.PREFILL, range(4)), (Role.DECODE, range(4, 8)), router=True),
        _mode("dual-tp4", (Role.SERVER, range(4)), (Role.SERVER, range(4, 8)), router=True),
    )
}

MOST_GPUS = 1024
GPUS_ALLOWED = (
    f'allowed are GPU indices from 0 to {MOST_GPUS - 1}, each once: [0, 1, 2, 3], "0-3", "0,2,4,6", or [] for none'
)


def parse_gpus(value: object) -> tuple[int, ...]:
    """GPU indices in PCI bus order, from a list of integers or from text such as "4-7" or "0,2,4,6"; "none" is no GPU.

    Raises ValueError with what is allowed.
    """
    parts = _ranges(value) if isinstance(value, str) else value
    if not isinstance(parts, list | tuple):
        raise ValueError(GPUS_ALLOWED)
    for part in parts:
        if not isinstance(part, int) or isinstance(part, bool) or not 0 <= part < MOST_GPUS:
            raise ValueError(GPUS_ALLOWED)
    if len(set(parts)) != len(parts):
        raise ValueError(GPUS_ALLOWED)
    return tuple(parts)


def _ranges(text: str) -> list[int]:
    if text.strip() in ("", "none"):
        return []
    indices: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r" *([0-9]{1,4})(?: *- *([0-9]{1,4}))? *", part)
        if match is None or int(match[2] or match[1]) < int(match[1]):
            raise ValueError(GPUS_ALLOWED)
        indices.extend(range(int(match[1]), int(match[2] or match[1]) + 1))
    return indices


def gpus_text(gpus: Iterable[int]) -> str:
    """Indices in the form that `parse_gpus` reads, runs of three and more shortened: "0-3", "0,2,4,6", "none"."""
    runs: list[list[int]] = []
    for gpu in gpus:
        if runs and gpu == runs[-1][-1] + 1:
            runs[-1].append(gpu)
        else:
            runs.append([gpu])
    return ",".join(f"{run[0]}-{run[-1]}" if len(run) > 2 else ",".join(map(str, run)) for run in runs) or "none"


def find(name: str, own: Mapping[str, Mode]) -> Mode:
    """The mode of this name, built in or the operator's.

    Raises ValueError that says which modes there are.
    """
    known = (*BUILT_IN, *own)
    if name in own:
        return own[name]
    if name in BUILT_IN:
        return BUILT_IN[name]
    near = get_close_matches(name, known, n=1)
    raise ValueError((f"did you mean {near[0]}? " if near else "") + f"the modes are {', '.join(known)}")


def place(mode: Mode, gpus: tuple[int, ...] | None) -> Mode:
    """The mode with its roles on `gpus` instead of their own, each taking as many as it has ranks; None: as it is.

    Raises ValueError where there are not as many GPUs as ranks; none at all is allowed, for engines on a CPU.
    """
    if gpus is None:
        return mode
    ranks = sum(shape.tp for shape in mode.roles)
    if gpus and len(gpus) != ranks:
        raise ValueError(f"{ranks} ranks (tp) need {ranks} GPUs and {len(gpus)} are given")
    return replace(mode, roles=tuple(_dealt(mode.roles, gpus)))


def _dealt(shapes: Iterable[RoleShape], gpus: tuple[int, ...]) -> Iterator[RoleShape]:
    for shape in shapes:
        yield replace(shape, gpus=gpus[: shape.tp])
        gpus = gpus[shape.tp :]


def check(shape: RoleShape) -> None:
    """Raises ValueError where a role's ranks and GPUs do not match."""
    if shape.gpus and len(shape.gpus) != shape.tp:
        raise ValueError(f"{shape.tp} ranks (tp) need {shape.tp} GPUs and {len(shape.gpus)} are given")


def complete(mode: Mode) -> Mode:
    """The mode with what its roles need besides: a prefill and a decode have a router in front of them.

    Raises ValueError where the roles do not go together.
    """
    roles = frozenset(shape.role for shape in mode.roles)
    if not roles:
        raise ValueError("it needs a role: server = { tp = 4, gpus = [0, 1, 2, 3] }")
    if roles == {Role.PREFILL, Role.DECODE}:
        return replace(mode, roles=(*mode.roles, ROUTER))
    if roles != {Role.SERVER}:
        raise ValueError("it needs either a server, or a prefill and a decode")
    return mode
