"""systemd through its own programs: systemctl, journalctl, systemd-analyze. Values in, values out."""

import json
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TypeVar

from dsv4ctl import child
from dsv4ctl.clock import RealClock, until
from dsv4ctl.model import ActiveState, LoadState, Unit
from dsv4ctl.problems import CannotRun, Problem

SHOW_TIMEOUT_S = 15
JOB_TIMEOUT_S = 60
RELOAD_TIMEOUT_S = 120
JOURNAL_TIMEOUT_S = 30
ANALYZE_TIMEOUT_S = 60

PROPERTIES = (
    "Id,LoadState,ActiveState,SubState,UnitFileState,MainPID,ControlGroup,StatusText,Result,ExecMainCode,"
    "ExecMainStatus,NRestarts,StateChangeTimestampMonotonic,NeedDaemonReload,FragmentPath,DropInPaths,Job,RestartSteps"
)

MANAGER = ("org.freedesktop.systemd1", "/org/freedesktop/systemd1", "org.freedesktop.systemd1.Manager")
# A failed scope is forgotten at once, so that the next of the same name can be made.
COLLECT = "inactive-or-failed"
ADOPT_LIMIT_S = 5.0

# ExecMainCode is si_code of waitid(2); the words are those of `systemctl status`.
EXIT_CODES = {0: "", 1: "exited", 2: "killed", 3: "dumped", 4: "trapped", 5: "stopped", 6: "continued"}

# --all, or a field above 4 KiB comes as null.
JOURNALCTL = ("journalctl", "--output=json", "--all", "--quiet", "--no-pager")

Word = TypeVar("Word", bound=StrEnum)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A journal entry. `at` is seconds since the epoch, `priority` that of syslog(3): 3 an error, 6 informational."""

    at: float
    priority: int
    identifier: str
    pid: int
    message: str

    def clock(self) -> str:
        """The time of day, local."""
        return time.strftime("%H:%M:%S", time.localtime(self.at))


def is_running() -> bool:
    """Whether systemd is this host's init, by the sign that sd_booted(3) goes by."""
    return Path("/run/systemd/system").is_dir()


def version() -> int:
    """The major version of systemd: 252. Raises MissingProgram where it is not installed."""
    return parse_version(child.run(["systemctl", "--version"], timeout_s=SHOW_TIMEOUT_S).stdout)


def parse_version(text: str) -> int:
    """Read the output of `systemctl --version`. Raises Problem when it is something else."""
    if found := re.match(r"systemd (\d+)", text):
        return int(found.group(1))
    raise Problem(f"cannot tell systemd's version from {text.splitlines()[:1]}", hint="systemctl --version")


def show(units: Iterable[str]) -> dict[str, Unit]:
    """The units by name, in one call.

    A name that systemd does not know is there as not-found; a pattern with `*` finds loaded units only, and
    none is no error. Raises Problem when systemd cannot be asked, or says a word that we do not know.
    """
    wanted = tuple(units)
    if not wanted:
        return {}
    text = _systemctl("show", f"--property={PROPERTIES}", *wanted, timeout_s=SHOW_TIMEOUT_S)
    return parse_show(text, wall_minus_monotonic_s=time.time() - time.monotonic())


def parse_show(text: str, *, wall_minus_monotonic_s: float) -> dict[str, Unit]:
    """Read the output of `systemctl show`: one block a unit, an empty line between them.

    systemd stamps by the monotonic clock; the difference between the two clocks now makes a date of it on every version
    (`--timestamp=unix` came with 251). Raises Problem naming an unknown word.
    """
    blocks = (
        dict(line.partition("=")[::2] for line in block.splitlines()) for block in re.split(r"\n{2,}", text.strip())
    )
    return {block["Id"]: _unit(block, wall_minus_monotonic_s) for block in blocks if block}


def _unit(block: Mapping[str, str], wall_minus_monotonic_s: float) -> Unit:
    # A target or a slice has no process, so the properties of one are not shown for it.
    changed_us = int(block.get("StateChangeTimestampMonotonic") or 0)
    active, sub = _word(ActiveState, block, "ActiveState"), block.get("SubState", "")
    if active in (ActiveState.INACTIVE, ActiveState.FAILED) and int(block.get("Job") or 0):
        # Only a start waits for a unit that is down: for its turn after another unit, and then it comes up.
        active, sub = ActiveState.ACTIVATING, "queued"
    return Unit(
        name=block["Id"],
        load=_word(LoadState, block, "LoadState"),
        active=active,
        sub=sub,
        enabled=block.get("UnitFileState", ""),
        main_pid=int(block.get("MainPID") or 0),
        cgroup=block.get("ControlGroup", ""),
        status_text=block.get("StatusText", ""),
        result=block.get("Result", ""),
        exit_code=EXIT_CODES[int(block.get("ExecMainCode") or 0)],
        exit_status=int(block.get("ExecMainStatus") or 0),
        restarts=int(block.get("NRestarts") or 0),
        since=round(wall_minus_monotonic_s + changed_us / 1e6, 2) if changed_us else None,
        needs_reload=block.get("NeedDaemonReload") == "yes",
        fragment=block.get("FragmentPath", ""),
        drop_ins=tuple(block.get("DropInPaths", "").split()),
        restart_steps=int(block.get("RestartSteps") or 0),
    )


def _word(words: type[Word], block: Mapping[str, str], key: str) -> Word:
    try:
        return words(block[key])
    except (KeyError, ValueError):
        said = f"{key}={block.get(key, '')} of {block['Id']}"
        raise Problem(
            f"cannot understand systemd: it says {said}, a word we do not know", hint="upgrade dsv4ctl"
        ) from None


def start(unit: str, *, block: bool = False, timeout_s: float = JOB_TIMEOUT_S) -> None:
    """Start a unit; when `block`, wait for the outcome. Raises CannotRun with what systemctl says."""
    _job("start", unit, *_blocking(block=block), timeout_s=timeout_s)


def stop(unit: str, *, block: bool = False, timeout_s: float = JOB_TIMEOUT_S) -> None:
    """Stop a unit; when `block`, until it is down. One that systemd does not know is down. Raises CannotRun."""
    _job("stop", unit, *_blocking(block=block), timeout_s=timeout_s, unknown_is_fine=True)


def kill(unit: str) -> None:
    """SIGKILL to every process of a unit, by its cgroup. One that is gone already is no error. Raises CannotRun."""
    try:
        _systemctl("kill", "--signal=KILL", unit, timeout_s=JOB_TIMEOUT_S)
    except CannotRun as error:
        if not any(word in str(error) for word in ("not loaded", "No unit", "no main", "No matching processes")):
            raise


def adopt(scope: str, pids: Sequence[int], *, description: str, slice_: str = "") -> None:
    """Move living processes into a new transient scope, out of whatever they are in. Raises CannotRun.

    `slice_`: below which slice it is, systemd's own default otherwise. Needs the system bus (`busctl`); the scope ends
    with its last process.
    """
    numbers = (str(len(pids)), *map(str, pids))
    properties = (
        *("PIDs", "au", *numbers),
        *("Description", "s", description),
        *("CollectMode", "s", COLLECT),
        *(("Slice", "s", slice_) if slice_ else ()),
    )
    count = "4" if slice_ else "3"
    words = (*MANAGER, "StartTransientUnit", "ssa(sv)a(sa(sv))", scope, "fail", count, *properties, "0")
    child.run(["busctl", "--quiet", "call", *words], timeout_s=SHOW_TIMEOUT_S)
    # The answer says that a job is queued; the processes have moved when it is done.
    until(lambda: show((scope,))[scope].active is not ActiveState.ACTIVATING or None, RealClock(), ADOPT_LIMIT_S, 0.01)


def ends_for_good(unit: str) -> bool:
    """Whether a service was made by systemd-run, which leaves no file, and is not started again when it ends."""
    shown = _systemctl("show", "--property=Transient,Restart", unit, timeout_s=SHOW_TIMEOUT_S).split()
    return sorted(shown) == ["Restart=no", "Transient=yes"]


def reset_failed(unit: str) -> None:
    """Forget that a unit failed and how often it was started. Raises CannotRun."""
    _job("reset-failed", unit, unknown_is_fine=True)


def enable(unit: str) -> None:
    """Have a unit started at boot. Raises CannotRun."""
    _job("enable", unit)


def disable(unit: str) -> None:
    """Have a unit not started at boot. Raises CannotRun."""
    _job("disable", unit)


def daemon_reload() -> None:
    """Have systemd read all unit files again. Raises CannotRun."""
    _systemctl("daemon-reload", timeout_s=RELOAD_TIMEOUT_S)


def verify(paths: Iterable[Path], root: Path | None = None) -> str:
    """All that `systemd-analyze verify` prints of unit files. Only '' is a pass: it exits 0 on misspelt keys too."""
    under = [f"--root={root}"] if root else []
    done = child.run(
        ["systemd-analyze", "verify", "--man=no", *under, *paths], timeout_s=ANALYZE_TIMEOUT_S, check=False
    )
    said = (done.stdout + done.stderr).strip()
    return said or (child.why(done) if done.status else "")


def security(unit: str | Path) -> float:
    """How exposed a unit is by `systemd-analyze security`, from 0.0 to 10.0: a loaded unit, or a unit file offline.

    Raises CannotRun where systemd has no --offline (before 250).
    """
    offline = ["--offline=true"] if isinstance(unit, Path) else []
    done = child.run(["systemd-analyze", "security", "--no-pager", *offline, unit], timeout_s=ANALYZE_TIMEOUT_S)
    return parse_security(done.stdout)


def parse_security(text: str) -> float:
    """The overall exposure in the output of `systemd-analyze security UNIT`. Raises Problem when there is none."""
    if found := re.search(r"Overall exposure level for \S+: (\d+\.\d+)", text):
        return float(found.group(1))
    raise Problem("cannot find the overall exposure in the output of systemd-analyze security")


def journal(*units: str, lines: int, since: float | None = None, invocation: str | None = None) -> tuple[Entry, ...]:
    """The last `lines` entries of some units and of systemd about them, oldest first.

    `since` (seconds since the epoch) and `invocation` (systemd's InvocationID) narrow them. Raises CannotRun.
    """
    span = [f"--since=@{since:.6f}"] if since is not None else []
    run = [f"_SYSTEMD_INVOCATION_ID={invocation}", "+", f"INVOCATION_ID={invocation}"] if invocation else []
    # Forwards from a moment, journalctl counts its lines from there (systemd 252): those are the first.
    argv = [*JOURNALCTL, *_of(units), "--reverse", f"--lines={lines}", *span, *run]
    found = child.run(argv, timeout_s=JOURNAL_TIMEOUT_S).stdout.splitlines()
    return tuple(map(parse_entry, reversed(found)))


def follow_journal(*units: str, lines: int) -> Iterator[Entry]:
    """The last `lines` entries of some units, then each new one, until the iterator is closed. Raises CannotRun."""
    yield from map(parse_entry, child.stream([*JOURNALCTL, *_of(units), f"--lines={lines}", "--follow"]))


def _of(units: Iterable[str]) -> tuple[str, ...]:
    return tuple(f"--unit={unit}" for unit in units)


def parse_entry(line: str) -> Entry:
    """Read one line of `journalctl -o json`; a value is text, null or a list (systemd's JOURNAL_EXPORT_FORMATS)."""
    fields = json.loads(line)
    return Entry(
        at=int(fields["__REALTIME_TIMESTAMP"]) / 1e6,
        priority=int(_field(fields.get("PRIORITY")) or 6),
        identifier=_field(fields.get("SYSLOG_IDENTIFIER")) or _field(fields.get("_COMM")),
        pid=int(_field(fields.get("_PID")) or 0),
        message=_field(fields.get("MESSAGE")),
    )


def _field(value: object) -> str:
    """A field as text: bytes that are no UTF-8 come as a list of numbers, a field sent twice as a list of both."""
    if value is None:
        return ""
    if not isinstance(value, list):
        return str(value)
    if all(isinstance(octet, int) for octet in value):
        return bytes(value).decode(errors="replace")
    return _field(value[0])


def _blocking(*, block: bool) -> tuple[str, ...]:
    return () if block else ("--no-block",)


def _job(verb: str, unit: str, *flags: str, timeout_s: float = JOB_TIMEOUT_S, unknown_is_fine: bool = False) -> None:
    try:
        _systemctl(verb, *flags, unit, timeout_s=timeout_s)
    except CannotRun as error:
        if unknown_is_fine and f"Unit {unit} not loaded" in str(error):
            return
        raise type(error)(str(error), hint=error.hint or f"journalctl -u {unit} -n 50") from None


def _systemctl(*words: str, timeout_s: float) -> str:
    # Nobody sits at our children's terminal, so systemctl must not wait for a password.
    done = child.run(["systemctl", "--no-ask-password", *words], timeout_s=timeout_s, check=False)
    if not done.status:
        return done.stdout
    if not is_running():
        hint = "dsv4ctl rehearse   brings a private one"
        raise CannotRun("cannot ask systemd for anything: it is not the init of this host", hint=hint)
    what = " ".join(word for word in words if not word.startswith("--"))
    raise CannotRun(f"cannot {what}: {child.why(done)}")
