"""The commands as a person meets them: on a terminal, without a config, with a question still open."""

import os
import pty
import select
import subprocess
import time

from dsv4ctl.problems import Status
from dsv4ctl.rehearsal.private import Machine
from tests.conftest import Behave

PORT = "30001"
DEPLOY = ("dsv4ctl", "deploy", "--mode", "single-tp4", "--port", PORT)


def on_a_terminal(machine: Machine, argv: tuple[str, ...], *, limit_s: float) -> str:
    """What the program shows on a terminal of its own, escape sequences included."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(machine.inside(argv, {"TERM": "xterm"}), stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    shown, end = b"", time.monotonic() + limit_s
    try:
        while time.monotonic() < end:
            if select.select([ours], [], [], 0.2)[0]:
                shown += os.read(ours, 65536)
            elif process.poll() is not None:
                break
    except OSError:  # EIO: the last writer closed the terminal
        pass
    finally:
        process.wait(timeout=limit_s)
        os.close(ours)
    return shown.decode(errors="replace")


def test_on_a_terminal_a_deploy_is_a_live_view_with_a_bar(machine: Machine, behaviour: Behave) -> None:
    behaviour(int(PORT), load_s=3)

    shown = on_a_terminal(machine, DEPLOY, limit_s=40)

    assert "loading weights" in shown
    assert "[####" in shown
    assert f"serves DeepSeek-V4-Flash on http://127.0.0.1:{PORT}" in shown


def test_elsewhere_it_is_plain_lines_on_stderr_and_the_outcome_on_stdout(machine: Machine, behaviour: Behave) -> None:
    behaviour(int(PORT), load_s=1)

    done = machine.run(DEPLOY, timeout_s=40)

    assert "\x1b" not in done.stdout + done.stderr
    assert done.stdout.startswith("dsv4-server.service serves ")
    assert "start dsv4-server.service and prove it" in done.stderr


def test_a_deploy_without_engine_and_model_says_which_were_found_and_what_to_type(machine: Machine) -> None:
    machine.write("/etc/dsv4ctl/config.toml", "")

    refused = machine.run(DEPLOY, timeout_s=40, check=False)

    assert refused.status == Status.ENGINE_MISSING
    assert "/opt/sglang/bin/python" in refused.stderr
    assert "-> /models/DeepSeek-V4-Flash: the only one found" in refused.stderr
    assert "dsv4ctl init" in refused.stderr


def test_init_writes_what_deploy_then_takes_and_never_overwrites(machine: Machine, behaviour: Behave) -> None:
    behaviour(int(PORT), load_s=0.5)
    (machine.root / "etc/dsv4ctl/config.toml").unlink()

    machine.run(("dsv4ctl", "init", "--yes"), timeout_s=30)
    again = machine.run(("dsv4ctl", "init", "--yes"), timeout_s=30, check=False)

    assert again.status != 0
    assert "dsv4-server.service serves" in machine.run(DEPLOY, timeout_s=40).stdout


def test_logs_follow_what_comes(machine: Machine, behaviour: Behave) -> None:
    behaviour(int(PORT), load_s=0.5)
    machine.run(DEPLOY, timeout_s=40)
    following = machine.popen(("dsv4ctl", "logs", "-f", "-n", "1"))
    assert following.stdout is not None
    following.stdout.readline()

    machine.run(("dsv4ctl", "probe"), timeout_s=40)

    assert any("POST /v1/" in following.stdout.readline() for _ in range(6))


def test_logs_of_nobody_say_who_is_there(machine: Machine) -> None:
    refused = machine.run(("dsv4ctl", "logs", "decode"), timeout_s=20, check=False)

    assert refused.status == Status.HOST
    assert "nothing is deployed here" in refused.stderr


def test_a_dry_teardown_says_what_it_would_do_and_does_not(machine: Machine, behaviour: Behave) -> None:
    behaviour(int(PORT), load_s=0.5)
    machine.run(DEPLOY, timeout_s=40)

    said = machine.run(("dsv4ctl", "teardown", "--dry-run"), timeout_s=20).stdout

    assert "stop dsv4-server.service" in said
    assert machine.run(("systemctl", "is-active", "dsv4-server"), timeout_s=10).stdout.strip() == "active"


def test_status_of_a_failed_start_says_why_it_failed(machine: Machine, behaviour: Behave) -> None:
    behaviour(int(PORT), exit=2)
    machine.run(DEPLOY, timeout_s=40, check=False)

    shown = machine.run(("dsv4ctl", "status"), timeout_s=20, check=False).stdout

    assert "refuses its arguments" in shown


def test_status_watches_until_it_is_interrupted(machine: Machine) -> None:
    watching = machine.popen(("dsv4ctl", "status", "--watch"))
    assert watching.stdout is not None

    first, second = watching.stdout.readline(), watching.stdout.readline()

    assert "nothing is deployed here" in first
    assert "nothing is deployed here" in second
    watching.terminate()


def test_status_without_the_kept_releases_still_finds_what_runs(machine: Machine, behaviour: Behave) -> None:
    behaviour(int(PORT), load_s=0.5)
    machine.run(DEPLOY, timeout_s=40)
    machine.run(("rm", "-r", "/var/lib/dsv4ctl/releases"), timeout_s=10)

    assert "ready" in machine.run(("dsv4ctl", "status"), timeout_s=20).stdout
    before = machine.run(("systemctl", "show", "-p", "MainPID", "dsv4-server"), timeout_s=10).stdout
    machine.run(DEPLOY, timeout_s=40)
    assert machine.run(("systemctl", "show", "-p", "MainPID", "dsv4-server"), timeout_s=10).stdout == before


def test_the_target_is_active_with_its_services_and_stops_and_starts_them(machine: Machine, behaviour: Behave) -> None:
    behaviour(int(PORT), load_s=0.3, import_s=0, warmup_s=0, drain_poll_s=0.1)
    machine.run(DEPLOY, timeout_s=40)
    is_active = ("systemctl", "is-active", "dsv4.target", "dsv4-server")

    assert machine.run(is_active, timeout_s=10).stdout.split() == ["active", "active"]
    # The services follow the target down, and a start of it waits for that.
    machine.run(("systemctl", "stop", "dsv4.target"), timeout_s=40)
    assert machine.run(is_active, timeout_s=10, check=False).stdout.split()[1] != "active"
    machine.run(("systemctl", "start", "dsv4.target"), timeout_s=40)
    assert "dsv4-server.service serves" in machine.run(DEPLOY, timeout_s=40).stdout
    machine.run(("dsv4ctl", "teardown", "--verify"), timeout_s=40)
    assert machine.run(is_active, timeout_s=10, check=False).stdout.split() == ["inactive", "inactive"]
    probed = machine.run(("dsv4ctl", "probe"), timeout_s=40, check=False)
    assert (probed.status, "it is stopped" in probed.stdout) == (Status.NOT_READY, True)
    assert "try: systemctl start dsv4-server.service   starts it as it is installed" in probed.stderr
