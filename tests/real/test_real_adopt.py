"""A real SGLang (CPU) that somebody starts by hand: written down, moved below our slice as it runs, ended, rendered.

The tests are one story and run in order: what the first adopts, the second ends, and the third starts again from the
config that was written.
"""

import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from dsv4ctl import config
from dsv4ctl.child import Done
from dsv4ctl.engine import readback
from dsv4ctl.model import Role, RoleShape
from dsv4ctl.rehearsal.private import Machine
from tests.real import byhand
from tests.real.byhand import PORT, everything, login_shell
from tests.system.strays import tell

SCOPE = f"dsv4-adopted-server-{PORT}.scope"
WRITTEN = "/etc/dsv4ctl/adopted.toml"
LOAD_S = 1200
TOKENS = 200
ENOUGH = "/run/enough"

READY = f"""
import time, urllib.request
while True:
    try:
        urllib.request.urlopen("http://127.0.0.1:{PORT}/ready", timeout=5)
        break
    except OSError:
        time.sleep(0.5)
"""
# The model's weights are made up from one seed, so that the same start gives the same answer.
ANSWER = f"""
import json, sys, urllib.request
asked = {{"model": sys.argv[1], "prompt": "hello", "max_tokens": 24, "temperature": 0, "ignore_eos": True}}
request = urllib.request.Request(
    "http://127.0.0.1:{PORT}/v1/completions", json.dumps(asked).encode(), {{"Content-Type": "application/json"}}
)
print(json.load(urllib.request.urlopen(request, timeout=300))["choices"][0]["text"])
"""
# One stream after the other, so that there is one in flight whenever it is that the server is moved.
STREAMS = f"""
import json, pathlib, sys, urllib.request
asked = {{"model": sys.argv[1], "prompt": "hello", "max_tokens": {TOKENS}, "ignore_eos": True, "stream": True,
         "stream_options": {{"include_usage": True}}}}
request = urllib.request.Request(
    "http://127.0.0.1:{PORT}/v1/completions", json.dumps(asked).encode(), {{"Content-Type": "application/json"}}
)
while not pathlib.Path("{ENOUGH}").exists():
    lines = [line for line in urllib.request.urlopen(request, timeout=300) if line.startswith(b"data:")]
    print(json.dumps([json.loads(lines[-2][5:])["usage"]["completion_tokens"], lines[-1].decode().strip()]), flush=True)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ByHand:
    """A server that answers: the shell that it was started in, its main process, what there was before it."""

    shell: subprocess.Popen[str]
    main: int
    before: tuple[set[int], str, list[str]]
    answer: str


@pytest.fixture(scope="module")
def server(machine: Machine, folder: Path) -> Iterator[ByHand]:
    """A real server, as somebody starts one from a login shell."""
    shell = login_shell(machine)
    before = everything(machine)
    main = byhand.start(shell, folder)
    machine.run(("python3", "-c", READY), timeout_s=LOAD_S)
    yield ByHand(shell=shell, main=main, before=before, answer=ask(machine, str(folder / "model")))
    shell.kill()
    shell.wait()


def ask(machine: Machine, model: str) -> str:
    return machine.run(("python3", "-c", ANSWER, model), timeout_s=400).stdout


def dsv4ctl(machine: Machine, *words: str) -> Done:
    return machine.run(("dsv4ctl", *words), timeout_s=LOAD_S * 2, check=False)


def tree(machine: Machine, main: int) -> dict[int, str]:
    """Pid -> start time of a process and its children: who they are, not only how many."""
    pids = (main, *byhand.children(machine, main))
    return {pid: (machine.root / f"proc/{pid}/stat").read_text().rpartition(")")[2].split()[19] for pid in pids}


def cgroup(machine: Machine, pid: int) -> str:
    text = (machine.root / f"proc/{pid}/cgroup").read_text()
    return text.strip().rpartition(f"/{machine.group.name}")[2]


def test_a_server_by_hand_is_written_down_and_moved_amid_its_streams_under_the_pids_it_had(
    machine: Machine, server: ByHand, folder: Path
) -> None:
    engine = tree(machine, server.main)
    shown = dsv4ctl(machine, "adopt", "--dry-run")
    streams = machine.popen(("python3", "-c", STREAMS, str(folder / "model")))
    assert streams.stdout is not None
    whole = [streams.stdout.readline()]

    moved = dsv4ctl(machine, "adopt", "--scope", "--yes", "--out", WRITTEN)
    machine.write(ENOUGH, "")
    out, said = streams.communicate(timeout=LOAD_S)
    whole += out.splitlines()

    assert (shown.status, moved.status) == (0, 0), (shown, moved)
    assert f"server: pid {server.main} (python, user root, " in shown.stderr
    assert f"pid {server.main} -> dsv4-server.service: " in shown.stderr
    assert f"4 processes in {SCOPE} now, under the same pids as before" in moved.stdout
    assert len(engine) == 4
    assert tree(machine, server.main) == engine
    assert {cgroup(machine, pid) for pid in engine} == {f"/dsv4.slice/{SCOPE}"}
    assert server.shell.poll() is None
    assert len(whole) > 1
    assert [json.loads(line) for line in whole] == [[TOKENS, "data: [DONE]"]] * len(whole), said
    assert streams.returncode == 0, said
    assert ask(machine, str(folder / "model")) == server.answer


def test_the_config_that_it_writes_is_of_what_runs_and_renders_what_was_typed(
    machine: Machine, server: ByHand, folder: Path
) -> None:
    spec = config.load((machine.root / WRITTEN[1:]).read_text(), {}, path=WRITTEN).spec
    rendered = json.loads(dsv4ctl(machine, "render", "--config", WRITTEN, "--json").stdout)
    typed = (machine.root / f"proc/{server.main}/cmdline").read_text().split("\0")[:-1]
    (unit,) = (text for path, text in rendered.items() if path.endswith("dsv4-server.service"))
    (exec_start,) = (line for line in unit.replace("\\\n", "").splitlines() if line.startswith("ExecStart="))
    by_hand, ours = readback.launch(typed), readback.launch(exec_start.replace('"', "").split(" -- ", 1)[1].split())

    assert spec.mode.roles == (RoleShape(role=Role.SERVER, tp=1, gpus=()),)
    assert (spec.port, spec.engine.python, spec.engine.model) == (
        PORT, str(folder / "venv/bin/python"), str(folder / "model"),
    )  # fmt: skip
    assert ("SGLANG_USE_CPU_ENGINE", "1") in spec.engine.environment
    assert by_hand is not None
    assert ours is not None
    assert set(by_hand.options) <= set(ours.options)


def test_what_was_adopted_is_shown_and_ended_through_its_scope_with_nothing_left(
    machine: Machine, server: ByHand
) -> None:
    rows = json.loads(dsv4ctl(machine, "status", "--json").stdout)["rows"]
    (row,) = (row for row in rows if row["unit"] == SCOPE)
    ended = dsv4ctl(machine, "teardown", "--verify")

    assert (row["unit"], row["state"], row["health"], row["pid"]) == (SCOPE, "adopted", "ready", server.main)
    assert ended.status == 0, ended
    assert f"by its unit {SCOPE}" in ended.stderr
    assert everything(machine) == server.before
    assert tell(server.shell, "echo alive").strip() == "alive"


def test_the_config_that_was_written_starts_a_server_that_answers_the_same(
    machine: Machine, server: ByHand, folder: Path
) -> None:
    deployed = dsv4ctl(machine, "deploy", "--config", WRITTEN)
    answer = ask(machine, str(folder / "model"))
    ended = dsv4ctl(machine, "teardown", "--verify", "--purge")

    assert deployed.status == 0, deployed
    assert answer == server.answer
    assert ended.status == 0, ended
    assert everything(machine) == server.before
