"""The modes that a configuration holds: the operator's own, and built-in ones of which it changes a role."""

from collections.abc import Iterator, Mapping
from difflib import get_close_matches

from dsv4ctl import modes
from dsv4ctl.config.faults import Fault
from dsv4ctl.config.schema import ModeTable, RoleTable
from dsv4ctl.model import Mode, Role, RoleShape

# How like a built-in name another one must be to be taken for a slip of the pen.
LIKE = 0.8
Read = tuple[Mode, tuple[Fault, ...]]


def read(tables: Mapping[str, ModeTable], *, placed: bool) -> tuple[Mapping[str, Mode], tuple[Fault, ...]]:
    """The modes that have no fault, by name, and the faults of the others.

    `placed`: GPUs are given for whichever mode is chosen, so that those of a built-in one need not fit new ranks.
    """
    found: dict[str, Mode] = {}
    faults: list[Fault] = []
    for name, table in tables.items():
        mode, wrong = _changed(name, table, placed=placed) if name in modes.BUILT_IN else _own(name, table)
        faults += wrong
        if not wrong:
            found[name] = mode
    return found, tuple(faults)


def _given(table: ModeTable) -> Iterator[tuple[Role, RoleTable]]:
    for role in Role:
        if (given := getattr(table, role, None)) is not None:
            yield role, given


def _changed(name: str, table: ModeTable, *, placed: bool) -> Read:
    """A built-in mode with what is given of its roles in place of its own."""
    mode, wrong = modes.BUILT_IN[name], []
    for role, given in _given(table):
        try:
            mode = modes.change(mode, role, tp=given.tp, gpus=given.gpus)
        except ValueError as error:
            wrong.append(Fault(("modes", name, role), f"cannot use this role: {error}"))
    if not wrong and not placed:
        wrong = [*_misfits(mode), *_shared(mode)]
    return mode, tuple(wrong)


def _misfits(mode: Mode) -> Iterator[Fault]:
    """Roles that were given other ranks than their built-in GPUs, and no GPUs."""
    for shape in mode.roles:
        if shape.gpus and len(shape.gpus) != shape.tp:
            own = f"the built-in ones are {modes.gpus_text(shape.gpus)}; give gpus besides"
            yield Fault(("modes", mode.name, shape.role), f"cannot use this role: {modes.need(shape.tp)}, and {own}")


def _own(name: str, table: ModeTable) -> Read:
    """A mode of the operator's own, which has to be whole."""
    shapes, wrong = [], []
    for role, given in _given(table):
        missing = [key for key in ("tp", "gpus") if getattr(given, key) is None]
        wrong += [
            Fault(("modes", name, role), f"cannot be used without the key {key}{_meant(name)}") for key in missing
        ]
        if given.tp is None or given.gpus is None:
            continue
        shapes.append(RoleShape(role=role, tp=given.tp, gpus=given.gpus))
        try:
            modes.check(given.tp, given.gpus)
        except ValueError as error:
            wrong.append(Fault(("modes", name, role), f"cannot use this role: {error}"))
    mode = Mode(name=name, roles=tuple(shapes))
    if wrong:
        return mode, tuple(wrong)
    try:
        mode = modes.complete(mode)
    except ValueError as error:
        return mode, (Fault(("modes", name), f"cannot use this mode: {error}"),)
    return mode, tuple(_shared(mode))


def _meant(name: str) -> str:
    """A built-in mode, of which keys may be left out, with nearly this name."""
    near = get_close_matches(name, modes.BUILT_IN, n=1, cutoff=LIKE)
    return f"; did you mean modes.{near[0]}, where it may be left out?" if near else ""


def _shared(mode: Mode) -> Iterator[Fault]:
    try:
        modes.check_apart(mode)
    except ValueError as error:
        yield Fault(("modes", mode.name), f"cannot use this mode: {error}")
