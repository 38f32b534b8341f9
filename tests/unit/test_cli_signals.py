"""What becomes of a command whose terminal goes, or that is told to end."""

import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import sys, time
from dsv4ctl.cli import signals
signals.heed(sys.argv[1])
open(sys.argv[2], "w").write("up")
try:
    end = time.monotonic() + float(sys.argv[3])
    while time.monotonic() < end:
        time.sleep(0.02)
    print("said on a terminal that may be gone", flush=True)
    open(sys.argv[2], "w").write("went on")
except KeyboardInterrupt:
    open(sys.argv[2], "w").write("interrupted")
"""


def after(number: int, command: str, mark: Path) -> tuple[int, str]:
    """Exit status of a command on a terminal that goes with a signal to it, and what it came to."""
    ours, its = pty.openpty()
    argv = [sys.executable, "-c", SCRIPT, command, str(mark), "1" if number == signal.SIGHUP else "30"]
    with subprocess.Popen(argv, stdin=its, stdout=its, stderr=its, start_new_session=True) as process:
        os.close(its)
        while not mark.exists() or not mark.read_text():
            assert process.poll() is None
        process.send_signal(number)
        os.close(ours)
        return process.wait(timeout=30), mark.read_text()


@pytest.mark.parametrize("command", ["deploy", "rollback", "teardown"])
def test_a_lost_terminal_does_not_end_a_command_that_changes_the_host(command: str, tmp_path: Path) -> None:
    assert after(signal.SIGHUP, command, tmp_path / "mark") == (0, "went on")


def test_a_lost_terminal_ends_a_command_that_only_shows(tmp_path: Path) -> None:
    assert after(signal.SIGHUP, "status", tmp_path / "mark") == (-signal.SIGHUP, "up")


@pytest.mark.parametrize("command", ["deploy", "status"])
def test_sigterm_interrupts_like_ctrl_c(command: str, tmp_path: Path) -> None:
    assert after(signal.SIGTERM, command, tmp_path / "mark") == (0, "interrupted")
