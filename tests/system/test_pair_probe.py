"""One pair behind the real router, and every verdict of its probe by a half or a router that misbehaves."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from dsv4ctl.child import Done
from dsv4ctl.problems import Status
from dsv4ctl.rehearsal.private import Machine
from tests.system.conftest import reset
from tests.system.deploying import PORT, inside, prop, until, wait_for_active
from tests.system.pairs import (
    DECODE,
    DECODE_PORT,
    OFTEN,
    PREFILL,
    PREFILL_PORT,
    ROUTER,
    all_words,
    deploy,
    kill,
    misbehave,
    prepare,
    probe,
)

LIVE = {half: f"/run/standin/live-{half}.json" for half in ("prefill", "decode")}
GENERATIONS = {half: f"/run/standin/generations-{half}" for half in LIVE}
LOCK = "run/dsv4ctl/router/probe.lock"
# A router that takes a worker for dead as soon as one look fails, and for ever.
UNFORGIVING = OFTEN.replace("]", ', "--health-failure-threshold", "1", "--health-success-threshold", "100000"]')
# Asks a server of the machine: method, port, path and body.
ASK = """
import sys
from dsv4ctl import probe
method, url, body = sys.argv[1:]
asked = {"GET": probe.get, "DELETE": probe.delete}.get(method)
found = asked(url, timeout_s=20) if asked else probe.post(url, {"text": body}, timeout_s=20)
sys.stdout.write(found.body.decode())
"""
# Probes one after the other until it is told to stop.
AGAIN_AND_AGAIN = "while [ ! -e /run/standin/enough ]; do dsv4ctl probe || true; done"


@pytest.fixture(scope="module", autouse=True)
def fresh(machine: Machine) -> None:
    """One pair for all tests of this file; the misdeeds of its halves come and go while it runs."""
    reset(machine)
    prepare(machine, backend="mooncake", limits={"proof": "60s", "drain": "2s"})
    for half, port in (("prefill", PREFILL_PORT), ("decode", DECODE_PORT)):
        misbehave(
            lambda at, **what: machine.write(f"/run/standin/{at}.json", json.dumps(what)),
            half,
            live=LIVE[half],
            generations_to=GENERATIONS[half],
        )
        assert (machine.root / f"run/standin/{port}.json").exists()
    deploy(machine, "small")


@contextmanager
def doing(machine: Machine, half: str, **misdeed: object) -> Iterator[None]:
    """A half does this within the block."""
    file = machine.root / LIVE[half][1:]
    machine.write(f"{LIVE[half]}.new", json.dumps(misdeed))
    file.with_suffix(".json.new").rename(file)
    try:
        yield
    finally:
        file.unlink()


def found(machine: Machine, verdict: str) -> Done:
    """The probe that gives this verdict: on a host that is slow it gets more time, until it sees as much."""
    for limit_s in (2, 8, 32):
        done = probe(machine, "--limit", str(limit_s), check=False)
        if f"\n{verdict}: " in f"\n{done.stdout}":
            break
    assert f"\n{verdict}: " in f"\n{done.stdout}", done.stdout + done.stderr
    assert done.status == (Status.OK if verdict == "ok" else Status.NOT_READY)
    return done


def asked(machine: Machine, method: str, port: int, path: str, body: str = "") -> str:
    """What a server of the machine answers."""
    argv = (sys.executable, "-P", "-c", ASK, method, f"http://127.0.0.1:{port}{path}", body)
    return machine.run(argv, timeout_s=60).stdout


def workers(machine: Machine) -> dict[int, dict[str, Any]]:
    """Port -> what the router says of the worker there."""
    return {
        int(one["url"].rpartition(":")[2]): one
        for one in json.loads(asked(machine, "GET", PORT, "/workers"))["workers"]
    }


@pytest.mark.parametrize(
    ("verdict", "half", "misdeed", "words"),
    [
        ("hand-off", "prefill", {"no_transfer": True}, "both halves wait for each other to hand the KV over"),
        ("hand-off", "decode", {"no_transfer": True}, "both halves wait for each other to hand the KV over"),
        ("decode", "decode", {"decode_never_answers": True}, "the decode has the KV and does not finish"),
        ("prefill", "prefill", {"health_but_no_generation": True}, "has taken the request up and does not finish"),
        ("garbage", "prefill", {"wrong_tokens": "repeated"}, "does not repeat what it was given: 'the the the"),
        ("garbage", "decode", {"wrong_tokens": "other"}, "does not repeat what it was given"),
        ("garbage", "decode", {"garbage_generation": "not_json"}, "no completion: '<html>upstream is fine</html>'"),
    ],
)
def test_whoever_misbehaves_is_the_verdict_with_what_he_does_and_what_to_type(
    machine: Machine, verdict: str, half: str, misdeed: dict[str, object], words: str
) -> None:
    with doing(machine, half, **misdeed):
        said = found(machine, verdict)

    assert words in said.stdout
    assert f"dsv4-{half}" in said.stderr or "dsv4ctl deploy --transfer-backend" in said.stderr


@pytest.mark.parametrize(
    ("unit", "half", "port"), [(PREFILL, "prefill", PREFILL_PORT), (DECODE, "decode", DECODE_PORT)]
)
def test_a_half_that_is_stuck_while_the_router_takes_it_for_healthy_is_the_verdict(
    machine: Machine, unit: str, half: str, port: int
) -> None:
    scheduler = str(inside(machine, unit)["scheduler"])
    # What an earlier test gave up has come through: else it may be what the half is stopped at.
    found(machine, "ok")
    machine.run(("kill", "-STOP", scheduler), timeout_s=5)
    said = found(machine, half)
    healthy = workers(machine)[port]["is_healthy"]
    machine.run(("kill", "-CONT", scheduler), timeout_s=5)

    assert "does not take the request up" in said.stdout
    assert f"systemctl restart {unit.removesuffix('.service')}" in said.stderr
    assert healthy


@pytest.mark.parametrize(("unit", "verdict"), [(ROUTER, "router"), (DECODE, "decode"), (PREFILL, "prefill")])
def test_whoever_hangs_as_a_whole_is_the_verdict(machine: Machine, unit: str, verdict: str) -> None:
    kill(machine, unit, "STOP")
    said = found(machine, verdict)
    kill(machine, unit, "CONT")

    assert f"systemctl restart {unit}" in said.stderr


def test_b74_a_prefill_that_died_of_a_bare_generate_is_the_verdict_with_what_it_died_of(machine: Machine) -> None:
    """B74: whoever else sends a half a bare generate ends it; the probe tells, and never does so itself."""
    machine.run(("dsv4ctl", "pause", "--reason", "look at it", "--for", "1h"), timeout_s=30)
    with doing(machine, "prefill", die_on_bare_generate=True):
        asked(machine, "POST", PREFILL_PORT, "/generate", "hello")
    until(lambda: prop(machine, "MainPID", PREFILL) != "0", lambda: all_words(machine))
    said = found(machine, "prefill")
    machine.run(("dsv4ctl", "resume"), timeout_s=60)

    assert "bootstrap_room is None" in said.stdout
    found(machine, "ok")


def test_a_router_that_has_forgotten_a_worker_is_the_verdict_and_what_it_says_to_type_helps(machine: Machine) -> None:
    asked(machine, "DELETE", PORT, f"/workers/{workers(machine)[DECODE_PORT]['id']}")
    until(lambda: DECODE_PORT not in workers(machine), lambda: str(workers(machine)))
    said = found(machine, "router")

    assert f"does not send to {DECODE} (http://127.0.0.1:{DECODE_PORT}): it has them in its list no more" in said.stdout
    machine.run(tuple(said.stderr.strip().removeprefix("try: ").split()), timeout_s=60)
    found(machine, "ok")


def test_a_second_probe_waits_and_is_told_for_whom_and_gives_up_at_its_limit(machine: Machine) -> None:
    with doing(machine, "decode", decode_never_answers=True), machine.popen(("dsv4ctl", "probe")) as first:
        until(lambda: "dsv4ctl probe" in (machine.root / LOCK).read_text(), lambda: all_words(machine))
        pid = json.loads((machine.root / LOCK).read_text())["process"]["pid"]
        late = probe(machine, "--limit", "1", check=False)
        assert late.status == Status.BUSY
        assert "holds the lock for a probe since" in late.stderr
        assert f"(pid {pid}: dsv4ctl probe)" in late.stderr
        assert "dsv4ctl probe --limit SECONDS   waits longer" in late.stderr
        second = machine.popen(("dsv4ctl", "probe"))
        assert second.stderr is not None
        assert f"(pid {pid}: dsv4ctl probe)" in second.stderr.readline()
        (machine.root / LIVE["decode"][1:]).write_text("{}")
        assert "ok: " in first.communicate(timeout=120)[0]
        assert "ok: " in second.communicate(timeout=120)[0]
    assert (first.returncode, second.returncode) == (0, 0)


def test_while_its_supervisor_proves_the_router_no_command_does_and_is_told_so(machine: Machine) -> None:
    with doing(machine, "decode", decode_never_answers=True):
        machine.run(("systemctl", "restart", "--no-block", ROUTER), timeout_s=30)
        lock = machine.root / LOCK
        until(lambda: f"the supervisor of {ROUTER}" in lock.read_text(), lambda: all_words(machine), limit_s=120)
        busy = probe(machine, "--limit", "1", check=False)

    assert busy.status == Status.BUSY
    assert f"{prop(machine, 'MainPID', ROUTER)}: the supervisor of {ROUTER})" in busy.stderr
    wait_for_active(machine, unit=ROUTER, limit_s=120)
    found(machine, "ok")


def test_no_two_probes_are_ever_under_way_whoever_makes_them(machine: Machine) -> None:
    for file in GENERATIONS.values():
        machine.write(file, "")
    loops = [machine.popen(("sh", "-c", AGAIN_AND_AGAIN)) for _ in range(3)]
    # The supervisor of a new router proves it by a generation of its own.
    before = prop(machine, "MainPID", ROUTER)
    machine.run(("systemctl", "restart", ROUTER), timeout_s=120)
    found(machine, "ok")
    machine.write("/run/standin/enough", "")
    for loop in loops:
        loop.communicate(timeout=120)

    assert prop(machine, "MainPID", ROUTER) != before
    for file in GENERATIONS.values():
        lines = [line.split() for line in (machine.root / file[1:]).read_text().splitlines()]
        assert len(lines) > 4
        assert [word for word, _ in lines] == ["begin", "end"] * (len(lines) // 2)
        assert [request for _, request in lines[::2]] == [request for _, request in lines[1::2]]


def test_a_router_that_takes_a_half_for_dead_that_is_ready_is_the_verdict_and_what_it_says_to_type_helps(
    machine: Machine,
) -> None:
    config = machine.root / "etc/dsv4ctl/config.toml"
    machine.write("/etc/dsv4ctl/config.toml", config.read_text().replace(OFTEN, UNFORGIVING))
    deploy(machine, "small")
    kill(machine, DECODE, "STOP")
    until(lambda: not workers(machine)[DECODE_PORT]["is_healthy"], lambda: str(workers(machine)))
    kill(machine, DECODE, "CONT")
    said = found(machine, "router")

    assert "it takes for dead what is ready" in said.stdout
    advice = said.stderr.strip().rpartition("if it stays so, ")[2]
    machine.run(tuple(advice.split()), timeout_s=60)
    found(machine, "ok")
