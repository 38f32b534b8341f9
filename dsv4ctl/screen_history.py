"""Kept releases -> lines for people: the list of them, one of them whole, two of them against each other. Pure."""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict

from dsv4ctl import config, secret
from dsv4ctl.generations import Evidence, Generation, Kept, Outcome, Verdict
from dsv4ctl.names import INSTANCE_FOLDER
from dsv4ctl.screen import GIB, duration, table
from dsv4ctl.screen_steps import unit_diff

HEADINGS = ("", "RELEASE", "WHEN", "WHO", "MODE", "VERDICT", "WHY")
# The last lines of a journal are those that say why.
JOURNAL_LINES = 20


def listed(kept: Sequence[Kept], here: int | None) -> str:
    """One line a release, the youngest first; `*` marks the one that is installed."""
    if not kept:
        return "nothing was deployed here yet"
    return table(HEADINGS, [_cells(one, here) for one in sorted(kept, key=lambda one: -one.number)])


def whole(kept: Kept, evidence: Evidence | None) -> str:
    """Everything that is known of one release."""
    made = kept.generation
    known = {
        "release": f"{made.number} ({made.release.digest})",
        "when": when(made.at),
        "who": made.who,
        "why": why(made),
        "command": made.command,
        "engine": f"sglang {made.engine_version} ({made.engine_stamp})",
        "model": f"{made.spec.engine.model} {made.model_revision}".strip(),
        "driver": made.driver,
        "GPUs": ", ".join(uuid for one in made.release.instances for uuid in one.gpu_uuids),
        "verdict": words(kept.verdict),
        **({"took": f"{kept.verdict.took_s:.1f} s"} if kept.verdict else {}),
    }
    lines = [f"{key + ':':<10}{value}" for key, value in known.items() if value]
    return "\n".join([*lines, *_proof(kept.verdict), *_phases(kept.verdict), *_evidence(evidence)])


def values(kept: Kept, here: int | None) -> dict[str, object]:
    """One release for programs, without its files: unit texts may hold secrets, and `dsv4ctl diff` shows them."""
    made, verdict = kept.generation, kept.verdict
    return {
        "release": made.number,
        "installed": made.number == here,
        "digest": made.release.digest,
        "mode": made.release.mode,
        "at": made.at,
        "who": made.who,
        "reason": made.reason,
        "restores": made.restores,
        "command": made.command,
        "engine_version": made.engine_version,
        "model_revision": made.model_revision,
        "driver": made.driver,
        "gpu_uuids": [uuid for one in made.release.instances for uuid in one.gpu_uuids],
        "argv": {one.name: list(secret.args_shown(one.argv)) for one in made.release.instances},
        "config": config.texts(made.spec),
        "verdict": asdict(verdict) if verdict else None,
    }


def audited(line: Mapping[str, object]) -> str:
    """One line of the audit trail for people."""
    at, status = line.get("at"), line.get("status")
    date = when(at) if isinstance(at, float | int) else "-"
    outcome = "killed" if status is None else "ok" if status == 0 else f"status {status}"
    said = str(line.get("says") or "").splitlines()
    steps = line.get("steps")
    count = f", {len(steps)} steps" if isinstance(steps, list) and steps else ""
    took = f", {line['took_s']} s" if "took_s" in line else ""
    first = f": {said[0]}" + (f" … {said[-1]}" if len(said) > 1 else "") if said else ""
    return f"{date}  {line.get('who')}  {line.get('command', line.get('what'))}: {outcome}{took}{count}{first}"


def words(verdict: Verdict | None) -> str:
    """A verdict in a line."""
    if verdict is None:
        return "none: it was cut short, or is under way"
    if verdict.outcome is Outcome.PROVED:
        first_s = verdict.took_s if verdict.first_took_s is None else verdict.first_took_s
        return f"proved in {first_s:.1f} s"
    first = verdict.words.splitlines()[0] if verdict.words else ""
    return f"failed: {first}" + (f"; {verdict.serves}" if verdict.serves else "")


def why(made: Generation) -> str:
    """Why it was deployed."""
    back = f"rollback to {made.restores}" if made.restores else ""
    return ": ".join(filter(None, (back, made.reason)))


def when(at: float) -> str:
    """A date and a time of day, local."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))


def differences(one: Generation, other: Generation, *, full: bool) -> str:
    """How two releases differ: configuration, then what they stand on, then unit files. '' when they do not.

    `full`: the whole text of files that only one of them has, too.
    """
    lines = [
        *changed(config.texts(one.spec), config.texts(other.spec)),
        *changed(_ground(one), _ground(other)),
    ]
    return "".join(f"{line}\n" for line in lines) + unit_diff(_units(one), _units(other), full=full)


def changed(before: Mapping[str, str], after: Mapping[str, str]) -> Iterable[str]:
    """`- key = old` and `+ key = new` for each value that differs."""
    for key in dict.fromkeys((*before, *after)):
        if before.get(key) != after.get(key):
            yield from (f"{sign} {key} = {of[key]}" for sign, of in (("-", before), ("+", after)) if key in of)


def _units(made: Generation) -> dict[str, str]:
    return {file.path: file.text for file in made.release.files if not file.path.startswith(INSTANCE_FOLDER)}


def _ground(made: Generation) -> dict[str, str]:
    return {
        "engine version": made.engine_version,
        "engine installed": made.engine_stamp,
        "model revision": made.model_revision,
        "driver": made.driver,
    }


def _cells(kept: Kept, here: int | None) -> tuple[str, ...]:
    made = kept.generation
    mark = "*" if made.number == here else ""
    return (mark, str(made.number), when(made.at), made.who, made.release.mode, _short(kept.verdict), why(made))


def _short(verdict: Verdict | None) -> str:
    """The verdict without its cause, which may be long."""
    if verdict is None or verdict.outcome is Outcome.PROVED:
        return words(verdict)
    return f"failed; {verdict.serves}" if verdict.serves else "failed"


def _proof(verdict: Verdict | None) -> Iterable[str]:
    if verdict is None or verdict.proof is None:
        return
    if verdict.proof.answer_s is not None:
        yield f"proof:    one generation in {verdict.proof.answer_s:.2f} s"
    for one in verdict.proof.proofs:
        context = f", context {one.context_length}" if one.context_length else ""
        yield f"proved:   {one.unit} served {one.model} on {one.url} (engine pid {one.pid}{context})"


def _phases(verdict: Verdict | None) -> Iterable[str]:
    for one in verdict.phases if verdict else ():
        yield f"phase:    {one.instance} {one.phase} {one.seconds:.1f} s"


def _evidence(evidence: Evidence | None) -> Iterable[str]:
    if evidence is None:
        return
    yield f"\nwhat was seen of its failure at {when(evidence.at)}:"
    yield from evidence.words.splitlines()
    for unit in evidence.units:
        yield f"  {unit.name} was {unit.active} ({unit.sub}), result {unit.result or '-'}"
    for state in evidence.states:
        yield f"  {state.name} said in {state.phase} after {duration(evidence.at - state.started_at)}: {state.words}"
    for gpu in evidence.gpus.gpus:
        if gpu.used_bytes:
            yield f"  GPU {gpu.index}: {gpu.used_bytes / GIB:.1f} GiB in use"
    yield from (f"  {line}" for line in evidence.journal[-JOURNAL_LINES:])
