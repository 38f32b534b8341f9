"""Faults of a pair: a half that dies, is late, remembers wrongly, or has moved (B49, B52, B79, B82, B83)."""

import time

from dsv4ctl.rehearsal.private import Machine
from tests.conftest import Behave
from tests.system.deploying import (
    journal,
    prop,
    until,
    wait_for_active,
)
from tests.system.pairs import (
    DECODE,
    DECODE_PORT,
    PREFILL,
    PREFILL_PORT,
    ROUTER,
    all_words,
    ask,
    deploy,
    engine,
    kill,
    misbehave,
    prepare,
    wait_for_answer,
    words,
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


def test_b49_a_killed_prefill_takes_nobody_with_it_and_comes_back_into_the_pair(machine: Machine) -> None:
    """B49: decode and router keep their pids, the target stays active, and each says that a peer is down."""
    prepare(machine, backend="mooncake")
    deploy(machine, "small")
    before, prefill = pids(machine, DECODE, ROUTER), engine(machine, PREFILL)

    kill(machine, PREFILL)

    until(lambda: "degraded: peer down" in words(machine, DECODE), lambda: all_words(machine), every_s=0.05)
    assert prop(machine, "ActiveState", TARGET) == "active"
    until(lambda: "degraded" not in all_words(machine), lambda: all_words(machine))
    assert pids(machine, DECODE, ROUTER) == before
    assert engine(machine, PREFILL) != prefill
    assert ask(machine)
    assert prop(machine, "ActiveState", TARGET) == "active"


def test_b79_and_b52_no_pair_is_ready_before_its_last_half_is(machine: Machine, behaviour: Behave) -> None:
    """B79: the prefill is ready long after the decode. B52: the router starts after the last half is ready."""
    prepare(machine)
    misbehave(behaviour, "prefill", load_s=6.0)
    deploy(machine, "small", check=False)

    assert entered(machine, ROUTER) > entered(machine, PREFILL) > entered(machine, DECODE)


def test_b82_a_half_that_remembers_the_one_before_is_restarted_once_and_that_is_logged(
    machine: Machine, behaviour: Behave
) -> None:
    """B82: after a restart the pair is probed, and only a failing probe restarts the peer."""
    prepare(machine, limits={"proof": "8s", "drain": "2s"}, backend="mooncake")
    misbehave(behaviour, "decode", stale_peer=True)
    deploy(machine, "small")
    decode = engine(machine, DECODE)

    kill(machine, PREFILL)

    until(lambda: prop(machine, "ActiveState", DECODE) != "active", lambda: all_words(machine))
    wait_for_active(machine, unit=DECODE)
    wait_for_answer(machine)
    assert engine(machine, DECODE) != decode
    assert (
        journal(machine, "-u", ROUTER).count(f"{DECODE} is asked to start again, once: the pair does not answer") == 1
    )


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
