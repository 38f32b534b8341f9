"""What is wrong with a unit of ours although `systemd-analyze verify` says nothing; an operator's drop-ins included."""

import re
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath

from dsv4ctl.unitfile.parse import Settings, parse, words

# Between the last inner limit and systemd's own, in seconds. Before a load comes the gate, after a failed one the end
# of what it left; a stop ends with KILL and a last look, and killed processes with GPU memory go slowly.
START_MARGIN_S = 120
STOP_MARGIN_S = 90
# Our own section. systemd skips sections whose names begin with X-.
OURS = "X-Dsv4ctl"
# The module that every unit of ours starts as its main process.
SUPERVISOR = "dsv4ctl.supervise"

# They start the real program as a child and do not pass on every signal, so that it outlives them.
_ENVIRONMENTS = ("conda", "mamba", "micromamba", "uv", "uvx", "poetry", "pipenv", "pixi", "hatch", "rye")
_DETACHERS = ("nohup", "tmux", "screen", "script", "setsid", "daemonize", "sudo", "su", "runuser", "systemd-run")
RUNNERS = frozenset((*_ENVIRONMENTS, *_DETACHERS))
SHELLS = frozenset(("sh", "bash", "dash", "zsh", "ksh", "fish"))
_ENDS_PEERS = ("Requires", "Requisite", "BindsTo", "PartOf")
_SPECIFIER = re.compile(r"%(.)")
# A pair of percent signs is one; these values are taken apart without looking at specifiers anywhere else.
_EXPANDED = (
    "ExecStart",
    "Environment",
    "WorkingDirectory",
    "LoadCredential",
    "BindReadOnlyPaths",
    "ReadWritePaths",
    "User",
)


def lint(unit: str, *drop_ins: str) -> tuple[str, ...]:
    """Objections to a service unit of ours with its drop-ins, in the order in which systemd reads them; () for none."""
    settings = parse((unit, *drop_ins))
    checks = (
        _spares,
        _kill_mode,
        _start_limit,
        _type,
        _notify,
        _start_needs,
        _stop_needs,
        _give_up,
        _main,
        _program,
        _numa,
        _specifiers,
        _files,
    )
    return tuple(message for check in checks for message in check(settings))


def usurped(unit: str, *drop_ins: str) -> tuple[str, ...]:
    """Those of the objections with which no deploy can keep its promise: the main process is not our supervisor, it
    is not heard, or a stop spares what it started."""
    settings = parse((unit, *drop_ins))
    return tuple(message for check in (_main, _type, _spares) for message in check(settings))


def cycles(units: Mapping[str, str]) -> tuple[str, ...]:
    """The rings of Requires=, Requisite=, BindsTo=, PartOf= and RequiredBy= among units (name -> text).

    In such a ring one crash bounces all, or turns the restart of a crashed unit into a stop.
    """
    edges = {name: frozenset(target for target in _ends_with(name, units) if target in units) for name in units}
    rings = {_ring(name, edges) for name in sorted(units)} - {()}
    return tuple(
        f"{' -> '.join((*ring, ring[0]))}: a ring of Requires=, BindsTo= and PartOf=; use Wants= in one of them"
        for ring in sorted(rings)
    )


def _spares(settings: Settings) -> Iterator[str]:
    mode = settings.last("Service", "KillMode")
    if mode in ("process", "none"):
        yield f"KillMode={mode}: the engine's workers would survive a stop and hold GPUs and ports; use KillMode=mixed"


def _kill_mode(settings: Settings) -> Iterator[str]:
    if settings.last("Service", "KillMode") in ("", "control-group"):
        yield "KillMode=control-group: a stop would end the engine's workers before it has drained; use KillMode=mixed"
    if settings.last("Service", "SendSIGKILL") in ("no", "false", "off", "0"):
        yield "SendSIGKILL=no: what ignores SIGTERM would survive a stop; leave it out"


def _start_limit(settings: Settings) -> Iterator[str]:
    for key in ("StartLimitIntervalSec", "StartLimitInterval", "StartLimitBurst"):
        if settings.last("Service", key):
            yield f"{key}= stands under [Service], where systemd ignores or half reads it; move it under [Unit]"


def _type(settings: Settings) -> Iterator[str]:
    if settings.last("Service", "Type") != "notify":
        yield "Type= is not notify: systemd would call the unit started before the engine can serve"
    elif settings.last("Service", "NotifyAccess") == "none":
        yield "NotifyAccess=none: the main process, our supervisor, would not be heard; use NotifyAccess=main"


def _notify(settings: Settings) -> Iterator[str]:
    access = settings.last("Service", "NotifyAccess")
    if settings.last("Service", "Type") == "notify" and access not in ("main", "none"):
        yield f"NotifyAccess={access}: the main process, our supervisor, is the one to be heard; use NotifyAccess=main"


def _start_needs(settings: Settings) -> Iterator[str]:
    needs = sum(_ours(settings, key) for key in ("StartSec", "ProofSec")) + START_MARGIN_S
    yield from _at_least(settings, "TimeoutStartSec", needs, "the start and its proof")
    if not settings.last("Service", "TimeoutStartSec"):
        yield "TimeoutStartSec= is not set: the default of 90 s ends every real start"


def _stop_needs(settings: Settings) -> Iterator[str]:
    needs = sum(_ours(settings, key) for key in ("DrainSec", "EngineStopSec")) + STOP_MARGIN_S
    yield from _at_least(settings, "TimeoutStopSec", needs, "the drain and the engine's own stop")
    if not settings.last("Service", "TimeoutStopSec"):
        yield "TimeoutStopSec= is not set: the default of 90 s cuts a drain off"


def _give_up(settings: Settings) -> Iterator[str]:
    """The start counter only trips when all the starts it counts, however slow, fit into its interval."""
    interval = settings.span("Unit", "StartLimitIntervalSec")
    burst = settings.last("Unit", "StartLimitBurst")
    if interval is None or not burst.isdigit():
        yield "StartLimitIntervalSec= or StartLimitBurst= is not set under [Unit]: a slow failure is tried for ever"
        return
    delays = [settings.span("Service", key) or 0 for key in ("RestartSec", "RestartMaxDelaySec")]
    limits = sum(settings.span("Service", key) or 0 for key in ("TimeoutStartSec", "TimeoutStopSec"))
    if interval < int(burst) * (limits + max(delays)):
        yield (
            f"StartLimitIntervalSec={interval:g}: {burst} starts that use up their limits take "
            f"{int(burst) * (limits + max(delays)):g} s, so the counter never trips"
        )


def _main(settings: Settings) -> Iterator[str]:
    commands = settings.all("Service", "ExecStart")
    if len(commands) != 1:
        yield f"ExecStart= stands {len(commands)} times, and a unit of ours has one; write ExecStart= before your own"
    for value in commands:
        try:
            found = words(value)
        except ValueError:
            continue  # _program says what is wrong with it
        # A shell that execs it has it within a word.
        if not any(SUPERVISOR in word for word in found[: found.index("--") if "--" in found else None]):
            program = found[0].lstrip(":-@+!") if found else "nothing"
            yield f"ExecStart= starts {program} and not our supervisor ({SUPERVISOR}), so that nothing is proved"


def _program(settings: Settings) -> Iterator[str]:
    for value in settings.all("Service", "ExecStart"):
        try:
            found = words(value)
        except ValueError as error:
            yield f"ExecStart=: {error}"
            continue
        for argv in _commands(found):
            yield from _runner(argv)


def _numa(settings: Settings) -> Iterator[str]:
    policy, mask = (settings.last("Service", key) for key in ("NUMAPolicy", "NUMAMask"))
    cpus = settings.last("Service", "CPUAffinity")
    if bool(cpus) != bool(policy) or (policy == "bind" and not mask):
        yield "CPUAffinity=, NUMAPolicy= and NUMAMask= belong together, or threads and memory part"


def _specifiers(settings: Settings) -> Iterator[str]:
    for key in _EXPANDED:
        for value in settings.all("Service", key):
            for found in _SPECIFIER.finditer(value):
                if found[1] != "%":
                    yield f"{key}=: systemd expands %{found[1]} in {value!r}; write %% for a percent sign"


def _files(settings: Settings) -> Iterator[str]:
    for value in settings.all("Service", "EnvironmentFile"):
        if not value.startswith("-"):
            yield f"EnvironmentFile={value}: without the file the unit cannot start; write - before it, or Environment="


def _ours(settings: Settings, key: str) -> float:
    return settings.span(OURS, key) or 0


def _at_least(settings: Settings, key: str, needs_s: float, what: str) -> Iterator[str]:
    value = settings.last("Service", key)
    span = settings.span("Service", key)
    if value and span is None:
        yield f"{key}={value} is no time span; write seconds"
    elif span is not None and span < needs_s:
        yield f"{key}={value} is shorter than {what} may take ({needs_s:g} s), so systemd would end it in the middle"


def _commands(found: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """The command of ExecStart= and, where the supervisor is it, the engine's command behind the first `--`."""
    yield (found[0].lstrip(":-@+!"), *found[1:]) if found else ()
    if SUPERVISOR in found and "--" in found:
        yield found[found.index("--") + 1 :]


def _runner(argv: tuple[str, ...]) -> Iterator[str]:
    program = PurePosixPath(argv[0]).name if argv else ""
    if program == "env":
        yield from _runner(tuple(w for w in argv[1:] if "=" not in w and not w.startswith("-")))
    if program in RUNNERS:
        yield f"{argv[0]} runs the engine as its child and does not pass on every signal; name the environment's python"
    if program in SHELLS and "-c" in argv[:-1] and not argv[argv.index("-c") + 1].lstrip().startswith("exec "):
        yield f"{argv[0]} -c without exec stays between systemd and the engine; name the program itself, or write exec"


def _ends_with(name: str, units: Mapping[str, str]) -> Iterator[str]:
    """The units whose stop or failure ends the unit `name`."""
    settings = parse((units[name],))
    for key in _ENDS_PEERS:
        for value in settings.all("Unit", key):
            yield from value.split()
    for other, text in units.items():
        if any(name in value.split() for value in parse((text,)).all("Install", "RequiredBy")):
            yield other


def _ring(start: str, edges: Mapping[str, frozenset[str]]) -> tuple[str, ...]:
    """The shortest ring through `start`, turned so that its first name comes first; () when there is none."""
    paths: list[tuple[str, ...]] = [(start,)]
    seen = {start}
    while paths:
        path = paths.pop(0)
        for target in sorted(edges[path[-1]]):
            if target == start:
                first = path.index(min(path))
                return path[first:] + path[:first]
            if target not in seen:
                seen.add(target)
                paths.append((*path, target))
    return ()
