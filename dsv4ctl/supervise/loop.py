"""One run of an instance, from the gate to the last process: each stage is a page of its own."""

import socket
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import assert_never

from dsv4ctl import pidfd, procs, record, starts, store, systemd
from dsv4ctl.clock import Clock
from dsv4ctl.engine import sglang
from dsv4ctl.model import Identity, Instance, Phase, Role, RunState, SuperviseExit, Unit
from dsv4ctl.problems import Problem
from dsv4ctl.starts import PastStart
from dsv4ctl.store.paths import PROBE_LOCK
from dsv4ctl.supervise import awaiting, engine, progress, territory, words
from dsv4ctl.supervise.admission import Admission
from dsv4ctl.supervise.barrier import Barrier
from dsv4ctl.supervise.ending import Ending
from dsv4ctl.supervise.engine import Child
from dsv4ctl.supervise.gate import Admitted
from dsv4ctl.supervise.hearing import Hearing
from dsv4ctl.supervise.inbox import Inbox
from dsv4ctl.supervise.journal import Journal, is_journald
from dsv4ctl.supervise.load import Loading
from dsv4ctl.supervise.lull import Lull
from dsv4ctl.supervise.notify import ToSystemd, ToTerminal, Voice
from dsv4ctl.supervise.outcome import Asked, Failed, Over, Ready
from dsv4ctl.supervise.peers import Watch
from dsv4ctl.supervise.progress import Progress
from dsv4ctl.supervise.run import Run
from dsv4ctl.supervise.territory import Territory
from dsv4ctl.supervise.watch import Serving

BUG_LIMIT_S = 10.0
PAUSE = "pause.json"


def supervise(
    instance: Instance, environment: Mapping[str, str], clock: Clock, signals: socket.socket
) -> SuperviseExit:
    """Bring the instance up, keep it, and bring it down again. Returns the exit status of the unit's main process."""
    journal, inbox = Journal(plain=is_journald(environment)), Inbox(signals)
    voice = _voice(instance, environment, clock, journal)
    folder = _folder(environment, "STATE_DIRECTORY")
    # The commands keep what is the whole host's two folders above ours, .../starts/NAME.
    lull = Lull(folder.parent.parent / PAUSE if folder else None, clock)
    barrier = Barrier(
        folder=folder,
        unit=partial(_unit, instance.unit, environment, journal),
        limits=instance.limits,
        lull=lull,
        inbox=inbox,
        journal=journal,
        voice=voice,
        clock=clock,
    )
    match barrier.until_open():
        case Asked() as stop:
            return _left(voice, instance.role.program, stop)
        case Failed() as failed:
            return _refused(voice, failed)
    admission = Admission(
        instance=instance, environment=environment, inbox=inbox, journal=journal, voice=voice, clock=clock
    )
    return barrier.passed(_admitted(admission, lull))


def _admitted(admission: Admission, lull: Lull) -> SuperviseExit:
    """From the gate to the last process."""
    instance, environment, clock = admission.instance, admission.environment, admission.clock
    journal, inbox, voice = admission.journal, admission.inbox, admission.voice
    watch = _peers(instance, environment)
    match awaiting.until_over(admission, watch) or admission.until_over():
        case Asked() as stop:
            return _left(voice, instance.role.program, stop)
        case Failed() as failed:
            return _refused(voice, failed)
        case Admitted(key, notes):
            voice.hide(key)
            for note in notes:
                journal.note(note)
    try:
        _write_secrets(instance, key)
        child = engine.start(instance.argv, engine.environment(environment))
    except Problem as problem:
        failed = Failed(exit=SuperviseExit.MISSING, words=str(problem), advice=problem.hint)
        return _refused(voice, failed)
    hearing = Hearing(journal, key, clock)
    inbox.follow(child, hearing)
    doing = words.doing(Phase.STARTING, instance.role)
    voice.tell(replace(voice.state, phase=Phase.STARTING, words=doing, engine_pid=child.identity.pid))
    own = Territory(cgroup=territory.claim(instance.unit, environment), engine=child.identity)
    run = Run(
        instance=instance,
        key=key,
        territory=own,
        peers=watch,
        hearing=hearing,
        inbox=inbox,
        lull=lull,
        voice=voice,
        journal=journal,
        clock=clock,
        probe_lock=_probe_lock(environment),
    )
    try:
        return _carried(run, child, _starts_file(environment))
    except BaseException:
        # A bug of ours. Outside systemd nobody else would end the engine.
        pidfd.end_all(partial(territory.members, own), clock, BUG_LIMIT_S)
        raise
    finally:
        inbox.finish()
        _remove_secrets(instance, journal)


def _carried(run: Run, child: Child, file: Path | None) -> SuperviseExit:
    past = _past(file)
    loading = Loading(run, past)
    outcome = loading.until_over()
    if isinstance(outcome, Ready):
        serving = Serving(run, outcome.capacity)
        _remember(run, file, past, loading.progress)
        outcome = serving.until_over()
    return _ended(run, child, outcome)


def _ended(run: Run, child: Child, outcome: Over) -> SuperviseExit:
    ending = Ending(run, engine.end_of(child))
    match outcome:
        case Failed():
            return ending.fail(outcome)
        case Asked() if run.voice.state.phase is Phase.READY:
            return ending.stop_serving(outcome)
        case Asked():
            return ending.stop_loading(outcome)
        case _:
            assert_never(outcome)


def _left(voice: Voice, program: str, stop: Asked) -> SuperviseExit:
    """Somebody wants us to stop, and nothing was started."""
    line = f"stopped ({stop.signal}) before the {program} was started"
    voice.tell(replace(voice.state, phase=Phase.STOPPED, words=line, exit=0), "STOPPING=1")
    return SuperviseExit.OK


def _refused(voice: Voice, failed: Failed) -> SuperviseExit:
    """Nothing was started, so there is nothing to end."""
    phase = Phase.PARKED if failed.exit is SuperviseExit.PARKED else Phase.FAILED
    state = replace(voice.state, phase=phase, words=failed.words, advice=failed.advice, exit=int(failed.exit))
    voice.tell(state)
    return failed.exit


def _voice(instance: Instance, environment: Mapping[str, str], clock: Clock, journal: Journal) -> Voice:
    folder = _folder(environment, "RUNTIME_DIRECTORY")
    notifier = ToSystemd(journal) if environment.get("NOTIFY_SOCKET") else ToTerminal(journal, clock)
    now, ourselves = clock.wall(), procs.ourselves()
    state = RunState(
        name=instance.name,
        digest=instance.digest,
        phase=Phase.GATE,
        words="checking ports, engine and model" if instance.role is not Role.ROUTER else "checking ports and router",
        since=now,
        started_at=now,
        pid=ourselves.pid,
        start_ticks=ourselves.start_ticks,
        met=_met_before(folder / "state.json") if folder and instance.role is Role.ROUTER else (),
    )
    return Voice(state, clock, notifier, journal=journal, file=folder / "state.json" if folder else None)


def _unit(name: str, environment: Mapping[str, str], journal: Journal) -> Unit | None:
    """Our unit as systemd shows it; None: we are in none, or systemd cannot be asked."""
    if not territory.claim(name, environment):
        return None
    try:
        return systemd.show((name,)).get(name)
    except Problem as problem:
        journal.note(f"cannot tell whether this is a restart, so it does not wait its turn: {problem}")
        return None


def _met_before(file: Path) -> tuple[Identity, ...]:
    """The pair of the router whose supervisor was here before us."""
    try:
        return record.load_state(store.read(file)).met
    except Problem:
        return ()


def _peers(instance: Instance, environment: Mapping[str, str]) -> Watch:
    """Nobody else's folder is known where systemd made us none: then they cannot be seen, and count as not started."""
    folder = _folder(environment, "RUNTIME_DIRECTORY")
    return Watch(folder.parent if folder else Path("/run/dsv4ctl"), instance.peers)


def _probe_lock(environment: Mapping[str, str]) -> Path | None:
    folder = _folder(environment, "RUNTIME_DIRECTORY")
    return folder / PROBE_LOCK if folder else None


def _write_secrets(instance: Instance, key: str) -> None:
    if instance.secrets_file and key:
        store.write_atomic(Path(instance.secrets_file), sglang.secrets_yaml(key), mode=0o600)


def _remove_secrets(instance: Instance, journal: Journal) -> None:
    """The key is in no file of ours longer than its engine lives; one that cannot be removed changes no outcome."""
    try:
        if instance.secrets_file:
            store.files.remove(Path(instance.secrets_file))
    except Problem as problem:
        journal.note(str(problem))


def _folder(environment: Mapping[str, str], name: str) -> Path | None:
    """The first of the folders that systemd made for us; None when we were started by hand."""
    first = environment.get(name, "").partition(":")[0]
    return Path(first) if first else None


def _starts_file(environment: Mapping[str, str]) -> Path | None:
    folder = _folder(environment, "STATE_DIRECTORY")
    return folder / "starts.jsonl" if folder else None


def _past(file: Path | None) -> tuple[PastStart, ...]:
    try:
        return starts.parse(file.read_text(errors="replace")) if file else ()
    except OSError:
        return ()


def _remember(run: Run, file: Path | None, past: tuple[PastStart, ...], start: Progress) -> None:
    """Keep how long the phases of this start took, for the next one's time left."""
    if file is None:
        return
    seconds = {str(phase): round(spent, 1) for phase, spent in progress.finished(start, run.clock.now())}
    this = PastStart(at=round(run.clock.wall()), digest=run.instance.digest, seconds=seconds)
    try:
        store.write_atomic(file, starts.dump((*past, this)), mode=0o644)
    except Problem as problem:
        run.journal.note(str(problem))
