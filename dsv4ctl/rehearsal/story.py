"""The timeline of `dsv4ctl rehearse`: the main job once in a private machine, each step with its time and output."""

import json
import signal
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from dsv4ctl import procs
from dsv4ctl.clock import Clock, RealClock
from dsv4ctl.problems import CannotRun, LeftOver, NotReady
from dsv4ctl.rehearsal import machine
from dsv4ctl.rehearsal.private import Machine

Say = Callable[[str], None]

# A real load takes minutes; this is long enough to see its phases.
LOAD_S = 4
QUESTION = "What is the capital of France?"

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
    """Deploy, look, chat, tear down and prove that nothing is left. Raises Problem at the first step that fails."""
    _end_tidily()
    time = _timeline(say)
    time.step("boot a private systemd with eight stand-in GPUs and a stand-in engine")
    with machine.boot() as private:
        time.show([_described(private)])
        private.write(f"/run/standin/{port}.json", json.dumps({"load_s": LOAD_S}))
        _command(private, time, "dsv4ctl", "deploy", "--mode", mode, "--port", str(port))
        _command(private, time, "dsv4ctl", "status")
        time.step(f'a chat completion through port {port}: "{QUESTION}"')
        time.show(_chat(private, port))
        _command(private, time, "systemctl", "status", "dsv4-server", "--no-pager", "--lines=5")
        _command(private, time, "dsv4ctl", "teardown", "--verify")
        time.step("what is left in the private machine?")
        time.show(prove_nothing_left(private))
    time.step("end the private machine")
    time.show([prove_ended(private)])


def shell(say: Say) -> int:
    """Boot a private machine and give the terminal to a shell in it; returns the shell's exit status."""
    _end_tidily()
    with machine.boot() as private:
        say(f"{_described(private)}\n\nNothing typed here reaches the host; leaving the shell ends it all. Try:\n")
        say("  dsv4ctl deploy --mode single-tp4 --port 30001\n  dsv4ctl status\n  dsv4ctl teardown --verify\n")
        return private.shell()


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
