"""The rooms that talk to systemd, run inside the private machine against the real one."""

import json
import sys
from typing import Any

from dsv4ctl.rehearsal.private import Machine

SERVER = f"""
[Service]
Type=notify
Slice=dsv4.slice
ExecStart={sys.executable} -P /run/lab/server.py
[Install]
WantedBy=multi-user.target
"""
SERVER_PY = r"""
import os, signal, socket
server = socket.create_server(("127.0.0.1", 30001))
print("caf\xe9 up", flush=True)
os.write(2, b"<3>bad \377 byte\n")
with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
    notify.connect(os.environ["NOTIFY_SOCKET"])
    notify.send(b"READY=1\nSTATUS=serving a=b")
signal.signal(signal.SIGUSR1, lambda *_: print("told", flush=True))
while True:
    signal.pause()
"""
PRELUDE = """
import json, os, signal, time
from dsv4ctl import pidfd, procs, sockets, systemd
from dsv4ctl.problems import CannotRun
NAME = "dsv4-server.service"
def refused(act, *words):
    try:
        act(*words, block=True) if act in (systemd.start, systemd.stop) else act(*words)
    except CannotRun as problem:
        return [str(problem), problem.hint]
def shown(name=NAME):
    unit = systemd.show([name])[name]
    return [unit.load, unit.active, unit.enabled, unit.status_text, unit.result, unit.exit_code, unit.exit_status]
"""


def inside(machine: Machine, script: str) -> Any:
    """Run a script within the machine and return what it leaves in `out`."""
    machine.write("/run/lab/server.py", SERVER_PY)
    machine.write("/etc/systemd/system/dsv4-server.service", SERVER)
    script = f"{PRELUDE}systemd.daemon_reload()\n{script}\nprint(json.dumps(out))"
    return json.loads(machine.run((sys.executable, "-P", "-c", script), timeout_s=60).stdout)


def test_a_unit_is_enabled_started_shown_stopped_and_disabled(machine: Machine) -> None:
    out = inside(
        machine,
        """
out = [systemd.is_running(), shown()]
systemd.enable(NAME); systemd.start(NAME, block=True); out.append(shown())
unit = systemd.show(["dsv4-*.service"])[NAME]
out.append([unit.cgroup, unit.main_pid == procs.cgroup_pids(unit.cgroup)[0], abs(time.time() - unit.since) < 30])
systemd.stop(NAME, block=True); systemd.disable(NAME); out.append(shown()[:3])
""",
    )

    assert out == [
        True,
        ["loaded", "inactive", "disabled", "", "success", "", 0],
        ["loaded", "active", "enabled", "serving a=b", "success", "", 0],
        ["/dsv4.slice/dsv4-server.service", True, True],
        ["loaded", "inactive", "disabled"],
    ]


def test_what_systemd_refuses_is_said_with_its_words_and_what_to_look_at(machine: Machine) -> None:
    machine.write("/etc/systemd/system/dsv4-fails.service", "[Service]\nType=oneshot\nExecStart=/bin/false\n")
    out = inside(
        machine,
        """
out = [refused(systemd.start, name) for name in ("dsv4-none.service", "dsv4-fails.service")]
out.append(shown("dsv4-fails.service"))
systemd.reset_failed("dsv4-fails.service"); out.append(shown("dsv4-fails.service"))
""",
    )

    assert out[0] == [
        "cannot start dsv4-none.service: Failed to start dsv4-none.service: Unit dsv4-none.service not found.",
        "journalctl -u dsv4-none.service -n 50",
    ]
    assert out[1][0].startswith("cannot start dsv4-fails.service: Job for dsv4-fails.service failed")
    assert out[2][1:] == ["failed", "static", "", "exit-code", "exited", 1]
    assert out[3][1] == "inactive"


def test_stopping_and_forgetting_what_systemd_does_not_know_is_no_error(machine: Machine) -> None:
    out = inside(
        machine,
        'out = [refused(systemd.stop, "dsv4-none.service"), refused(systemd.reset_failed, "dsv4-none.service")]',
    )

    assert out == [None, None]


def test_a_changed_unit_file_needs_a_reload(machine: Machine) -> None:
    out = inside(
        machine,
        """
systemd.start(NAME, block=True)
time.sleep(0.01)
open(f"/etc/systemd/system/{NAME}", "a").write("# changed\\n")
out = [systemd.show([NAME])[NAME].needs_reload]
systemd.daemon_reload(); out.append(systemd.show([NAME])[NAME].needs_reload)
""",
    )

    assert out == [True, False]


def test_the_journal_is_read_and_followed(machine: Machine) -> None:
    out = inside(
        machine,
        """
began = time.time()
systemd.start(NAME, block=True)
invocation = os.popen(f"systemctl show --value -p InvocationID {NAME}").read().strip()
while len(entries := systemd.journal(NAME, lines=50, invocation=invocation)) < 3: time.sleep(0.05)
out = [[e.message, e.priority] for e in entries if e.identifier != "systemd"]
out.append([len(systemd.journal(NAME, lines=1)), len(systemd.journal(NAME, lines=9, since=began + 600))])
out.append(len(systemd.journal(NAME, lines=50, invocation="0" * 32)))
whole, last = (systemd.journal(NAME, lines=lines, since=began) for lines in (50, 2))
out.append(len(whole) > 2 and last == whole[-2:])
following = systemd.follow_journal(NAME, lines=1); next(following)
pidfd.signal(procs.identity(systemd.show([NAME])[NAME].main_pid), signal.SIGUSR1)
out.append(next(following).message)
following.close()
""",
    )

    assert out[:2] == [["café up", 6], ["bad \ufffd byte", 3]]
    assert out[2] == [1, 0]
    assert out[3:] == [0, True, "told"]


def test_the_unit_that_listens_is_named_by_its_cgroup_and_so_is_its_process(machine: Machine) -> None:
    out = inside(
        machine,
        """
systemd.start(NAME, block=True)
(holder,) = sockets.holders(30001)
unit = systemd.show([NAME])[NAME]
out = [holder.unit, holder.listener.cgroup == unit.cgroup, [p.pid for p in holder.processes] == [unit.main_pid]]
out.append(NAME in sockets.blocked("", 30001))
""",
    )

    assert out == ["dsv4-server.service", True, True, True]
