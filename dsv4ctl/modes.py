"""The built-in topologies, the operator's own, and on which GPUs a mode is placed. Knows the words of the house."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from difflib import get_close_matches

from dsv4ctl.model import Mode, Role, RoleShape

DEFAULT = "single-tp4"
BUILT_IN: Mapping[str, Mode] = {
    f"single-tp{tp}": Mode(name=f"single-tp{tp}", roles=(RoleShape(role=Role.SERVER, tp=tp, gpus=tuple(range(tp))),))
    for tp in (4, 8)
}
# Names that the documentation already uses; they must not be taken for something else in the meantime.
NOT_BUILT = ("pd", "dual-tp4")

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

    Raises ValueError that says which modes there are, or that the mode is not built yet.
    """
    known = (*BUILT_IN, *own)
    if name in NOT_BUILT:
        raise ValueError(f"mode {name} is not built yet; use {' or '.join(known)}")
    if name in own:
        return own[name]
    if name in BUILT_IN:
        return BUILT_IN[name]
    near = get_close_matches(name, known, n=1)
    raise ValueError((f"did you mean {near[0]}? " if near else "") + f"the modes are {', '.join(known)}")


def place(mode: Mode, gpus: tuple[int, ...] | None) -> Mode:
    """The mode with its one role on `gpus` instead of its own; None leaves it as it is.

    Raises ValueError where there are not as many GPUs as ranks; none at all is allowed, for an engine on a CPU.
    """
    if gpus is None:
        return mode
    if len(mode.roles) != 1:
        raise ValueError(f"mode {mode.name} has {len(mode.roles)} roles; give each its GPUs under [modes.NAME]")
    shape = replace(mode.roles[0], gpus=gpus)
    check(shape)
    return replace(mode, roles=(shape,))


def check(shape: RoleShape) -> None:
    """Raises ValueError where a role's ranks and GPUs do not match, or where its kind cannot be served yet."""
    if shape.role is not Role.SERVER:
        raise ValueError(f"role {shape.role} is not built yet; the one role that can be served is server")
    if shape.gpus and len(shape.gpus) != shape.tp:
        raise ValueError(f"{shape.tp} ranks (tp) need {shape.tp} GPUs and {len(shape.gpus)} are given")
