"""What the system tests of a pair share: quick stand-ins behind the real router, and looks at each unit."""

import json
import sys
from collections.abc import Mapping

from dsv4ctl.child import Done
from dsv4ctl.rehearsal import router
from dsv4ctl.rehearsal.private import Machine
from dsv4ctl.rehearsal.standins import CONFIG, CONFIG_FILE
from tests import needs
from tests.conftest import Behave
from tests.system.deploying import PORT, QUICK, inside, last_lines, prop, until

ROLES = ("prefill", "decode", "router")
PREFILL, DECODE, ROUTER = (f"dsv4-{role}.service" for role in ROLES)
# The http ports of the halves and the bootstrap port, as they are planned from the first internal port on.
PREFILL_PORT, BOOTSTRAP_PORT, DECODE_PORT = 20002, 20003, 20012

# One that comes back at once, is noticed at once, and is looked at often.
LIMITS: Mapping[str, object] = {"restart": "1s", "restart_max": "1s", "drain": "8s"}
NONE: Mapping[str, object] = {}
# Two processes an engine instead of nine, for tests of who is ended when and of who is at fault.
SMALL = """
[modes.small]
prefill = { tp = 1, gpus = [] }
decode = { tp = 1, gpus = [] }
"""
# The health checks of the router that a test would otherwise wait for.
OFTEN = 'args = ["--health-check-interval-secs", "1"]\n'


def config(backend: str, limits: Mapping[str, object], *, on_gpus: bool) -> str:
    """A config of the stand-ins with the real router. The test is skipped where there is none."""
    found = needs.the_router()
    engine = CONFIG + ("" if on_gpus else 'args = ["--device", "cpu"]\n')
    lines = [f"{name} = {json.dumps(value)}" for name, value in {**LIMITS, **limits}.items()]
    transfer = f'[transfer]\nbackend = "{backend}"\n'
    return "\n".join((engine, router.config(found) + OFTEN, transfer, "[limits]", *lines, SMALL))


def prepare(
    machine: Machine,
    *,
    backend: str = "nixl",
    on_gpus: bool = False,
    limits: Mapping[str, object] = NONE,
    **behaviour: object,
) -> None:
    """Write that config, and how all stand-ins behave unless a port has a file of its own."""
    machine.write(CONFIG_FILE, config(backend, limits, on_gpus=on_gpus))
    machine.write("/run/standin/all.json", json.dumps(QUICK | behaviour))


def deploy(machine: Machine, mode: str, *words: str, check: bool = True, timeout_s: float = 120) -> Done:
    argv = ("dsv4ctl", "deploy", "--mode", mode, "--port", str(PORT), *words)
    return machine.run(argv, timeout_s=timeout_s, check=check)


def probe(machine: Machine, *words: str, check: bool = True) -> Done:
    return machine.run(("dsv4ctl", "probe", *words), timeout_s=120, check=check)


def misbehave(behaviour: Behave, half: str, **what: object) -> None:
    """How one half behaves from its next start on."""
    behaviour({"prefill": PREFILL_PORT, "decode": DECODE_PORT}[half], **(QUICK | what))


def engine(machine: Machine, unit: str) -> int:
    """The pid of the engine or router itself, in the machine's own numbers."""
    return inside(machine, unit)["engine"] if unit != ROUTER else child_of(machine, unit)


def child_of(machine: Machine, unit: str) -> int:
    """The one child of the supervisor."""
    main = prop(machine, "MainPID", unit)
    return int((machine.root / f"proc/{main}/task/{main}/children").read_text().split()[0])


def kill(machine: Machine, unit: str, name: str = "KILL") -> None:
    """A signal to the engine itself, behind systemd's back."""
    machine.run(("kill", f"-{name}", str(engine(machine, unit))), timeout_s=5)


def words(machine: Machine, unit: str) -> str:
    """What `systemctl status` shows of it."""
    return prop(machine, "StatusText", unit)


def all_words(machine: Machine) -> str:
    return "\n".join(f"{unit}: {words(machine, unit)}" for unit in (PREFILL, DECODE, ROUTER))


def ask(machine: Machine, question: str = "hello") -> str:
    """A chat completion through the router; '' when none comes."""
    argv = (sys.executable, "-P", "-m", "dsv4ctl.rehearsal.ask", str(PORT), question)
    done = machine.run(argv, timeout_s=60, check=False)
    return "" if done.status else str(json.loads(done.stdout)["choices"][0]["message"]["content"])


def wait_for_answer(machine: Machine, *, limit_s: float = 60) -> None:
    """Wait until the router passes a request on."""
    until(lambda: bool(ask(machine)), lambda: all_words(machine) + last_lines(machine, ROUTER), limit_s=limit_s)
