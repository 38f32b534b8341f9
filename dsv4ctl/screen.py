"""Values -> lines and tables for people. Pure: the time now is handed in, colours belong to cli."""

from collections.abc import Iterable, Sequence

from dsv4ctl.findings import Check, Probing, Proof, Row, Status
from dsv4ctl.model import Phase, RunState, Unit

GIB = 1024**3
BAR = 20


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
