"""How an instance stands, from what systemd and its supervisor say: old words are never told as new ones. Pure."""

from dataclasses import dataclass

from dsv4ctl.model import ActiveState, Phase, RunState, Unit

# What systemd itself exits with when it cannot get as far as our program (systemd.exec(5), "Process Exit Codes").
SYSTEMD_FAILED = {
    200: ("cannot enter the working folder", "does it exist, and may the user enter it?"),
    203: (
        "cannot execute its program",
        "may the user execute it and enter every folder above it? it may also be missing, lack its interpreter, or be"
        " forbidden by SELinux (ls -Z)",
    ),
    216: ("cannot become its group", "is there such a group?"),
    217: ("cannot become its user", "is there such a user? set user in the config"),
    226: ("cannot set up its view of the file system", "is a folder that it binds missing?"),
    227: ("cannot drop its privileges", "does this kernel support the sandboxing of the unit?"),
    228: ("cannot install its system call filter", "does this kernel support seccomp?"),
    233: ("cannot make its runtime folder", "is /run full or read-only?"),
    238: ("cannot make its state folder", "is /var/lib full or read-only?"),
    239: ("cannot make its cache folder", "is /var/cache full or read-only?"),
    242: ("cannot bind its memory to the NUMA node", "does the kernel have that node? dsv4ctl topology"),
    243: ("cannot read its credentials", "is the API key file there? set api_key_file in the config"),
}


@dataclass(frozen=True, slots=True)
class Standing:
    """`state`: a word for a column. `words`: a line for people. `advice`: what to type or look at, '' when nothing."""

    state: str
    words: str
    advice: str = ""


def of(unit: Unit, state: RunState | None) -> Standing:
    """Judge one instance.

    1. its supervisor runs: what it tells systemd
    2. systemd could not get as far as the supervisor: systemd's own reason, whatever an earlier supervisor said
    3. put down for an automatic restart: why, and that systemd starts it again
    4. down after a failure, or parked: the supervisor's verdict, or how it died
    5. down after a stop: its goodbye
    6. down, and nobody has said anything: this instance was not started yet
    """
    if unit.main_pid and unit.active is not ActiveState.FAILED:
        return Standing(_running(unit, state), unit.status_text)
    if unit.exit_code == "exited" and unit.exit_status in SYSTEMD_FAILED:
        why, advice = SYSTEMD_FAILED[unit.exit_status]
        return Standing(_down(unit), f"systemd {why} (status {unit.exit_status}){_again(unit)}", advice)
    if state is not None and state.phase is Phase.PARKED:
        return Standing("parked", state.words, state.advice)
    if state is not None and state.phase is Phase.FAILED:
        return Standing(_down(unit), state.words + _again(unit), state.advice)
    if unit.active is ActiveState.FAILED or unit.sub.startswith("auto-restart"):
        return Standing(_down(unit), _died(unit, state) + _again(unit))
    if state is None and unit.active is ActiveState.INACTIVE:
        return Standing(unit.active, "not started")
    return Standing(unit.active, state.words if state is not None and state.phase is Phase.STOPPED else "")


def own(state: RunState | None, digest: str, unit: Unit) -> RunState | None:
    """What was said of the instance with this digest. While the unit is down, the file may still tell of an earlier
    instance of the same name; while it runs, whoever runs is the one to be heard."""
    return state if state is None or unit.main_pid or state.digest == digest else None


def _running(unit: Unit, state: RunState | None) -> str:
    if state is not None and state.phase is Phase.PAUSED and state.pid == unit.main_pid:
        return "paused"
    return "starting" if unit.active is ActiveState.ACTIVATING else unit.active


def _down(unit: Unit) -> str:
    return "restarting" if unit.sub.startswith("auto-restart") else "failed"


def _again(unit: Unit) -> str:
    return "; systemd starts it again" if unit.sub.startswith("auto-restart") else ""


def _died(unit: Unit, state: RunState | None) -> str:
    """A supervisor that could not say why it ended."""
    how = f"{unit.exit_code} with status {unit.exit_status}" if unit.exit_code else f"result {unit.result}"
    last = f" while it said '{state.words}'" if state is not None else ""
    return f"the supervisor ended ({how}){last}"
