"""The built-in topologies, the operator's own, and on which GPUs a mode is placed. Knows the words of the house."""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
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


def find(name: str, given: Mapping[str, Mode]) -> Mode:
    """The mode of this name: of those that are given, which may take a built-in one's place, or built in.

    Raises ValueError that says which modes there are.
    """
    known = {**BUILT_IN, **given}
    if name in known:
        return known[name]
    near = get_close_matches(name, known, n=1)
    raise ValueError((f"did you mean {near[0]}? " if near else "") + f"the modes are {', '.join(known)}")


def place(mode: Mode, gpus: tuple[int, ...] | None) -> Mode:
    """The mode with its roles on `gpus` instead of their own, each taking as many as it has ranks; None: as it is.

    Raises ValueError where there are not as many GPUs as ranks; none at all is allowed, for engines on a CPU.
    """
    return mode if gpus is None else replace(mode, roles=_dealt(mode.roles, gpus))


def change(mode: Mode, role: Role, *, tp: int | None, gpus: tuple[int, ...] | None) -> Mode:
    """The mode with other ranks or GPUs for one of its roles; None: as they are.

    A role that is there twice has so many ranks each, and its GPUs are dealt in order.
    Raises ValueError where the mode has no such role, or there are not as many GPUs as ranks.
    """
    shapes = tuple(replace(shape, tp=tp or shape.tp) for shape in mode.roles if shape.role is role)
    if not shapes:
        raise ValueError(f"mode {mode.name} has {' and '.join(roles(mode))}")
    changed = iter(shapes if gpus is None else _dealt(shapes, gpus))
    return replace(mode, roles=tuple(next(changed) if shape.role is role else shape for shape in mode.roles))


def roles(mode: Mode) -> tuple[Role, ...]:
    """The roles of a mode for which ranks and GPUs can be chosen, each once: all but the router."""
    return tuple(dict.fromkeys(shape.role for shape in mode.roles if shape.role is not Role.ROUTER))


def _dealt(shapes: Iterable[RoleShape], gpus: tuple[int, ...]) -> tuple[RoleShape, ...]:
    """Each with the next GPUs, as many as it has ranks."""
    found = []
    check(sum(shape.tp for shape in shapes), gpus)
    for shape in shapes:
        found.append(replace(shape, gpus=gpus[: shape.tp]))
        gpus = gpus[shape.tp :]
    return tuple(found)


def check(ranks: int, gpus: tuple[int, ...]) -> None:
    """Raises ValueError where there are GPUs, and not one for each rank."""
    if gpus and len(gpus) != ranks:
        raise ValueError(f"{need(ranks)} and {len(gpus)} {'is' if len(gpus) == 1 else 'are'} given")


def need(ranks: int) -> str:
    """How many GPUs ranks need, in words."""
    return "1 rank (tp) needs 1 GPU" if ranks == 1 else f"{ranks} ranks (tp) need {ranks} GPUs"


def check_apart(mode: Mode) -> None:
    """Raises ValueError where roles share a GPU: the second to start would find it taken."""
    users: defaultdict[int, list[Role]] = defaultdict(list)
    for shape in mode.roles:
        for gpu in shape.gpus:
            users[gpu].append(shape.role)
    if twice := [gpu for gpu, some in users.items() if len(some) > 1]:
        both = " and ".join(users[twice[0]])
        raise ValueError(f"GPU{'s' if twice[1:] else ''} {gpus_text(twice)} cannot be of {both} both")


def complete(mode: Mode) -> Mode:
    """The mode with what its roles need besides: a prefill and a decode have a router in front of them.

    Raises ValueError where the roles do not go together.
    """
    there = frozenset(roles(mode))
    if not there:
        raise ValueError("it needs a role: server = { tp = 4, gpus = [0, 1, 2, 3] }")
    if there == {Role.PREFILL, Role.DECODE}:
        return replace(mode, roles=(*mode.roles, ROUTER))
    if there != {Role.SERVER}:
        raise ValueError("it needs either a server, or a prefill and a decode")
    return mode
