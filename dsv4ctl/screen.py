"""Values -> lines and tables for people. Pure: the time now is handed in, colours belong to cli."""

import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import assert_never

from dsv4ctl import secret
from dsv4ctl.blame import words
from dsv4ctl.findings import Check, Probing, Proof, Row, Status
from dsv4ctl.free import AwaitGpus, AwaitPorts, EndTree, RemoveSegment
from dsv4ctl.model import Phase, RunState, Unit
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

GIB = 1024**3
BAR = 20


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


def _whole_file(path: str, old: str | None, new: str | None) -> str:
    sign, what = ("+", "new") if old is None else ("-", "removed")
    count = len((new or old or "").splitlines())
    return f"{sign} {path}: {what}, {count} line{'s' * (count != 1)}; --full shows the text\n"


def proved(found: Probing) -> str:
    """What answers now, a line an instance, and what came through all of it."""
    return "\n".join([*map(proof_line, found.proofs), *([probe_line(found)] if found.words else [])])


def proof_line(proof: Proof) -> str:
    """What answers now."""
    context = f", context {proof.context_length}" if proof.context_length else ""
    if proof.workers:
        return (
            f"{proof.unit} serves {proof.model} on {proof.url} (router pid {proof.pid}, {len(proof.workers)} workers)"
        )
    verb = "serves" if proof.role == "server" else f"is the {proof.role} of"
    return f"{proof.unit} {verb} {proof.model} on {proof.url} (engine pid {proof.pid}{context})"


def probed(found: Probing) -> str:
    """What was proved, the verdict, and how long it took."""
    return f"{proved(found)} ({found.seconds:.1f} s in all)"


def probe_line(found: Probing) -> str:
    """A verdict, and why."""
    return f"{found.verdict}: {found.words}"


def checks(found: Iterable[Check]) -> str:
    """The proof that nothing is left, one line a check."""
    return "\n".join(f"{'stay' if c.stays else 'gone' if c.ok else 'LEFT'}  {c.what}: {c.words}" for c in found)


def status(found: Status, now: float) -> str:
    """The status table, each instance's own words below it, and what could not be read."""
    if not found.rows:
        nothing = "nothing is deployed here; dsv4ctl deploy --mode single-tp4 --port 30001"
        return "\n".join([nothing, *(f"note: {note}" for note in found.notes)])
    words = [f"{row.unit}: {said}" for row in found.rows for said in (row.words, row.memory) if said]
    notes = [f"note: {note}" for row in found.rows for note in row.notes] + [f"note: {note}" for note in found.notes]
    return "\n".join([table(HEADINGS, [_cells(row, now) for row in found.rows]), *words, *notes])


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Left-aligned columns, two spaces apart."""
    widths = [max(len(line[n]) for line in (headings, *rows)) for n in range(len(headings))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in (headings, *rows)
    )


def phase_line(unit: Unit, state: RunState | None) -> str:
    """What a starting or stopping unit does now, in its own words."""
    if unit.status_text:
        return unit.status_text
    if state is not None and state.phase in (Phase.FAILED, Phase.PARKED):
        return state.words
    return f"{unit.active} ({unit.sub})"


def wrote(unit: str, lines: Sequence[str]) -> tuple[str, ...]:
    """What a unit that fails wrote last, under a heading; nothing where it wrote nothing."""
    return (f"the last lines of {unit}:", *(f"  | {line}" for line in lines)) if lines else ()


def whose(step: Step | None, unit: Unit) -> str:
    """The unit's name to be put before its words, where the step is about several."""
    return f"{unit.name.removesuffix('.service')}: " if isinstance(step, StartTogether) else ""


def bar(done: int, total: int) -> str:
    """A progress bar of fixed width; '' when there is nothing to count."""
    if total <= 0:
        return ""
    full = min(BAR, BAR * done // total)
    return f"[{'#' * full}{'.' * (BAR - full)}] {done}/{total}"


def duration(seconds: float) -> str:
    """`8 s`, `3 min`, `5 h`, `2 d`: one unit, as an operator says it."""
    for size, word in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{int(seconds // size)} {word}"
    return f"{int(seconds)} s"


def tokens(count: int | None) -> str:
    """`524288`, `6.05 M`: exact below a million."""
    if count is None:
        return "-"
    return f"{count / 1_000_000:.2f} M" if count >= 1_000_000 else str(count)


HEADINGS = (
    "UNIT", "ROLE", "STATE", "SINCE", "PID", "PORT", "HEALTH", "MODEL",
    "CONTEXT", "KV TOKENS", "RUN/WAIT", "GPU MEMORY",
)  # fmt: skip


def _cells(row: Row, now: float) -> tuple[str, ...]:
    return (
        row.unit.removesuffix(".service").removesuffix(".scope"),
        row.role,
        row.state,
        duration(now - row.since) if row.since else "-",
        str(row.pid or "-"),
        str(row.port),
        row.health,
        row.model,
        str(row.context_length or "-"),
        tokens(row.kv_tokens),
        f"{row.running}/{row.waiting}" if row.running is not None else "-",
        _gpu_memory(row),
    )


def _gpu_memory(row: Row) -> str:
    if not row.gpus:
        return "no GPUs"
    return "-" if row.gpu_used_bytes is None else f"{row.gpu_used_bytes / GIB:.1f} GiB on {len(row.gpus)}"


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
            return f"{verb} {words.who(step.tree.root)}{_and_more(step)}"
        case AwaitPorts():
            return f"wait for port {', '.join(str(port) for _, port in step.binds)}"
        case AwaitGpus():
            return f"wait for the memory of GPU {', '.join(str(index) for index, _ in step.gpus)}"
        case RemoveSegment():
            return f"remove {step.segment.path}"
        case _:
            assert_never(step)
