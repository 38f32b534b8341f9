"""What `adopt` shows: who was found, the config, and side by side what it would change. Pure; no secret is in it."""

from collections.abc import Iterator

from dsv4ctl import modes, screen, secret, who
from dsv4ctl.adoption import Adoption, Moved
from dsv4ctl.byhand.likeness import Likeness
from dsv4ctl.byhand.main import Main, carried

# A value that is longer is cut in the table; --json has it whole.
WIDEST = 48


def lines(found: Adoption) -> Iterator[str]:
    """Who was found and what would be different, for people."""
    for main in found.mains:
        yield _main(main)
    for one in found.likenesses:
        yield ""
        yield from _likeness(one)
    yield from (f"note: {note}" for note in (*found.draft.notes, *found.notes))


def _main(main: Main) -> str:
    where = f"port {main.port}" if main.port else "no port yet"
    gpus = f", GPUs {modes.gpus_text(main.gpus)} {main.gpus_by}" if main.asked else ""
    count = _count(len(main.tree.members)) if main.tree else ""
    stays = f", in {main.scope}" if main.scope else f"; {main.stays}" if main.stays else ""
    return f"{main.role}: {', '.join(filter(None, (who.words(main.process), where + gpus, count)))}{stays}"


def _count(processes: int) -> str:
    return "1 process" if processes == 1 else f"{processes} processes"


def _likeness(one: Likeness) -> Iterator[str]:
    rows = [(d.what, _cut(d.by_hand), _cut(d.rendered)) for d in one.differences]
    said = "it has wiped its command line, so nothing can be compared" if one.main.launch.wiped else ""
    count = f"{one.same} options the same, {len(rows)} differences"
    yield f"pid {one.main.process.pid} -> {one.unit}: {said or count}"
    if rows:
        yield screen.table(("WHAT", "BY HAND", "RENDERED"), rows)


def _cut(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= WIDEST else f"{flat[: WIDEST - 1]}…"


def moved(one: Moved) -> str:
    """What was moved, and what becomes of it."""
    return (
        f"{_count(len(one.pids))} in {one.scope} now, under the same pids as before; `dsv4ctl status` shows what is"
        " in there, the next deploy or teardown ends it"
    )


def as_json(found: Adoption) -> dict[str, object]:
    """The same as values."""
    return {
        "engines": [_json(main) for main in found.mains],
        "config": found.draft.text,
        "differences": [
            {
                "pid": one.main.process.pid,
                "unit": one.unit,
                "what": d.what,
                "by_hand": d.by_hand,
                "rendered": d.rendered,
            }
            for one in found.likenesses
            for d in one.differences
        ],
        "notes": [*found.draft.notes, *found.notes],
    }


def _json(main: Main) -> dict[str, object]:
    return {
        "role": main.role,
        "pid": main.process.pid,
        "user": main.process.user,
        "since": main.process.started_at,
        "python": main.python,
        "options": [[given.name, *secret.args_shown((given.name, *given.values))[1:]] for given in main.launch.options],
        "environment": dict(carried(main.environment).variables),
        "host": main.host,
        "port": main.port,
        "gpus": main.gpus,
        "cpus": main.cpus,
        "model": main.model,
        "scope": main.scope,
        "stays": main.stays,
    }
