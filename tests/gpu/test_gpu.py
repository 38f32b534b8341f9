"""On a real GPU under a real systemd: the unit's whole life, and the stand-in NVML program held to the real one.

Run by lab.sh, for they install units and kill what they find; skipped anywhere else.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from dsv4ctl import child, gpus
from dsv4ctl.free import DRIVER_S
from dsv4ctl.model import Gpu
from dsv4ctl.problems import Status
from dsv4ctl.rehearsal import environment
from dsv4ctl.rehearsal import gpus as standin

ENGINE, MODEL = Path("/opt/sglang"), Path("/models/DeepSeek-V4-Flash")
PORT, UNIT = 30001, "dsv4-server.service"
GIB = 2**30
ASKED_BYTES = 4 * GIB

# The CUDA context takes about half a GiB besides.
HOLD = f"""
import os, signal, sys
from pathlib import Path
from tests.gpu import ledger
ledger.hold(Path(sys.argv[1]), ledger.CONTEXT_GIB + {ASKED_BYTES / GIB})
print("up", flush=True)
signal.pause()
"""
NOTE = f"""
import os, signal, sys
from pathlib import Path
Path({str(standin.LEDGER)!r}, {standin.uuid(0)!r}, str(os.getpid())).write_text("{ASKED_BYTES}")
print("up", flush=True)
signal.pause()
"""
STANDIN_PROGRAM = "from dsv4ctl.rehearsal.gpus import main; main()"
CONFIG = """\
mode = "here"
port = {port}
[engine]
venv = "{engine}"
model = "{model}"
[memory]
mem_fraction_static = 0.3
context_length = 4096
[modes.here]
server = {{ tp = {count}, gpus = {gpus} }}
"""


def why_not() -> str:
    """Why these tests cannot run here, or ''."""
    if "DSV4CTL_GPU_LAB" not in os.environ:
        return "they install units and run in tests/gpu/lab.sh only"
    seen = gpus.read(timeout_s=60)
    return "" if seen.gpus else f"no GPU here: {seen.problem or 'the driver tells of none'}"


pytestmark = pytest.mark.skipif(bool(why := why_not()), reason=why)


def count() -> int:
    """How many GPUs the engine gets."""
    return min(len(gpus.read().gpus), 4)


def run(*words: str, timeout_s: float = 120) -> child.Done:
    return child.run(words, timeout_s=timeout_s, check=False)


def say(text: str) -> None:
    """A line of the protocol."""
    print(text.rstrip(), flush=True)  # noqa: T201 -- for whoever reads what was seen


def show(done: child.Done) -> child.Done:
    """The command, what it printed and how it ended."""
    say(f"$ {' '.join(done.argv)}\n{done.stdout}{done.stderr}[exit {done.status}, {done.seconds:.2f} s]")
    return done


def until(found: Callable[[], object], limit_s: float = 60) -> float:
    """Wait; the seconds that it took."""
    began = time.monotonic()
    while not found():
        assert time.monotonic() < began + limit_s, run("journalctl", "-u", UNIT, "-n", "30", "--output=cat").stdout
        time.sleep(0.1)
    return time.monotonic() - began


def prop(name: str) -> str:
    return run("systemctl", "show", UNIT, "-p", name, "--value").stdout.strip()


def used() -> list[int]:
    return [gpu.used_bytes or 0 for gpu in gpus.read().gpus]


def is_listening() -> bool:
    return bool(run("ss", "-Hltn", f"sport = :{PORT}").stdout.strip())


def notebook(script: str = HOLD) -> tuple[subprocess.Popen[bytes], int]:
    """A program of somebody else's on GPU 0, no child of ours: `dsv4ctl` would spare it as its own."""
    line = f'setsid {sys.executable} -c "$0" 0 & echo $!; wait'
    shell = subprocess.Popen(("/bin/sh", "-c", line, script), stdout=subprocess.PIPE)
    assert shell.stdout is not None
    pid = int(shell.stdout.readline())
    assert shell.stdout.readline() == b"up\n"
    return shell, pid


@pytest.fixture
def engine() -> Iterator[None]:
    """An engine double with real memory, a model, a config; afterwards everything is gone again."""
    environment.install(ENGINE, base_python=sys.executable)
    package = next(ENGINE.glob("lib/*/site-packages/sglang/standin"))
    shutil.copy(Path(__file__).with_name("ledger.py"), package / "ledger.py")
    figures = package / "figures.py"
    # Weights that fit on fewer GPUs than four.
    figures.write_text(
        figures.read_text().replace(
            "SHARDED_GIB, REPLICATED_GIB = 137.0625 + 5.3,", "SHARDED_GIB, REPLICATED_GIB = 8.0,"
        )
    )
    environment.make_model(MODEL)
    # No checkpoint that the memory planner knows.
    config = json.loads((MODEL / "config.json").read_text()) | {"num_hidden_layers": 4, "n_routed_experts": 8}
    (MODEL / "config.json").write_text(json.dumps(config))
    behave()
    if not Path("/usr/local/cuda/bin/nvcc").exists():
        Path("/usr/local/cuda/bin").mkdir(parents=True, exist_ok=True)
        shutil.copy("/bin/false", "/usr/local/cuda/bin/nvcc")
    Path("/etc/dsv4ctl").mkdir(parents=True, exist_ok=True)
    text = CONFIG.format(port=PORT, engine=ENGINE, model=MODEL, count=count(), gpus=list(range(count())))
    Path("/etc/dsv4ctl/config.toml").write_text(text)
    yield
    run("dsv4ctl", "teardown", "--strays", "--purge")
    for folder in (ENGINE, MODEL, Path("/run/standin"), Path("/etc/dsv4ctl")):
        shutil.rmtree(folder)


def behave(**what: object) -> None:
    """How the engine double shall behave from its next start on."""
    Path("/run/standin").mkdir(exist_ok=True)
    quick = {"load_s": 1.0, "import_s": 0.0, "warmup_s": 0.0, "drain_poll_s": 0.1}
    Path(f"/run/standin/{PORT}.json").write_text(json.dumps(quick | what))


@pytest.mark.usefixtures("engine")
def test_the_whole_cycle_of_a_unit_deploy_restart_teardown_with_real_memory() -> None:
    assert used() == [0] * len(used())

    assert show(run("dsv4ctl", "deploy")).status == Status.OK
    held = used()
    say(f"in use: {[f'{size / GIB:.1f} GiB' for size in held]}")
    assert all(size > 20 * GIB for size in held[: count()])
    first = prop("MainPID")
    show(run("dsv4ctl", "status"))
    show(run("dsv4ctl", "who", "gpu:0"))

    began = time.monotonic()
    assert show(run("systemctl", "restart", UNIT)).status == 0
    say(f"restarted, with the wait for the driver, in {time.monotonic() - began:.2f} s")
    assert prop("ActiveState") == "active"
    assert prop("MainPID") != first
    assert used()[0] > 20 * GIB

    done = show(run("dsv4ctl", "teardown", "--verify"))
    assert done.status == Status.OK
    assert used() == [0] * len(used())
    assert prop("ActiveState") == "inactive"


@pytest.mark.usefixtures("engine")
def test_the_gate_of_a_unit_waits_while_somebody_holds_memory_and_names_him() -> None:
    assert show(run("dsv4ctl", "deploy")).status == Status.OK
    run("systemctl", "stop", UNIT)
    shell, pid = notebook()

    assert run("systemctl", "start", "--no-block", UNIT).status == 0
    until(lambda: "waiting for the driver" in prop("StatusText"))
    time.sleep(2)
    say(prop("StatusText"))
    assert prop("ActiveState") == "activating"
    assert f"pid {pid} " in prop("StatusText")
    refused = show(run("dsv4ctl", "teardown", "--verify", "--timeout", "3"))
    assert refused.status == Status.FOREIGN
    assert show(run("dsv4ctl", "deploy")).status == Status.FOREIGN

    os.kill(pid, signal.SIGKILL)
    shell.wait()
    assert show(run("dsv4ctl", "deploy")).status == Status.OK
    assert show(run("dsv4ctl", "teardown", "--verify")).status == Status.OK


@pytest.mark.usefixtures("engine")
def test_a_start_is_refused_when_the_holder_stays_and_the_next_one_serves_when_he_is_gone() -> None:
    assert run("dsv4ctl", "deploy").status == Status.OK
    run("systemctl", "stop", UNIT)
    shell, pid = notebook()

    refused = show(run("systemctl", "start", UNIT, timeout_s=DRIVER_S + 30))
    said = run("journalctl", "-u", UNIT, "-n", "8", "--output=cat").stdout
    say(said)
    assert refused.status != 0
    assert refused.seconds > DRIVER_S
    assert f"pid {pid} " in said
    assert len(gpus.read().gpus[0].processes) == 1

    os.kill(pid, signal.SIGKILL)
    shell.wait()
    say(f"served by systemd's own next start after {until(lambda: prop('ActiveState') == 'active'):.1f} s")
    assert show(run("dsv4ctl", "teardown", "--verify")).status == Status.OK


@pytest.mark.usefixtures("engine")
def test_an_engine_by_hand_that_hides_is_ended_from_outside_and_its_memory_is_back() -> None:
    """Its child left the session, renamed itself, ignores SIGTERM and holds memory; its main process was killed."""
    behave(leave_renamed_children=1)
    server = f"{ENGINE}/bin/python -m sglang.launch_server --model-path {MODEL} --port {PORT}"
    line = f"CUDA_VISIBLE_DEVICES=0 setsid {server} --mem-fraction-static 0.3 >/tmp/engine.log 2>&1 & echo $!"
    main = int(child.run(("sh", "-c", line), timeout_s=10).stdout)
    until(is_listening)
    until(lambda: len(gpus.read().gpus[0].processes) == 2)
    os.kill(main, signal.SIGKILL)
    until(lambda: len(gpus.read().gpus[0].processes) == 1)
    (left,) = gpus.read().gpus[0].processes
    say(f"left of it: pid {left.pid}, {Path(f'/proc/{left.pid}/comm').read_text().strip()}, {left.used_bytes} bytes")
    show(run("dsv4ctl", "who", "gpu:0"))
    assert used()[0] > 0

    done = show(run("dsv4ctl", "teardown", "--verify", "--gpus", "0", "--grace", "1"))

    assert done.status == Status.OK
    assert used()[0] == 0
    assert not Path(f"/proc/{left.pid}").exists()


@pytest.mark.usefixtures("engine")
def test_an_engine_by_hand_is_moved_with_its_memory_and_later_ended_through_its_scope() -> None:
    server = f"{ENGINE}/bin/python -m sglang.launch_server --model-path {MODEL} --port {PORT}"
    line = f"CUDA_VISIBLE_DEVICES=0 setsid {server} --mem-fraction-static 0.3 >/tmp/engine.log 2>&1 & echo $!"
    main = int(child.run(("sh", "-c", line), timeout_s=10).stdout)
    until(is_listening)
    until(lambda: used()[0] > 20 * GIB)
    before = gpus.read().gpus[0]

    moved = show(run("dsv4ctl", "adopt", "--scope", "--yes", "--out", "/etc/dsv4ctl/adopted.toml"))
    after = gpus.read().gpus[0]
    show(run("dsv4ctl", "status"))

    assert moved.status == Status.OK
    assert (after.processes, after.used_bytes) == (before.processes, before.used_bytes)
    for pid in (main, *(process.pid for process in after.processes)):
        assert f"/dsv4.slice/dsv4-adopted-server-{PORT}.scope" in Path(f"/proc/{pid}/cgroup").read_text()
    done = show(run("dsv4ctl", "teardown", "--verify"))
    assert done.status == Status.OK
    assert used()[0] == 0


@dataclass(frozen=True, slots=True)
class Driver:
    """One of the two programs that tell of GPUs, and how to hold memory of its first."""

    program: tuple[str, ...]
    holder: str

    def said(self) -> dict[str, object]:
        answer: dict[str, object] = json.loads(child.run(self.program, timeout_s=30).stdout)
        return answer

    def first(self) -> Gpu:
        return gpus.parse(json.dumps(self.said())).gpus[0]


REAL = Driver(("dsv4ctl-nvml",), HOLD)
PLAYED = Driver((sys.executable, "-c", STANDIN_PROGRAM), NOTE)


@pytest.fixture
def ledger() -> Iterator[None]:
    """The stand-in's ledger, empty."""
    for index in range(standin.COUNT):
        (standin.LEDGER / standin.uuid(index)).mkdir(parents=True)
    yield
    shutil.rmtree(standin.LEDGER)


def shape(value: object) -> object:
    """The keys and kinds of an answer; lists by their first member."""
    match value:
        case dict():
            return {key: shape(inner) for key, inner in value.items()}
        case list():
            return [shape(inner) for inner in value[:1]]
    return type(value).__name__


@pytest.mark.usefixtures("ledger")
def test_the_stand_in_answers_in_the_form_of_the_real_driver() -> None:
    shells = [notebook(HOLD), notebook(NOTE)]
    try:
        say(json.dumps(REAL.said()))
        assert shape(PLAYED.said()) == shape(REAL.said())
    finally:
        for shell, pid in shells:
            os.kill(pid, signal.SIGKILL)
            shell.wait()
    until(lambda: used() == [0] * len(used()))


@pytest.mark.usefixtures("ledger")
@pytest.mark.parametrize("driver", [REAL, PLAYED], ids=["real", "stand-in"])
def test_an_idle_gpu_uses_nothing_and_a_holder_is_told_with_pid_and_bytes_until_he_is_killed(driver: Driver) -> None:
    idle = driver.first()
    assert (idle.used_bytes, idle.processes, idle.processes_told) == (0, (), True)
    assert 0 < (idle.reserved_bytes or 0) < GIB

    shell, pid = notebook(driver.holder)
    held = driver.first()
    say(f"{driver.program[-1]}: used {held.used_bytes}, {held.processes}")
    os.kill(pid, signal.SIGKILL)
    shell.wait()

    assert [one.pid for one in held.processes] == [pid]
    for told in (held.used_bytes, held.processes[0].used_bytes):
        assert ASKED_BYTES <= (told or 0) < ASKED_BYTES + GIB
    assert held.total_bytes == idle.total_bytes
    say(f"free again after {until(lambda: driver.first().used_bytes == 0):.2f} s")
    assert driver.first().processes == ()
