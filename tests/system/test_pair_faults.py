"""Faults of a pair: a half that dies, is late, remembers wrongly, or has moved (B49, B52, B79, B82, B83)."""

import time

from dsv4ctl.rehearsal.private import Machine
from tests.conftest import Behave
from tests.system.deploying import (
    prop,
)
from tests.system.pairs import (
    DECODE,
    DECODE_PORT,
    PREFILL,
    PREFILL_PORT,
    ROUTER,
    ask,
    deploy,
    engine,
    misbehave,
    prepare,
)

TARGET = "dsv4.target"
# Counts who comes to ports that were somebody's before.
COUNTER = """
import select, socket, sys
listeners = [socket.create_server(("127.0.0.1", int(port))) for port in sys.argv[1:]]
print("up", flush=True)
came = 0
while True:
    readable, _, _ = select.select([*listeners, sys.stdin], [], [])
    if sys.stdin in readable:
        break
    for one in readable:
        one.accept()
        came += 1
print(came, flush=True)
"""


def pids(machine: Machine, *units: str) -> list[tuple[str, int]]:
    """Supervisors and engines of units."""
    return [(prop(machine, "MainPID", unit), engine(machine, unit)) for unit in units]


def entered(machine: Machine, unit: str) -> int:
    """When a unit became active, in microseconds since boot."""
    return int(prop(machine, "ActiveEnterTimestampMonotonic", unit))


def test_b79_and_b52_no_pair_is_ready_before_its_last_half_is(machine: Machine, behaviour: Behave) -> None:
    """B79: the prefill is ready long after the decode. B52: the router starts after the last half is ready."""
    prepare(machine)
    misbehave(behaviour, "prefill", load_s=6.0)
    deploy(machine, "small", check=False)

    assert entered(machine, PREFILL) - entered(machine, DECODE) > 3_000_000
    assert entered(machine, ROUTER) > entered(machine, PREFILL)


def test_b83_a_pair_that_moved_is_looked_for_at_its_new_ports_only(machine: Machine) -> None:
    """B83: nobody comes to the old ports any more, neither with a request nor with a health check."""
    prepare(machine)
    deploy(machine, "small")
    deploy(machine, "small", "--internal-port", "21001")
    with machine.popen(("python3", "-c", COUNTER, str(PREFILL_PORT), str(DECODE_PORT))) as counter:
        assert counter.stdout is not None
        assert counter.stdout.readline() == "up\n"
        answers = [ask(machine) for _ in range(4)]
        time.sleep(2.5)
        came, _ = counter.communicate(input="end\n", timeout=20)
    assert all(answers)
    assert came.strip() == "0"
