"""A process is looked into through its threads when its main thread has ended."""

import os
import subprocess
from collections.abc import Callable

from dsv4ctl import census, procs, threads
from dsv4ctl.clock import RealClock, until

Start = Callable[..., subprocess.Popen[str]]

# The main thread ends by itself, and another one goes on with all that the process has.
HEADLESS = """
import ctypes, socket, threading, time
server = socket.create_server(("127.0.0.1", 0))
threading.Thread(target=time.sleep, args=(60,)).start()
print("up", flush=True)
ctypes.CDLL(None).syscall({number}, 0)
"""
# exit(2) of one thread, on x86-64 and on everything that has the common table (arm64, riscv64).
EXIT = {"x86_64": 60}


def headless(start: Start) -> int:
    process = start(HEADLESS.format(number=EXIT.get(os.uname().machine, 93)))
    assert until(lambda: ((s := procs.stat(process.pid)) and s.state == "Z") or None, RealClock(), 5, 0.01)
    return process.pid


def test_a_process_without_its_main_thread_lives_and_shows_what_it_holds(start: Start) -> None:
    pid = headless(start)

    seen = census.everything()[pid]

    assert procs.alive(seen.identity)
    assert (seen.dying, seen.state) == (True, "S")
    assert seen.executable
    assert seen.pid_namespace == census.everything()[procs.ourselves().pid].pid_namespace
    assert any(path.startswith("socket:[") for path in census.open_files(pid))
    assert any("libc" in path for path in census.mapped(pid))
    assert threads.doing(pid)[0] == "S"


def test_only_a_process_that_has_been_killed_is_called_killed(start: Start) -> None:
    pid = headless(start)

    assert not threads.is_killed(pid)
    assert not threads.is_killed(procs.ourselves().pid)
    assert not threads.is_killed(0)
