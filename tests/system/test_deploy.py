"""deploy -> proof -> teardown on a real systemd, with the stand-in engine: each promise of the product."""

import hashlib
import json
import time
from pathlib import Path

import pytest

from dsv4ctl.problems import Status
from dsv4ctl.rehearsal.private import Machine
from tests.conftest import Behave
from tests.system.deploying import (
    PORT,
    UNIT,
    deploy,
    inside,
    listen,
    locked_by,
    processes_of_ours,
    show,
    wait_for_active,
    wait_for_whole_tree,
)

QUICK = {"load_s": 0.5}


def generates(machine: Machine) -> bool:
    payload = '{"model": "DeepSeek-V4-Flash", "prompt": "hello", "max_tokens": 4, "temperature": 0}'
    return bool(machine.run(("python3", "-c", COMPLETION, str(PORT)), timeout_s=20, input_text=payload).stdout.strip())


COMPLETION = """
import json, sys, urllib.request
url = f"http://127.0.0.1:{sys.argv[1]}/v1/completions"
request = urllib.request.Request(url, sys.stdin.buffer.read(), {"Content-Type": "application/json"})
print(json.load(urllib.request.urlopen(request, timeout=10))["choices"][0]["text"])
"""


@pytest.mark.parametrize(("mode", "ranks"), [("single-tp4", 4), ("single-tp8", 8)])
def test_deploy_serves_what_is_asked_for_and_teardown_leaves_nothing(
    machine: Machine, behaviour: Behave, mode: str, ranks: int
) -> None:
    behaviour(PORT, **QUICK)

    served = machine.run(("dsv4ctl", "deploy", "--mode", mode, "--port", str(PORT)), timeout_s=60)
    assert f"{UNIT} serves DeepSeek-V4-Flash on http://127.0.0.1:{PORT}" in served.stdout
    assert generates(machine)
    titles = machine.run(("sh", "-c", "cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' '\\n'"), timeout_s=10).stdout
    assert sum("sglang::scheduler_TP" in line for line in titles.splitlines()) == ranks

    gone = machine.run(("dsv4ctl", "teardown", "--verify"), timeout_s=60)
    assert all(line.startswith("gone") for line in gone.stdout.splitlines())
    assert processes_of_ours(machine) == 0


def test_deploying_twice_does_nothing_the_second_time(machine: Machine, behaviour: Behave) -> None:
    behaviour(PORT, **QUICK)
    deploy(machine)
    before = show(machine, "MainPID", "InvocationID", "StateChangeTimestamp")

    again = deploy(machine)

    assert again.stdout.startswith("nothing to do")
    assert show(machine, "MainPID", "InvocationID", "StateChangeTimestamp") == before


def test_plan_tells_nothing_to_do_from_changes_from_an_error(machine: Machine, behaviour: Behave) -> None:
    behaviour(PORT, **QUICK)
    plan = ("dsv4ctl", "plan", "--mode", "single-tp4", "--port", str(PORT))

    changes = machine.run(plan, timeout_s=30, check=False)
    deploy(machine)
    nothing = machine.run(plan, timeout_s=30, check=False)
    error = machine.run((*plan[:-1], "99999"), timeout_s=30, check=False)

    assert (changes.status, nothing.status, error.status) == (Status.CHANGES, Status.OK, Status.USAGE)


def contents(machine: Machine) -> dict[str, str]:
    """A hash of every file in the folders that dsv4ctl, systemd or an engine writes to."""
    folders = [machine.root / name for name in ("etc", "var/lib/dsv4ctl", "var/cache/dsv4ctl", "run", "tmp")]
    found = {}
    for path in (p for folder in folders if folder.exists() for p in sorted(folder.rglob("*"))):
        # The journal is systemd's and goes on by itself.
        if path.is_file() and not path.is_symlink() and "journal" not in str(path):
            found[str(path)] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


@pytest.mark.parametrize("words", [("plan",), ("deploy", "--dry-run")])
def test_a_dry_run_writes_nothing(machine: Machine, words: tuple[str, ...]) -> None:
    before = contents(machine)

    machine.run(("dsv4ctl", *words, "--mode", "single-tp4", "--port", str(PORT)), timeout_s=60, check=False)

    after = contents(machine)
    assert {p for p in before.keys() | after.keys() if before.get(p) != after.get(p)} == set()


def test_a_restart_by_systemctl_passes_the_gate_again_and_leaves_no_orphan(machine: Machine, behaviour: Behave) -> None:
    behaviour(PORT, **QUICK)
    deploy(machine)

    machine.run(("systemctl", "restart", UNIT), timeout_s=60)

    wait_for_whole_tree(machine)
    assert deploy(machine).stdout.startswith("nothing to do")


@pytest.mark.parametrize("victim", ["scheduler", "engine", "supervisor"])
def test_a_crash_passes_the_gate_again_and_leaves_no_orphan(machine: Machine, behaviour: Behave, victim: str) -> None:
    """B51, B12: whoever of the tree is killed, systemd starts it again, and nobody of the old one is left."""
    behaviour(PORT, **QUICK)
    deploy(machine)
    pids = inside(machine)
    machine.run(("kill", "-KILL", str(pids[victim])), timeout_s=5)

    end = time.monotonic() + 20
    while show(machine, "NRestarts") == ["0"]:
        assert time.monotonic() < end
        time.sleep(0.1)
    assert_gone(machine, pids)
    machine.run(("systemctl", "start", UNIT), timeout_s=60)

    wait_for_whole_tree(machine)
    assert not set(inside(machine).values()) & set(pids.values())


def assert_gone(machine: Machine, pids: dict[str, int]) -> None:
    for name, pid in pids.items():
        assert not (machine.root / f"proc/{pid}").exists(), f"{name} is still there"


def test_a_stalled_load_is_ended_with_the_right_words(machine: Machine, behaviour: Behave) -> None:
    behaviour(PORT, load_s=1, stall_in="weights")
    machine.write("/etc/dsv4ctl/config.toml", config(machine) + '\n[limits]\nstall = "10s"\n')

    refused = deploy(machine, check=False)

    assert refused.status == Status.NOT_READY
    assert "stalled in" in refused.stderr
    assert "weights" in refused.stderr
    assert processes_of_ours(machine) == 0


def config(machine: Machine) -> str:
    return (machine.root / "etc/dsv4ctl/config.toml").read_text()


def test_a_taken_port_is_refused_before_anything_is_touched_and_its_holder_is_named(machine: Machine) -> None:
    holder = listen(machine, "127.0.0.1", PORT)
    before = contents(machine)

    refused = deploy(machine, check=False)

    assert refused.status == Status.PORT_TAKEN
    assert "python3" in refused.stderr
    assert not (machine.root / "etc/systemd/system" / UNIT).exists()
    assert contents(machine).keys() == before.keys() | {
        p for p in contents(machine) if p.endswith(("/lock", "/audit.jsonl"))
    }
    assert holder.poll() is None


IMPOSTOR = """
import http.server, json, sys
class Yes(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = json.dumps({"data": [{"id": "DeepSeek-V4-Flash", "max_model_len": 1048576}]}).encode()
        self.send_response(200); self.send_header("Content-Length", str(len(body))); self.end_headers()
        self.wfile.write(body)
    do_POST = do_GET
    def log_message(self, *words): pass
print("up", flush=True)
http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Yes).serve_forever()
"""


@pytest.mark.alone
def test_a_200_from_an_impostor_does_not_count_and_it_is_named_within_two_seconds(
    machine: Machine, behaviour: Behave
) -> None:
    behaviour(PORT, load_s=30)
    deploying = machine.popen(("dsv4ctl", "deploy", "--mode", "single-tp4", "--port", str(PORT)))
    while show(machine, "StatusText")[0].find("weights") < 0:
        assert deploying.poll() is None, deploying.communicate()
        time.sleep(0.05)

    impostor = machine.popen(("python3", "-c", IMPOSTOR, str(PORT)))
    assert impostor.stdout is not None
    impostor.stdout.readline()
    began = time.monotonic()
    _, said = deploying.communicate(timeout=20)
    took = time.monotonic() - began

    assert deploying.returncode == Status.NOT_READY
    assert "python3" in said
    assert str(PORT) in said
    assert took < 2.0
    assert processes_of_ours(machine) == 0
    assert impostor.poll() is None


def test_ctrl_c_leaves_a_host_that_the_next_command_understands(machine: Machine, behaviour: Behave) -> None:
    behaviour(PORT, load_s=4)
    deploying = machine.popen(("dsv4ctl", "deploy", "--mode", "single-tp4", "--port", str(PORT)))
    while show(machine, "StatusText")[0].find("weights") < 0:
        time.sleep(0.05)
    machine.run(("kill", "-INT", str(locked_by(machine))), timeout_s=5)
    _, said = deploying.communicate(timeout=20)

    assert deploying.returncode == Status.INTERRUPTED
    assert "interrupted" in said
    main = show(machine, "MainPID")
    assert "follow it" in deploy(machine).stderr
    assert show(machine, "MainPID") == main


def test_status_shows_the_truth_in_a_table_and_as_json(machine: Machine, behaviour: Behave) -> None:
    behaviour(PORT, **QUICK)
    deploy(machine)

    table = machine.run(("dsv4ctl", "status"), timeout_s=20).stdout
    row = json.loads(machine.run(("dsv4ctl", "status", "--json"), timeout_s=20).stdout)["rows"][0]

    assert "ready" in table
    assert (row["unit"], row["state"], row["health"], row["port"]) == (UNIT, "active", "ready", PORT)
    assert row["kv_tokens"] > 1_000_000
    assert row["gpu_used_bytes"] > 4 * 2**30
    assert row["pid"] == int(show(machine, "MainPID")[0])


def test_only_purge_removes_what_deploy_installed(machine: Machine, behaviour: Behave) -> None:
    behaviour(PORT, **QUICK)
    deploy(machine)
    units = machine.root / "etc/systemd/system"

    machine.run(("dsv4ctl", "teardown"), timeout_s=60)
    assert (units / UNIT).exists()
    machine.run(("dsv4ctl", "teardown", "--verify", "--purge"), timeout_s=60)

    assert not list(units.rglob("dsv4*"))
    assert not list((machine.root / "var/lib/dsv4ctl/instances").glob("*"))


def test_a_failed_deploy_says_the_last_lines_and_the_cause_and_leaves_nothing_running(
    machine: Machine, behaviour: Behave
) -> None:
    behaviour(PORT, load_s=1, oom_in="pools")

    failed = deploy(machine, check=False)

    assert failed.status == Status.NOT_READY
    ours = [line for line in failed.stderr.splitlines() if not line.startswith("  | ")]
    theirs = [line for line in failed.stderr.splitlines() if line.startswith("  | ")]
    assert f"the last lines of {UNIT}:" in ours
    assert any("kill_process_tree" in line for line in theirs)
    assert not any("dsv4ctl:" in line or "systemd" in line for line in theirs)
    assert any(line.startswith("dsv4ctl: cannot bring up") and "memory" in line for line in ours)
    assert any("try:" in line for line in ours)
    assert not any("Traceback" in line for line in ours)
    assert processes_of_ours(machine) == 0


def test_systemctl_status_tells_the_phase_in_words(machine: Machine, behaviour: Behave) -> None:
    behaviour(PORT, load_s=4)
    deploying = machine.popen(("dsv4ctl", "deploy", "--mode", "single-tp4", "--port", str(PORT)))
    seen = set()
    while deploying.poll() is None:
        seen.add(show(machine, "StatusText")[0].split(",")[0])
        time.sleep(0.05)

    assert any("loading weights" in words and "/" in words for words in seen)
    assert any("graphs" in words for words in seen)
    assert any(words.startswith("ready") for words in seen | set(show(machine, "StatusText")))


def test_logs_show_the_engines_lines(machine: Machine, behaviour: Behave) -> None:
    behaviour(PORT, **QUICK)
    deploy(machine)

    shown = machine.run(("dsv4ctl", "logs", "server", "-n", "200"), timeout_s=20).stdout

    assert "The server is fired up and ready to roll!" in shown


def test_sigterm_to_deploy_ends_it_and_the_unit_goes_on(machine: Machine, behaviour: Behave) -> None:
    behaviour(PORT, load_s=3)
    deploying = machine.popen(("dsv4ctl", "deploy", "--mode", "single-tp4", "--port", str(PORT)))
    while show(machine, "StatusText")[0].find("weights") < 0:
        time.sleep(0.05)

    machine.run(("kill", "-TERM", str(locked_by(machine))), timeout_s=5)
    deploying.communicate(timeout=10)

    wait_for_active(machine)
    assert deploy(machine).status == 0


def test_a_package_folder_that_the_unit_needs_is_seen_from_inside_it(machine: Machine, behaviour: Behave) -> None:
    behaviour(PORT, **QUICK)
    deploy(machine)
    supervisor = show(machine, "MainPID")[0]

    assert (machine.root / f"proc/{supervisor}/root" / str(Path(__file__).parents[2] / "dsv4ctl")).exists()
