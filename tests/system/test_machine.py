"""The private machine itself: a whole systemd inside, and nothing of it outside."""

import json
import os
import signal
import socket
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import pytest

from dsv4ctl import child, procs
from dsv4ctl.clock import RealClock, until
from dsv4ctl.problems import CannotRun, Problem
from dsv4ctl.rehearsal import cgroup, gpus
from dsv4ctl.rehearsal import machine as rehearsal
from dsv4ctl.rehearsal.private import Machine
from tests.conftest import written

# What they compare is the whole host's.
pytestmark = pytest.mark.alone

BOOTS = """
import sys
from dsv4ctl.rehearsal import machine

with machine.boot() as booted:
    print(booted.pid, booted.group, flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def token() -> str:
    """A name that is nowhere on the host."""
    return f"dsv4ctl-{uuid.uuid4().hex}"


@pytest.fixture
def folder_in_tmp(token: str) -> Iterator[Path]:
    """A folder of the host that a fresh /tmp would hide."""
    folder = Path("/tmp") / token  # noqa: S108 -- it is about this very folder
    folder.mkdir()
    (folder / "file").write_text("of the host\n")
    yield folder
    (folder / "file").unlink()
    folder.rmdir()


@pytest.fixture
def rehearser() -> Iterator[subprocess.Popen[str]]:
    """Another process that has booted a machine and waits."""
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", BOOTS], stdin=pipe, stdout=pipe, text=True) as process:
        yield process


def shell(machine: Machine, script: str) -> str:
    return machine.run(("sh", "-euc", dedent(script)), timeout_s=30).stdout.strip()


def first_line(process: subprocess.Popen[str]) -> tuple[int, Path]:
    assert process.stdout is not None
    pid, group = process.stdout.readline().split()
    return int(pid), Path(group)


def top_cgroups() -> set[str]:
    """Folders at the top of the host's hierarchy, but for those of rehearsals that others run meanwhile."""
    return {path.name for path in procs.cgroup_root().iterdir() if path.is_dir() and not cgroup.NAME.match(path.name)}


def mounts() -> str:
    """Every mount of the host with the groups it passes mounts on to."""
    return Path("/proc/self/mountinfo").read_text()


def kernel_variables() -> dict[str, str]:
    names = (
        "kernel/pid_max",
        "kernel/core_pattern",
        "kernel/hostname",
        "fs/nr_open",
        "fs/file-max",
        "vm/max_map_count",
    )
    return {name: Path("/proc/sys", name).read_text() for name in names}


def test_a_booted_machine_is_running_and_knows_no_unit_of_this_host(machine: Machine) -> None:
    files = shell(machine, "systemctl list-unit-files --no-legend --plain --type=service,socket,timer | cut -d' ' -f1")

    assert shell(machine, "systemctl is-system-running") == "running"
    assert sorted(files.split()) == [
        "dbus.service",
        "dbus.socket",
        "systemd-journald-dev-log.socket",
        "systemd-journald.service",
        "systemd-journald.socket",
    ]


def test_a_boot_and_an_end_leave_mounts_cgroups_and_kernel_variables_of_the_host_alone() -> None:
    before = (mounts(), top_cgroups(), kernel_variables())

    with rehearsal.boot() as booted:
        # A mount of a shared folder inside must not turn up outside either.
        assert shell(booted, "findmnt -no PROPAGATION /") == "shared"
        shell(booted, "mount -t tmpfs tmpfs /mnt; mount -t tmpfs tmpfs /usr")
        during = (mounts(), top_cgroups(), kernel_variables())

    assert during == before
    assert (mounts(), top_cgroups(), kernel_variables()) == before
    assert not booted.group.exists()
    assert procs.stat(booted.pid) is None


def test_nothing_that_is_written_inside_reaches_the_host(machine: Machine, token: str) -> None:
    folders = ("/etc", "/root", "/usr", "/var/lib", "/var/tmp", "/tmp", "/run", "/dev/shm", "/opt", "/")  # noqa: S108

    shell(machine, "\n".join(f"echo private >{folder}/{token}" for folder in folders))

    assert [folder for folder in folders if not (machine.root / folder[1:] / token).exists()] == []
    assert [folder for folder in folders if Path(folder, token).exists()] == []


def test_what_is_written_anywhere_inside_can_be_told_from_what_was_there(machine: Machine, token: str) -> None:
    before = written(machine)

    shell(machine, f"echo new >/usr/{token}; echo '# more' >>/etc/passwd; echo new >/dev/shm/{token}")

    after = written(machine)
    changed = {path.removeprefix(str(machine.root)) for path in after if before.get(path) != after[path]}
    upper = "/run/written"
    assert changed == {f"{upper}/usr/{token}", f"{upper}/etc/passwd", f"/dev/shm/{token}"}  # noqa: S108 -- inside
    shell(machine, f"rm /usr/{token} /dev/shm/{token}; sed -i '$d' /etc/passwd")


def test_kernel_variables_and_the_kernel_log_cannot_be_written_from_inside(machine: Machine) -> None:
    # Only asked, not tried: were one writable, it would be the host's.
    for path in ("/proc/sys/kernel/pid_max", "/proc/sys/fs/file-max", "/proc/sysrq-trigger", "/sys/kernel/profiling"):
        assert shell(machine, f"test ! -w {path} && echo no") == "no"
    assert not (machine.root / "dev/kmsg").exists()


def test_what_runs_inside_cannot_set_the_clock_of_the_host(machine: Machine) -> None:
    held = shell(machine, "systemd-run --quiet --pipe --wait sed -n 's/^CapBnd:.//p' /proc/self/status")

    # CAP_SYS_MODULE is 16, CAP_SYS_RAWIO 17, CAP_SYS_TIME 25 (linux/capability.h)
    assert [number for number in (16, 17, 25) if int(held, 16) >> number & 1] == []


def test_processes_ports_and_the_host_name_are_private(machine: Machine) -> None:
    listener = (
        "import socket, time\ns = socket.create_server(('127.0.0.1', 30001)); print('up', flush=True); time.sleep(60)"
    )
    with machine.popen((sys.executable, "-c", listener)) as server:
        assert server.stdout is not None
        assert server.stdout.readline() == "up\n"

        with socket.create_server(("127.0.0.1", 0)) as ours:
            assert "30001" in shell(machine, "ss -Hltn")
            assert str(ours.getsockname()[1]) not in shell(machine, "ss -Hltn")
        assert shell(machine, "ps -o comm= -p 1") == "systemd"
        assert shell(machine, "hostname || cat /proc/sys/kernel/hostname") == "dsv4ctl-rehearsal"
        machine.end_session()
    assert shell(machine, "ss -Hltn") == ""


def test_a_unit_that_is_enabled_and_logs_behaves_as_on_any_host(machine: Machine) -> None:
    unit = "[Service]\nExecStart=/bin/echo said by the unit\nType=oneshot\n[Install]\nWantedBy=multi-user.target\n"
    machine.write("/etc/systemd/system/dsv4-try.service", unit)

    shell(machine, "systemctl daemon-reload; systemctl enable --quiet --now dsv4-try.service; journalctl --sync")

    assert "dsv4-try.service" in shell(machine, "systemctl show multi-user.target -p Wants --value")
    assert "said by the unit" in shell(machine, "journalctl -o cat -u dsv4-try.service")


def test_a_transient_scope_takes_in_a_living_process_through_the_bus(machine: Machine) -> None:
    adopted = shell(
        machine,
        """
        sleep 60 & pid=$!
        manager="org.freedesktop.systemd1 /org/freedesktop/systemd1 org.freedesktop.systemd1.Manager"
        busctl call $manager StartTransientUnit 'ssa(sv)a(sa(sv))' dsv4-adopt.scope fail 1 PIDs au 1 $pid 0 >/dev/null
        until grep -q dsv4-adopt.scope /proc/$pid/cgroup; do sleep 0.01; done
        systemctl kill --signal=KILL dsv4-adopt.scope
        wait $pid || echo ended by $(($? - 128))
        """,
    )

    assert adopted == "ended by 9"


def test_what_is_run_from_outside_sits_in_a_session_and_not_in_a_unit(machine: Machine) -> None:
    assert shell(machine, "sed -n s/^0:://p /proc/self/cgroup") == f"/{cgroup.SESSION}"


def test_a_failing_command_says_so_in_its_own_words(machine: Machine) -> None:
    with pytest.raises(CannotRun, match=r"cannot run `ls /nowhere` in the private machine: .*No such file"):
        machine.run(("ls", "/nowhere"), timeout_s=10)


def test_there_are_eight_gpus_on_two_nodes_and_memory_counts_while_its_process_lives(machine: Machine) -> None:
    ledger = f"{gpus.LEDGER}/{gpus.uuid(5)}"
    script = f"import os, time\nopen('{ledger}/' + str(os.getpid()), 'w').write('4096')\n"
    with machine.popen((sys.executable, "-c", f"{script}print(os.getpid(), flush=True)\ntime.sleep(60)")) as rank:
        assert rank.stdout is not None
        pid = int(rank.stdout.readline())
        shell(machine, f"echo 8192 >{ledger}/999999")
        loaded = json.loads(shell(machine, "dsv4ctl-nvml"))["gpus"]
        machine.end_session()
    ended = json.loads(shell(machine, "dsv4ctl-nvml"))["gpus"]

    assert [gpu["used_bytes"] for gpu in loaded] == [0, 0, 0, 0, 0, 4096, 0, 0]
    assert loaded[5]["processes"] == [{"pid": pid, "used_bytes": 4096}]
    assert [gpu["used_bytes"] for gpu in ended] == [0] * 8
    assert {gpu["total_bytes"] for gpu in ended} == {96 * 2**30}


def test_a_stand_in_engine_can_be_told_how_to_behave_by_a_plain_echo(machine: Machine) -> None:
    machine.run(("sh", "-c", "echo '{}' >/run/standin/39999.json && rm /run/standin/39999.json"), timeout_s=5)


def test_the_products_own_rooms_read_the_stand_in_gpus(machine: Machine) -> None:
    script = "from dsv4ctl import gpus, topology\nfor gpu in gpus.read().gpus: print(gpu.index, gpu.numa_node)\n"
    cpus = "print([len(topology.cpus_of_node(node)) > 0 for node in (0, 1, 2)])"

    seen = shell(machine, f"{sys.executable} -P - <<'END'\n{script}{cpus}\nEND")

    nodes = [f"{index} {node}" for index, node in enumerate([0, 0, 0, 0, 1, 1, 1, 1])]
    assert seen.splitlines() == [*nodes, "[True, True, False]"]


def test_a_unit_with_a_strict_sandbox_can_still_hold_gpu_memory(machine: Machine) -> None:
    write = f"echo 1 >{gpus.LEDGER}/{gpus.uuid(0)}/1"

    shell(machine, f"systemd-run --quiet --pipe --wait -p ProtectSystem=strict -p PrivateTmp=yes sh -euc '{write}'")


def test_a_folder_below_the_hosts_temporary_one_stands_inside_read_only(folder_in_tmp: Path) -> None:
    with rehearsal.boot(extra=(folder_in_tmp,), standins=False) as booted:
        content, *names = shell(booted, f"cat {folder_in_tmp}/file; ls /tmp").splitlines()
        assert content == "of the host"
        # A checkout that lies there as well stands inside too.
        assert {folder_in_tmp.name} <= set(names) <= {folder_in_tmp.name, *Path(__file__).parts}
        with pytest.raises(CannotRun, match="Read-only file system"):
            shell(booted, f"touch {folder_in_tmp}/other")


def test_a_folder_where_the_rehearsal_puts_its_own_is_refused_by_name() -> None:
    with pytest.raises(Problem, match=r"cannot rehearse with /dev/shm: .* something of its own"):
        rehearsal.boot(extra=(Path("/dev/shm"),))  # noqa: S108 -- it is about this very folder


def test_a_killed_rehearsal_takes_its_machine_with_it_and_the_next_one_sweeps_its_cgroup(
    rehearser: subprocess.Popen[str],
) -> None:
    _, group = first_line(rehearser)
    assert not cgroup.is_empty(group)

    os.kill(rehearser.pid, signal.SIGKILL)
    rehearser.wait()

    assert until(lambda: cgroup.is_empty(group) or None, RealClock(), 20, 0.01)
    with rehearsal.boot(standins=False):
        assert not group.exists()


def test_a_boot_does_not_sweep_the_cgroup_of_a_rehearsal_that_lives(rehearser: subprocess.Popen[str]) -> None:
    pid, group = first_line(rehearser)

    with rehearsal.boot(standins=False):
        assert group.exists()
    assert procs.stat(pid) is not None


@pytest.mark.parametrize(
    ("prefix", "path", "said"),
    [
        (("unshare", "--user"), os.environ["PATH"], "only root may; sudo "),
        ((), "/nowhere", "unshare, nsenter, setpriv, pivot_root, mount, ip, ss, systemctl not found; apt-get install "),
    ],
)
def test_a_host_that_cannot_is_told_in_one_sentence_what_to_type(prefix: tuple[str, ...], path: str, said: str) -> None:
    script = """
    import os, sys
    os.environ["PATH"] = sys.argv[1]
    from dsv4ctl.problems import Problem
    from dsv4ctl.rehearsal import machine
    try:
        machine.boot()
    except Problem as problem:
        print(f"{problem}; {problem.hint}")
    """
    done = child.run((*prefix, sys.executable, "-c", dedent(script), path), timeout_s=20)

    assert done.stdout.startswith("cannot boot a private systemd: ")
    assert said in done.stdout
    assert done.stdout.count("\n") == 1
