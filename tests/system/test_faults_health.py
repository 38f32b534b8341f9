"""Faults of what asks an engine how it is: a green light that means nothing, proxies, keys (B71, B76, B77)."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from dsv4ctl.model import SuperviseExit
from dsv4ctl.problems import Status
from dsv4ctl.rehearsal.private import Machine
from tests.conftest import Behave
from tests.system.deploying import (
    PORT,
    QUICK,
    UNIT,
    configure,
    deploy,
    install,
    journal,
    last_lines,
    processes_of_ours,
    prop,
    systemctl,
    until,
    wait_for_active,
    wait_for_words,
)

DUMP = "/run/dsv4ctl/server/dump.json"

# ---- a green light ---------------------------------------------------------------------------------------------------

LIVE = "/run/standin/live.json"
HEALTH = (
    "import sys, urllib.request as u; print(u.urlopen(f'http://127.0.0.1:{sys.argv[1]}/health', timeout=10).status)"
)


def test_an_engine_that_stops_to_generate_while_its_health_is_green_is_ended_and_started_again(
    machine: Machine, behaviour: Behave
) -> None:
    """B71: in this environment /health looks at nothing, so the watch asks for a token."""
    quick = 'SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION = "0"\nSGLANG_HEALTH_CHECK_TIMEOUT = "2"'
    limits = 'watch = "1s"\nunhealthy = "4s"\nrestart = "1s"'
    configure(machine, f"[limits]\n{limits}\n[engine.environment]\n{quick}")
    behaviour(PORT, **QUICK, live=LIVE, crash_settle_s=0.1)
    deploy(machine)

    machine.write(LIVE, json.dumps({"health_but_no_generation": True}))
    wait_for_words(machine, "/health_generate says 503; ended in ")
    assert machine.run(("python3", "-c", HEALTH, str(PORT)), timeout_s=20).stdout == "200\n"
    until(lambda: prop(machine, "NRestarts") == "1", lambda: last_lines(machine), limit_s=60)
    (machine.root / LIVE[1:]).unlink()

    wait_for_active(machine)
    said = journal(machine, "-u", UNIT)
    assert ", for 4 s: /health_generate says 503" in said
    assert f"status={int(SuperviseExit.UNHEALTHY)}/" in said


# ---- proxies ---------------------------------------------------------------------------------------------------------

PROXY_PORT = 3128
PROXY = f"http://127.0.0.1:{PROXY_PORT}"
PROXY_VARIABLES = ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY")
# Counts who comes in a file, and sends everybody away.
COMPANY_PROXY = f"""
import http.server, pathlib
class Sorry(http.server.BaseHTTPRequestHandler):
    def refuse(self):
        with open("/run/asked-the-proxy", "a") as file:
            file.write(self.requestline + "\\n")
        self.send_error(503)
    do_GET = do_POST = do_CONNECT = refuse
    def log_message(self, *words): pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", {PROXY_PORT}), Sorry)
print("up", flush=True)
server.serve_forever()
"""


@pytest.fixture
def proxied(machine: Machine) -> Iterator[dict[str, str]]:
    """A machine behind a proxy that refuses: its systemd's environment names it, and so does what is returned."""
    variables = dict.fromkeys(PROXY_VARIABLES, PROXY)
    machine.run(("systemctl", "set-environment", *(f"{k}={v}" for k, v in variables.items())), timeout_s=10)
    proxy = machine.popen(("python3", "-c", COMPANY_PROXY))
    assert proxy.stdout is not None
    assert proxy.stdout.readline() == "up\n"
    # Whoever heeds the variables is sent away, whoever he asks for.
    asked = machine.run(("python3", "-c", ASK, str(PORT)), timeout_s=20, env=variables)
    assert asked.stdout == "503\n"
    (machine.root / "run/asked-the-proxy").unlink()
    yield variables
    machine.run(("systemctl", "unset-environment", *variables), timeout_s=10)
    (machine.root / "run/asked-the-proxy").unlink(missing_ok=True)


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])  # noqa: S104 -- inside
def test_no_probe_goes_through_a_proxy_whatever_address_the_engine_has(
    machine: Machine, behaviour: Behave, proxied: dict[str, str], host: str
) -> None:
    """B76: the proxy would answer 503 for an engine that is well; the operator's downloads may still go through it."""
    configure(machine, "[engine.environment]\n" + "\n".join(f'{k} = "{v}"' for k, v in proxied.items()))
    behaviour(PORT, **QUICK, dump_to=DUMP)
    argv = ("dsv4ctl", "deploy", "--port", str(PORT), "--host", host)

    machine.run(argv, timeout_s=60, env=proxied)

    seen = json.loads(machine.run(("dsv4ctl", "status", "--json"), timeout_s=20, env=proxied).stdout)["rows"][0]
    assert seen["health"] == "ready"
    assert not (machine.root / "run/asked-the-proxy").exists()
    environment = json.loads((machine.root / DUMP[1:]).read_text())["environment"]
    assert {environment[name] for name in proxied} == {PROXY}
    for name in ("no_proxy", "NO_PROXY"):
        assert {"localhost", "127.0.0.1", host} <= set(environment[name].split(","))


# ---- keys ------------------------------------------------------------------------------------------------------------

KEY = "s3kret-'quoted'-%u-$HOME-\\-key"
ASK = """
import sys, urllib.error, urllib.request
url = f"http://127.0.0.1:{sys.argv[1]}/v1/models"
headers = {"Authorization": "Bearer " + sys.argv[2]} if len(sys.argv) > 2 else {}
try:
    print(urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=10).status)
except urllib.error.HTTPError as error:
    print(error.code)
"""


@pytest.fixture
def key_file(machine: Machine) -> str:
    machine.write("/etc/dsv4ctl/api-key", f"{KEY}\n", mode=0o600)
    return "/etc/dsv4ctl/api-key"


def test_a_key_is_sent_with_every_probe_and_stands_nowhere_that_others_can_read(
    machine: Machine, behaviour: Behave, key_file: str
) -> None:
    """B77: without it no worker is ever seen ready; with it in an argument every user of the host would know it."""
    behaviour(PORT, **QUICK, dump_to=DUMP)

    said = deploy(machine, "--api-key-file", key_file, "--json")
    shown = [said.stdout, said.stderr]
    commands = (("status",), ("status", "--json"), ("plan", "--json", "--api-key-file", key_file), ("logs",))
    shown += [machine.run(("dsv4ctl", *words), timeout_s=30, check=False).stdout for words in commands]

    asked = [machine.run(("python3", "-c", ASK, str(PORT), *key), timeout_s=20).stdout for key in ((), (KEY,))]
    assert asked == ["401\n", "200\n"]
    assert json.loads(shown[3])["rows"][0]["kv_tokens"] > 0
    shown += [journal(machine), machine.run(("systemctl", "show", UNIT), timeout_s=10).stdout]
    shown += [machine.run(("systemctl", "cat", UNIT), timeout_s=10).stdout, *arguments(machine)]
    assert not [text[:200] for text in shown if "s3kret" in text]
    assert "[api key]" in journal(machine, "-u", UNIT)
    assert readable_files_with_the_key(machine) == []


def arguments(machine: Machine) -> list[str]:
    """The command line and the environment of every process of the machine."""
    files = [f for name in ("cmdline", "environ") for f in (machine.root / "proc").glob(f"[0-9]*/{name}")]
    found = []
    for file in files:
        try:
            found.append(file.read_bytes().decode(errors="replace"))
        except OSError:
            continue
    return found


def readable_files_with_the_key(machine: Machine) -> list[str]:
    """Every file written on the machine that others than root may read and that holds the key."""
    folders = [machine.root / name for name in ("etc", "run", "var/lib/dsv4ctl", "var/cache/dsv4ctl", "dev/shm", "tmp")]
    # A checkout below /tmp is shown inside, this file with the key in it as well.
    found = (path for folder in folders if folder.exists() for path in folder.rglob("*"))
    files = (path for path in found if path.name != Path(__file__).name)
    return [str(path) for path in files if is_open(path) and b"s3kret" in path.read_bytes()]


def is_open(path: Path) -> bool:
    return path.is_file() and not path.is_symlink() and bool(path.stat().st_mode & 0o044)


@pytest.mark.parametrize("with_key", [True, False])
def test_an_engine_that_refuses_the_key_is_a_key_problem_and_not_one_that_is_not_ready(
    machine: Machine,
    behaviour: Behave,
    key_file: str,
    with_key: bool,  # noqa: FBT001 -- a parameter of the test
) -> None:
    """B77: no waiting helps, so it is told at once, and the start is not tried again."""
    behaviour(PORT, **QUICK, status_401=True)
    install(machine, *(["--api-key-file", key_file] if with_key else []))

    failed = systemctl(machine, "start", check=False, timeout_s=30)

    what = "refuses the key it is sent" if with_key else "asks for a key, and none is configured"
    assert failed.status != 0
    assert f"key problem: the engine {what} (/v1/models says 401)" in prop(machine, "StatusText")
    assert [prop(machine, name) for name in ("ExecMainStatus", "NRestarts")] == [str(int(SuperviseExit.PROOF)), "0"]
    assert processes_of_ours(machine) == 0


def test_a_key_that_changed_since_the_start_is_a_key_problem_of_the_next_deploy(
    machine: Machine, behaviour: Behave, key_file: str
) -> None:
    """B77: the file has the new key, the engine still asks for the old one."""
    behaviour(PORT, **QUICK)
    deploy(machine, "--api-key-file", key_file)
    machine.write(key_file, "another\n", mode=0o600)

    refused = deploy(machine, "--api-key-file", key_file, check=False)

    assert refused.status == Status.NOT_READY
    assert "it refuses the API key (401)" in refused.stderr
    assert f"systemctl restart {UNIT}" in refused.stderr
    assert prop(machine, "ActiveState") == "active", "a look that fails takes nothing down"
    systemctl(machine, "restart")
    assert deploy(machine, "--api-key-file", key_file).status == 0


def test_a_key_file_that_is_gone_is_named_by_whoever_starts_the_unit(
    machine: Machine, behaviour: Behave, key_file: str
) -> None:
    """B77: systemd itself ends such a start before our own program runs."""
    behaviour(PORT, **QUICK)
    install(machine, "--api-key-file", key_file)
    (machine.root / key_file[1:]).unlink()

    refused = deploy(machine, "--api-key-file", key_file, check=False)
    systemctl(machine, "start", check=False)
    status = machine.run(("dsv4ctl", "status"), timeout_s=20, check=False).stdout

    assert refused.status != 0
    assert f"cannot read the API key file {key_file}" in refused.stderr
    assert "systemd cannot read its credentials (status 243)" in status
