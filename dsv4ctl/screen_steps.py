"""Steps -> lines for people, and how they change unit files. Pure."""

import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import assert_never

from dsv4ctl import secret, who
from dsv4ctl.free import AwaitGpus, AwaitPorts, EndTree, RemoveSegment
from dsv4ctl.model import Unit
from dsv4ctl.names import INSTANCE_FOLDER
from dsv4ctl.steps import (
    Disable,
    Enable,
    EndPause,
    Keep,
    Reach,
    ReleaseBrake,
    Reload,
    RemoveFile,
    ResetFailed,
    Start,
    StartTogether,
    Step,
    Stop,
    WriteFile,
)


def step_line(step: Step) -> str:
    """One step in words: what, and why."""
    return f"{_what(step)}: {step.reason}"


def steps(todo: Sequence[Step]) -> str:
    """A numbered plan, one step a line."""
    return "\n".join(f"{n:3}. {step_line(step)}" for n, step in enumerate(todo, start=1))


def diffs(todo: Iterable[Step], *, full: bool) -> str:
    """How the plan changes unit files, as one unified diff. What supervisors read follows from them and is left out.

    `full`: the whole text of new and removed files, too, which are a line each without.
    """
    changes = (step for step in todo if isinstance(step, WriteFile | RemoveFile))
    return "".join(diff(step, full=full) for step in changes if not step.path.startswith(INSTANCE_FOLDER))


def diff(step: WriteFile | RemoveFile, *, full: bool) -> str:
    """A unified diff of what the step does to its file; '' for a file written for the first time is never returned."""
    before = {step.path: step.before} if step.before is not None else {}
    return unit_diff(before, {step.path: step.text} if isinstance(step, WriteFile) else {}, full=full)


def unit_diff(before: Mapping[str, str], after: Mapping[str, str], *, full: bool = False) -> str:
    """Unified diffs of files by path, secrets hidden; where nothing but a hidden value differs, that is said."""
    found = []
    for path in dict.fromkeys((*before, *after)):
        old, new = before.get(path), after.get(path)
        if old == new:
            continue
        if not full and (old is None or new is None):
            found.append(_whole_file(path, old, new))
            continue
        one, other = (secret.unit_shown(text or "").splitlines(keepends=True) for text in (old, new))
        source, target = ("/dev/null" if text is None else path for text in (old, new))
        lines = "".join(difflib.unified_diff(one, other, source, target))
        found.append(lines or f"--- {path}\n+++ {path}\n# only values that are not shown differ\n")
    return "".join(found)


def whose(step: Step | None, unit: Unit) -> str:
    """The unit's name to be put before its words, where the step is about several."""
    return f"{unit.name.removesuffix('.service')}: " if isinstance(step, StartTogether) else ""


def _whole_file(path: str, old: str | None, new: str | None) -> str:
    sign, what = ("+", "new") if old is None else ("-", "removed")
    count = len((new or old or "").splitlines())
    return f"{sign} {path}: {what}, {count} line{'s' * (count != 1)}; --full shows the text\n"


def _and_more(step: EndTree) -> str:
    count = len(step.tree.members) - 1
    unit = f", by its unit {step.tree.unit}" if step.tree.unit else ""
    return (f" and {count} more of its tree" if count else "") + unit


def _what(step: Step) -> str:
    match step:
        case WriteFile():
            return f"write {step.path}"
        case RemoveFile():
            return f"remove {step.path}"
        case Reload():
            return "have systemd read its unit files"
        case ResetFailed():
            return f"clear the failed state of {step.unit}"
        case Stop():
            return f"stop {step.unit}"
        case Start():
            return f"start {step.instance.unit} and prove it"
        case StartTogether():
            units = " and ".join(start.instance.unit for start in step.starts)
            return f"start {units} side by side and prove each"
        case Reach():
            return f"start {step.unit}"
        case Enable():
            return f"enable {step.unit}"
        case Disable():
            return f"disable {step.unit}"
        case Keep():
            return f"keep release {step.generation.number} ({step.generation.release.digest})"
        case EndPause():
            return "end the pause"
        case ReleaseBrake():
            return "release the restart brake"
        case EndTree():
            verb = "wait for the end of" if step.tree.leaving else "end"
            return f"{verb} {who.words(step.tree.root)}{_and_more(step)}"
        case AwaitPorts():
            return f"wait for port {', '.join(str(port) for _, port in step.binds)}"
        case AwaitGpus():
            return f"wait for the memory of GPU {', '.join(str(index) for index, _ in step.gpus)}"
        case RemoveSegment():
            return f"remove {step.segment.path}"
        case _:
            assert_never(step)
