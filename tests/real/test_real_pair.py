"""The real pair (CPU): a prefill and a decode with KV over TCP by mooncake, and the real router, deployed as one mode.

The tests are one story and run in order: every one leaves the pair as the next expects it, since two real engines take
more than a minute to load on two cores.
"""

import json
import time
from collections.abc import Callable

from dsv4ctl.child import Done
from dsv4ctl.rehearsal.private import Machine
from tests.system.deploying import children, prop, until

PREFILL, DECODE, ROUTER = UNITS = tuple(f"dsv4-{role}.service" for role in ("prefill", "decode", "router"))
LOAD_S = 1200
NONCE = "the nonce is 8f14e45fceea167a5a36dedd4bea2543"
TOKENS = 600

# How many tokens each half has generated before and after an answer of five through the router.
COUNTED = f"""
import json, time, urllib.request
def tokens(port):
    lines = urllib.request.urlopen(f"http://127.0.0.1:{{port}}/metrics", timeout=20).read().decode().splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith("sglang:generation_tokens_total{{"))
def both():
    return tokens(20002), tokens(20012)
before = both()
body = json.dumps({{"model": "tiny", "prompt": {NONCE!r}, "max_tokens": 5, "temperature": 0, "ignore_eos": True}})
request = urllib.request.Request(
    "http://127.0.0.1:30001/v1/completions", body.encode(), {{"Content-Type": "application/json"}}
)
used = json.load(urllib.request.urlopen(request, timeout=300))["usage"]["completion_tokens"]
end = time.monotonic() + 60
while (after := both())[1] < before[1] + 5 and time.monotonic() < end:
    time.sleep(0.2)
print(json.dumps([used, after[0] - before[0], after[1] - before[1]]))
"""
STREAM = f"""
import json, urllib.request
asked = {{"model": "tiny", "prompt": {NONCE!r}, "max_tokens": {TOKENS}, "ignore_eos": True, "stream": True,
         "stream_options": {{"include_usage": True}}}}
request = urllib.request.Request(
    "http://127.0.0.1:30001/v1/completions", json.dumps(asked).encode(), {{"Content-Type": "application/json"}}
)
lines = [line for line in urllib.request.urlopen(request, timeout=300) if line.startswith(b"data:")]
parts = [json.loads(line[5:]) for line in lines[:-1]]
ends = [one["finish_reason"] for part in parts for one in part["choices"] if one["finish_reason"]]
print(json.dumps([len(parts), parts[-1]["usage"]["completion_tokens"], ends, lines[-1].decode().strip()]))
"""


def dsv4ctl(machine: Machine, *words: str, check: bool = True) -> Done:
    return machine.run(("dsv4ctl", *words), timeout_s=LOAD_S, check=check)


def said(machine: Machine) -> dict[str, str]:
    """What `systemctl status` shows of each."""
    return {unit: prop(machine, "StatusText", unit) for unit in UNITS}


def engine(machine: Machine, unit: str) -> int:
    """The main process of the engine or router itself, in the machine's own numbers."""
    return children(machine, int(prop(machine, "MainPID", unit)))[0]


def lives(machine: Machine, *units: str) -> list[tuple[str, int]]:
    """Which start of a unit this is, and its engine."""
    return [(prop(machine, "InvocationID", unit), engine(machine, unit)) for unit in units]


def counted(machine: Machine) -> list[float]:
    """Tokens of an answer through the router, and what prefill and decode say that they generated of it."""
    found: list[float] = json.loads(machine.run(("python3", "-c", COUNTED), timeout_s=400).stdout)
    return found


def verdict(machine: Machine) -> str:
    return str(json.loads(dsv4ctl(machine, "probe", "--json", check=False).stdout)["verdict"])


def test_the_real_pair_is_deployed_and_proved_by_an_answer_that_both_halves_counted(machine: Machine) -> None:
    done = dsv4ctl(machine, "deploy", "--mode", "pd")

    (proved,) = (line for line in done.stdout.splitlines() if line.startswith("ok: "))
    assert f"{ROUTER} serves tiny on http://127.0.0.1:30001" in done.stdout
    assert proved.startswith("ok: an answer came in ")
    assert proved.endswith("prefill and decode both counted it")
    assert counted(machine) == [5, 1, 5]


def test_status_and_probe_tell_all_three(machine: Machine) -> None:
    rows = json.loads(dsv4ctl(machine, "status", "--json").stdout)["rows"]

    assert {row["role"]: (row["state"], row["health"]) for row in rows} == {
        "prefill": ("active", "ready"), "decode": ("active", "ready"), "router": ("active", "2/2 workers"),
    }  # fmt: skip
    assert verdict(machine) == "ok"


def test_a_killed_decode_takes_nobody_with_it_and_comes_back_into_the_pair(machine: Machine) -> None:
    is_healed_after_a_kill(machine, DECODE, beside=(PREFILL, ROUTER))


def test_a_killed_prefill_takes_nobody_with_it_and_comes_back_into_the_pair(machine: Machine) -> None:
    is_healed_after_a_kill(machine, PREFILL, beside=(DECODE, ROUTER))


def is_healed_after_a_kill(machine: Machine, victim: str, *, beside: tuple[str, str]) -> None:
    """The others go on, say who is missing, and the pair is proved again without a restart of theirs."""
    before, killed = lives(machine, *beside), engine(machine, victim)
    machine.run(("kill", "-KILL", str(killed)), timeout_s=60)

    peer_down = f"degraded: peer down ({victim.removesuffix('.service')}: "
    wait_for(machine, lambda: all(peer_down in said(machine)[unit] for unit in beside))
    assert verdict(machine) == victim.removeprefix("dsv4-").removesuffix(".service")
    wait_for(
        machine, lambda: all(words.startswith("ready") and "degraded" not in words for words in said(machine).values())
    )

    assert verdict(machine) == "ok"
    assert counted(machine) == [5, 1, 5]
    assert lives(machine, *beside) == before
    assert engine(machine, victim) != killed


def wait_for(machine: Machine, found: Callable[[], bool]) -> None:
    until(found, lambda: json.dumps(said(machine), indent=1), limit_s=LOAD_S)


def test_a_stream_through_the_router_is_finished_before_anybody_ends(machine: Machine) -> None:
    stream = machine.popen(("python3", "-c", STREAM))
    while not running(machine):
        assert stream.poll() is None, stream.communicate()
        time.sleep(0.1)

    gone = dsv4ctl(machine, "teardown", "--verify")
    out, _ = stream.communicate(timeout=LOAD_S)

    parts, tokens, ends, last = json.loads(out)
    assert (tokens, ends, last) == (TOKENS, ["length"], "data: [DONE]")
    assert parts > 50
    assert all(line.startswith("gone") for line in gone.stdout.splitlines())
    assert [prop(machine, "Result", unit) for unit in UNITS] == ["success"] * 3


def running(machine: Machine) -> int:
    rows = json.loads(dsv4ctl(machine, "status", "--json").stdout)["rows"]
    return int(next(row["running"] for row in rows if row["role"] == "decode") or 0)


def test_router_decode_and_prefill_were_stopped_in_this_order(machine: Machine) -> None:
    lines = machine.run(
        ("journalctl", "--output=cat", "--no-pager", *(w for u in UNITS for w in ("-u", u))), timeout_s=60
    )
    stopped = [line.split()[1] for line in lines.stdout.splitlines() if line.startswith("Stopped dsv4-")]

    assert stopped[-3:] == [ROUTER, DECODE, PREFILL]


def test_nothing_of_the_pair_is_left(machine: Machine) -> None:
    assert not [f for f in machine.group.rglob("cgroup.procs") if "/dsv4.slice/" in str(f) and f.read_text()]
    assert machine.run(("ss", "-ltnH"), timeout_s=120).stdout == ""
    assert list((machine.root / "dev/shm").iterdir()) == []
