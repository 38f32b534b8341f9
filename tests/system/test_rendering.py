"""What systemd makes of rendered units: every value arrives byte for byte, and the sandbox lets an engine work."""

import json
import random
import shutil
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from dsv4ctl import unitfile
from dsv4ctl.model import HostSpec, Release
from dsv4ctl.rehearsal.private import Machine
from tests import releases

# Whatever is special to a unit file, a shell, an environment file, a terminal or UTF-8.
PIECES = (
    *("\"'\\$%`;#&|<>*?!~^=:,@+-()[]{} \t\n\r\x01\x07\x08\x0b\x0c\x1b\x7f"),
    *("$HOME", "${HOME}", "$$", "%u", "%%", "%z", "%n", "\\n", "\\x41", "\\\n", "\\;", "a", "7", "="),
    *("ä", "€", "𝄞", "\x80", "\x85", "\xa0", "\u2028", "\u202e", "\ufeff", "\U0010fffd"),
)
ALONE = (
    "",
    " ",
    ";",
    "\\;",
    "#",
    "\\",
    '"',
    "'",
    "$",
    "%",
    "\n",
    " before",
    "after ",
    "back\\",
    '{"a": "b\\"c$d"}',
    "-",
)
NASTY_FOLDER = "/srv/model %u %% %z \"q\" 'r' $HOME ${HOME} \\x41 größe"

# Stands where the supervisor stands: says what arrived, and READY=1.
SUPERVISOR = """
# In the place of dsv4ctl.supervise, without which no unit is rendered.
import json, os, socket, sys, time
from pathlib import Path
exec(sys.argv[1])
Path("/run/dsv4ctl/server/arrived.json").write_text(json.dumps(arrived))
name = os.environ["NOTIFY_SOCKET"]
with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
    notify.sendto(b"READY=1", name.replace("@", "\\0", 1))
time.sleep(600)
"""
ARRIVED = """
arrived = {"argv": sys.argv[4:], "environment": dict(os.environ), "folder": os.getcwd()}
"""
SANDBOX = """
import contextlib, subprocess, tempfile
arrived = {}
def outcome(name, attempt):
    try:
        arrived[name] = attempt() or "works"
    except Exception as error:
        arrived[name] = type(error).__name__
def runs_from_tmp():
    script = Path(tempfile.mkdtemp()) / "numactl.sh"
    script.write_text("#!/bin/sh\\nexit 0\\n")
    script.chmod(0o700)
    return subprocess.run([script]).returncode
def cgroup_of_a_listener():
    with socket.create_server(("127.0.0.1", 30001)):
        said = subprocess.run(["ss", "-ltnH", "--cgroup", "sport = :30001"], capture_output=True, text=True).stdout
    return said.split("cgroup:")[1].strip()
def write(path):
    Path(path).write_text("x") and None
outcome("a script in /tmp", runs_from_tmp)
outcome("shared memory", lambda: write("/dev/shm/sglang_loads"))
outcome("cache", lambda: write(os.environ["HOME"] + "/kernel"))
outcome("state", lambda: write("/var/lib/dsv4ctl/starts/server/starts.jsonl"))
outcome("runtime", lambda: write("/run/dsv4ctl/server/state.json"))
outcome("the operator's folder", lambda: write("/var/crash/dump"))
outcome("bound from /var/tmp", lambda: write("/var/tmp/engine/x"))
outcome("/etc", lambda: write("/etc/x"))
outcome("/usr", lambda: write("/usr/x"))
outcome("/home", lambda: write("/home/op/x"))
outcome("a disk", lambda: Path("/dev/disk-of-the-host").open("rb").close())
outcome("model in /var/tmp", lambda: Path("/var/tmp/engine/weights").read_text().strip())
outcome("model in a home", lambda: Path("/home/op/model").read_text().strip())
outcome("key", lambda: (Path(os.environ["CREDENTIALS_DIRECTORY"]) / "api-key").read_text())
outcome("listener", cgroup_of_a_listener)
outcome("core", lambda: [line.split()[4:6] for line in open("/proc/self/limits") if line.startswith("Max core")][0])
outcome("others", lambda: "seen" if Path("/proc/1/comm").read_text() == "systemd\\n" else "hidden")
"""


def rendered(spec: HostSpec, code: str) -> Release:
    """The release with a program in the supervisor's place. It runs `code` to learn what to say."""
    # Our own interpreter may lie where no other user can read it.
    python = shutil.which("python3", path="/usr/bin:/bin") if spec.user else sys.executable
    if python is None:
        pytest.skip("there is no python3 that every user of this host can run")
    return releases.render(spec, releases.machine(supervisor=(python, "-c", SUPERVISOR, code)))


def arrived(machine: Machine, spec: HostSpec, code: str) -> dict[str, Any]:
    """Start the unit of a release with a program in the supervisor's place, and return what that says."""
    for file in rendered(spec, code).files:
        machine.write(file.path, file.text)
    machine.run(("systemctl", "daemon-reload"), timeout_s=30)
    machine.run(("systemctl", "start", "dsv4-server.service"), timeout_s=30)
    found: dict[str, Any] = json.loads((machine.root / "run/dsv4ctl/server/arrived.json").read_text())
    return found


def values(seed: int, count: int) -> list[str]:
    """Random values of up to 12 pieces, and each special one alone."""
    pick = random.Random(seed)  # noqa: S311 -- no secrets
    return [*ALONE, *("".join(pick.choices(PIECES, k=pick.randint(0, 12))) for _ in range(count))]


def test_b55_a_thousand_values_arrive_byte_for_byte_in_argv_and_environment(machine: Machine) -> None:
    wanted = values(seed=55, count=1000)
    variables = tuple((f"V{index}", value) for index, value in enumerate(wanted))
    engine = replace(releases.ENGINE, args=tuple(w for w in wanted if not w.startswith("--")), environment=variables)
    found = arrived(machine, releases.spec(engine=engine), ARRIVED)
    assert found["argv"][-len(engine.args) :] == list(engine.args)
    assert {name: found["environment"].get(name) for name, _ in variables} == dict(variables)


def test_b57_a_model_path_with_specifiers_arrives_in_argv_environment_and_working_directory(machine: Machine) -> None:
    engine = replace(releases.ENGINE, model=NASTY_FOLDER, environment=(("MODEL", NASTY_FOLDER),))
    found = arrived(machine, releases.spec(engine=engine), ARRIVED)
    assert found["argv"][found["argv"].index("--model-path") + 1] == NASTY_FOLDER
    assert found["environment"]["MODEL"] == NASTY_FOLDER

    (machine.root / NASTY_FOLDER.lstrip("/")).mkdir(parents=True)
    machine.write(
        "/etc/systemd/system/dsv4-server.service.d/folder.conf",
        f"[Service]\nWorkingDirectory={unitfile.plain(NASTY_FOLDER)}\n",
    )
    machine.run(("systemctl", "daemon-reload"), timeout_s=30)
    machine.run(("systemctl", "restart", "dsv4-server.service"), timeout_s=30)
    found = json.loads((machine.root / "run/dsv4ctl/server/arrived.json").read_text())
    assert found["folder"] == NASTY_FOLDER


def test_values_of_the_release_are_what_the_process_has(machine: Machine) -> None:
    spec = releases.SPECS["nasty"]
    found = arrived(machine, spec, ARRIVED)
    (instance,) = rendered(spec, ARRIVED).instances
    assert tuple(found["argv"]) == instance.argv
    assert dict(instance.environment).items() <= found["environment"].items()


PREPARE = """
rm -rf /dev/shm/sglang_loads /var/crash
id op >/dev/null 2>&1 || useradd --home-dir /home/op op
mkdir -p /var/tmp/engine /home/op /etc/dsv4ctl /var/crash
echo weights >/var/tmp/engine/weights
echo weights >/home/op/model
chown -R op /home/op && chmod 700 /home/op
printf sekret >/etc/dsv4ctl/key && chmod 600 /etc/dsv4ctl/key
[ -e /dev/disk-of-the-host ] || mknod /dev/disk-of-the-host b 7 0
mount -o remount,noexec /tmp
"""
WORKS = {
    "a script in /tmp": "works",
    "shared memory": "works",
    "cache": "works",
    "state": "works",
    "runtime": "works",
    "model in /var/tmp": "weights",
    "model in a home": "weights",
    "key": "sekret",
    "listener": "/dsv4.slice/dsv4-server.service",
    "others": "seen",
}
REFUSED = {
    "bound from /var/tmp": "OSError",
    "/etc": "OSError",
    "/usr": "OSError",
    "/home": "OSError",
    "a disk": "PermissionError",
    "core": ["0", "0"],
}


@pytest.fixture
def prepared(machine: Machine) -> Iterator[Machine]:
    """A machine whose /tmp is noexec, with a model in a closed home and one in a temporary folder, a key and a disk."""
    machine.run(("sh", "-euc", PREPARE), timeout_s=30)
    yield machine
    machine.run(("mount", "-o", "remount,exec", "/tmp"), timeout_s=30)  # noqa: S108 -- the machine's own


@pytest.mark.parametrize("user", [None, "op"])
def test_the_sandbox_lets_an_engine_work_and_keeps_the_host(prepared: Machine, user: str | None) -> None:
    engine = replace(releases.ENGINE, model="/var/tmp/engine/weights", args=("--crash-dump-folder", "/var/crash"))  # noqa: S108
    prepared.run(("chown", user or "root", "/var/crash"), timeout_s=30)
    spec = releases.spec(engine=engine, user=user, api_key_file="/etc/dsv4ctl/key")
    assert arrived(prepared, spec, SANDBOX) == {**WORKS, **REFUSED, "the operator's folder": "works"}
