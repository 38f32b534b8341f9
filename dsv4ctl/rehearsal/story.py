"""The timeline of `dsv4ctl rehearse`: the main job once in a private machine, each step with its time and output."""

import json
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from dsv4ctl import modes, procs
from dsv4ctl.clock import Clock, RealClock
from dsv4ctl.model import Role
from dsv4ctl.problems import CannotRun, LeftOver, NotReady
from dsv4ctl.rehearsal import machine, router, standins
from dsv4ctl.rehearsal.private import Machine

Say = Callable[[str], None]

# A real load takes minutes; this is long enough to see its phases.
LOAD_S = 4
QUESTION = "What is the capital of France?"
PAIR = "pd"
# What a mode with a router is switched to, and what is rehearsed where there is no router.
ALONE = "single-tp4"
# The unit that `systemctl status` is shown of.
SHOWN = {Role.DECODE: "dsv4-decode", Role.ROUTER: "dsv4-router", Role.SERVER: "dsv4-server"}

# Processes that a machine has by itself: systemd, its journal and its bus.
OWN = ("init.scope", "systemd-journald.service", "dbus.service")


@dataclass(frozen=True, slots=True)
class Timeline:
    """Prints what is done and when, in seconds from the beginning."""

    say: Say
    clock: Clock
    began: float

    def step(self, text: str) -> None:
        """A new step."""
        self.say(f"\n+{self.clock.now() - self.began:5.1f} s  {text}")

    def show(self, lines: Iterable[str]) -> None:
        """What a step puts out, as it comes."""
        for line in lines:
            self.say(f"          {line}".rstrip())


def rehearse(say: Say, *, mode: str, port: int) -> None:
    """Deploy, look, chat, tear down and prove that nothing is left; a mode with a router is switched to one without.

    Raises Problem at the first step that fails.
    """
    _end_tidily()
    found = router.find()
    mode = _told(say, mode, found)
    time = _timeline(say)
    time.step("boot a private systemd with eight stand-in GPUs and a stand-in engine")
    with _booted(found) as private:
        time.show([_described(private)])
        private.write("/run/standin/all.json", json.dumps({"load_s": LOAD_S}))
        _serve(private, time, mode, port)
        if Role.ROUTER in _roles(mode):
            _serve(private, time, ALONE, port)
        _command(private, time, "dsv4ctl", "teardown", "--verify")
        time.step("what is left in the private machine?")
        time.show(prove_nothing_left(private))
    time.step("end the private machine")
    time.show([prove_ended(private)])


def shell(say: Say) -> int:
    """Boot a private machine and give the terminal to a shell in it; returns the shell's exit status."""
    _end_tidily()
    found = router.find()
    mode = _told(say, PAIR, found)
    with _booted(found) as private:
        say(f"{_described(private)}\n\nNothing typed here reaches the host; leaving the shell ends it all. Try:\n")
        say(f"  dsv4ctl deploy --mode {mode} --port 30001\n  dsv4ctl status\n  dsv4ctl teardown --verify\n")
        return private.shell()


def possible(mode: str, found: Path | None) -> tuple[str, str]:
    """The mode, or one without a router where none was found; and why in a sentence, '' where it is the mode."""
    if found is not None or Role.ROUTER not in _roles(mode):
        return mode, ""
    return ALONE, f"cannot rehearse mode {mode}, so this is {ALONE}: {router.MISSING}"


def _told(say: Say, mode: str, found: Path | None) -> str:
    mode, why = possible(mode, found)
    if why:
        say(why)
    return mode


def _roles(mode: str) -> frozenset[Role]:
    return frozenset(shape.role for shape in modes.BUILT_IN[mode].roles)


@contextmanager
def _booted(found: Path | None) -> Iterator[Machine]:
    with machine.boot(extra=(found,) if found else ()) as private:
        private.write(standins.CONFIG_FILE, standins.CONFIG + (router.config(found) if found else ""))
        yield private


def _serve(private: Machine, time: Timeline, mode: str, port: int) -> None:
    """Deploy a mode, look at it as an operator does, and chat with it."""
    _command(private, time, "dsv4ctl", "deploy", "--mode", mode, "--port", str(port))
    roles = _roles(mode)
    if Role.PREFILL in roles:
        _command(private, time, "dsv4ctl", "probe")
    _command(private, time, "dsv4ctl", "status")
    unit = next(unit for role, unit in SHOWN.items() if role in roles)
    _command(private, time, "systemctl", "status", unit, "--no-pager", "--lines=3")
    time.step(f'a chat completion through port {port}: "{QUESTION}"')
    time.show(_chat(private, port))


def prove_nothing_left(private: Machine) -> list[str]:
    """Look for units, processes, listeners and GPU memory; one line for each. Raises LeftOver with what is there."""
    found = {
        "active units": _active_units(private),
        "processes": _foreign_processes(private),
        "listeners": private.run(("ss", "-Hltn"), timeout_s=10).stdout.splitlines(),
        "GPU memory": _held_memory(private),
    }
    left = [f"{what}: {'; '.join(lines)}" for what, lines in found.items() if lines]
    if left:
        raise LeftOver("cannot end the rehearsal: " + "\n".join(left), hint="dsv4ctl rehearse --shell, and look closer")
    return [f"{what + ':':<14}none" for what in found]


def prove_ended(private: Machine) -> str:
    """Look at the host once the machine has ended. Raises LeftOver when its first process or cgroup is still there."""
    if procs.stat(private.pid) is not None or private.group.exists():
        raise LeftOver(f"cannot end the private machine: pid {private.pid} or {private.group} is still there")
    return "its processes, mounts and cgroups are gone; this host is as it was"


def _timeline(say: Say) -> Timeline:
    clock = RealClock()
    return Timeline(say, clock, clock.now())


def _end_tidily() -> None:
    """End by SIGTERM and by a lost terminal as by Ctrl-C: through the contexts, which remove the cgroup folder."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)


def _described(private: Machine) -> str:
    version = private.run(("systemctl", "--version"), timeout_s=10).stdout.splitlines()[0]
    return f"{version} is pid 1 of namespaces of its own: processes, mounts, network, cgroups"


def _command(private: Machine, time: Timeline, *argv: str) -> None:
    time.step(" ".join(argv))
    try:
        time.show(private.stream(argv))
    except CannotRun:
        # Its own words stand above already.
        raise NotReady(f"cannot go on with the rehearsal: `{' '.join(argv)}` failed", hint=_more(argv)) from None


def _more(argv: tuple[str, ...]) -> str:
    return f"dsv4ctl rehearse --shell, then {' '.join(argv)}"


def _chat(private: Machine, port: int) -> list[str]:
    asked = private.run((sys.executable, "-P", "-m", "dsv4ctl.rehearsal.ask", str(port), QUESTION), timeout_s=60)
    answer = json.loads(asked.stdout)
    words, used = answer["choices"][0]["message"]["content"], answer["usage"]
    tokens = f"{used['prompt_tokens']} prompt and {used['completion_tokens']} completion tokens"
    return [f"{answer['model']}: {words}", f"{tokens} in {asked.seconds:.1f} s"]


def _active_units(private: Machine) -> list[str]:
    words = ("systemctl", "list-units", "--plain", "--no-legend", "--state=active,activating,deactivating,reloading")
    shown = private.run((*words, "dsv4*.service", "dsv4*.scope"), timeout_s=10).stdout
    return [line.split()[0] for line in shown.splitlines()]


def _foreign_processes(private: Machine) -> list[str]:
    """Processes of the machine in another cgroup than its own three."""
    below = "/" / private.group.relative_to(procs.cgroup_root())
    running = filter(None, map(procs.read, procs.cgroup_pids(str(below))))
    return [f"{one.pid} {one.command}" for one in running if procs.unit_of_cgroup(one.cgroup) not in OWN]


def _held_memory(private: Machine) -> list[str]:
    seen = json.loads(private.run(("dsv4ctl-nvml",), timeout_s=10).stdout)
    return [f"{gpu['uuid']} {gpu['used_bytes']} bytes" for gpu in seen["gpus"] if gpu["used_bytes"]]
