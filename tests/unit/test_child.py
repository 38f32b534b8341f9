"""The door to other programs, with real programs behind it."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dsv4ctl import child, procs
from dsv4ctl.problems import CannotRun


def gone(pid: int) -> bool:
    """Whether a process ends within two seconds."""
    end = time.monotonic() + 2
    while (state := procs.stat(pid)) and not state.ended and time.monotonic() < end:
        time.sleep(0.01)
    return state is None or state.ended


def test_output_is_captured_whole_and_by_stream() -> None:
    done = child.run(["sh", "-c", "seq 200000; echo aside >&2"], timeout_s=30)

    assert done.stdout.splitlines()[-1] == "200000"
    assert done.stderr == "aside\n"
    assert done.status == 0
    assert done.seconds < 30


def test_a_failure_carries_the_words_of_stderr() -> None:
    with pytest.raises(CannotRun, match=r"cannot run `sh -c .*`: no such luck"):
        child.run(["sh", "-c", "echo no such luck >&2; exit 3"], timeout_s=10)


@pytest.mark.parametrize(
    ("script", "words"),
    [("echo on stdout; exit 1", "on stdout"), ("exit 3", "exit status 3"), ("kill -KILL $$", r"signal 9 \(Killed\)")],
)
def test_a_failure_without_stderr_says_what_there_is(script: str, words: str) -> None:
    with pytest.raises(CannotRun, match=words):
        child.run(["sh", "-c", script], timeout_s=10)


def test_a_failure_that_is_not_checked_is_a_value() -> None:
    assert child.run(["sh", "-c", "exit 3"], timeout_s=10, check=False).status == 3


def test_a_missing_program_names_the_package_that_brings_it(tmp_path: Path) -> None:
    for program, package in (("ss", "iproute2"), ("systemctl", "systemd"), ("nsenter", "util-linux")):
        with pytest.raises(child.MissingProgram, match="there is no such program") as caught:
            child.run([tmp_path / program], timeout_s=1)
        assert caught.value.hint == f"apt-get install {package}"


def test_a_program_is_found_on_a_search_path_if_it_can_be_executed(tmp_path: Path) -> None:
    (tmp_path / "tool").write_text("#!/bin/sh\n")
    assert child.which("tool", f"/nowhere:{tmp_path}") == ""

    (tmp_path / "tool").chmod(0o755)
    assert child.which("tool", f"/nowhere:{tmp_path}") == str(tmp_path / "tool")
    assert child.which("tool", "/nowhere") == ""


def test_a_missing_program_of_no_known_package_gets_a_hint_as_well() -> None:
    with pytest.raises(child.MissingProgram) as caught:
        child.run(["no-such-program-anywhere"], timeout_s=1)
    assert caught.value.hint == "look for it with `command -v no-such-program-anywhere`"


def test_a_file_that_cannot_be_executed_is_a_problem_of_ours(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no program")

    with pytest.raises(CannotRun, match="permission denied"):
        child.run([tmp_path / "text"], timeout_s=1)


def test_a_word_that_no_program_can_be_given_is_a_problem_of_ours() -> None:
    with pytest.raises(CannotRun, match="null byte"):
        child.run(["echo", "a\0b"], timeout_s=1)


def test_a_missing_working_folder_is_not_taken_for_a_missing_program(tmp_path: Path) -> None:
    with pytest.raises(CannotRun, match="there is no such folder"):
        child.run(["true"], timeout_s=1, cwd=tmp_path / "nowhere")


def test_a_timeout_ends_the_child_and_its_children_at_once(tmp_path: Path) -> None:
    script = (
        f"sh -c 'trap \"\" TERM; echo $$ > {tmp_path}/grandchild; sleep 60; sleep 60' & echo half; echo why >&2; wait"
    )
    began = time.monotonic()

    with pytest.raises(child.TimedOut, match=r"did not end within 0\.5 s and was ended: why") as caught:
        child.run(["sh", "-c", script], timeout_s=0.5)

    assert time.monotonic() - began < 3
    assert not caught.value.abandoned
    assert gone(int((tmp_path / "grandchild").read_text()))


def test_an_interrupt_ends_the_child_too(tmp_path: Path) -> None:
    # Ctrl-C reaches us only, for the child is not in the terminal's foreground group.
    ours = (
        f"from dsv4ctl import child; child.run(['sh', '-c', 'echo $$ > {tmp_path}/child; exec sleep 60'], timeout_s=60)"
    )
    process = subprocess.Popen([sys.executable, "-c", ours], stderr=subprocess.DEVNULL)
    end = time.monotonic() + 20
    while not ((tmp_path / "child").exists() and (tmp_path / "child").read_text()) and time.monotonic() < end:
        time.sleep(0.02)

    process.send_signal(signal.SIGINT)

    assert process.wait(10) != 0
    assert gone(int((tmp_path / "child").read_text()))


def test_an_interrupt_while_a_program_is_being_started_leaves_nothing_of_it() -> None:
    """One after the other, in steps shorter than it takes to fork and to execute."""
    script = """
import signal
from pathlib import Path
from dsv4ctl import child
def interrupt(*_):
    raise KeyboardInterrupt
signal.signal(signal.SIGTERM, interrupt)
# The alarm stands for whoever types Ctrl-C: it may come at any time, and passes the interrupt on.
signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(signal.SIGTERM))
for step in range(150):
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.0002 + step * 0.00003)
        child.run(["sleep", "60"], timeout_s=30)
    except KeyboardInterrupt:
        pass
print(Path("/proc/self/task", str(__import__("os").getpid()), "children").read_text().split())
"""
    assert child.run([sys.executable, "-c", script], timeout_s=60).stdout == "[]\n"


def test_a_child_that_left_its_pipe_to_a_stranger_does_not_hold_us(tmp_path: Path) -> None:
    # A daemon that left the session keeps the pipe open: there is no end of file to wait for.
    script = f"setsid sh -c 'echo $$ > {tmp_path}/stranger; exec sleep 60' & sleep 0.2"
    began = time.monotonic()
    try:
        with pytest.raises(child.TimedOut):
            child.run(["sh", "-c", script], timeout_s=0.6)
        assert time.monotonic() - began < 4
    finally:
        os.kill(int((tmp_path / "stranger").read_text()), signal.SIGKILL)


def test_a_child_runs_in_a_session_of_its_own_so_that_the_terminal_does_not_reach_it() -> None:
    done = child.run([sys.executable, "-c", "import os; print(os.getsid(0), os.getpid())"], timeout_s=10)

    session, pid = done.stdout.split()
    assert session == pid != str(os.getsid(0))


def test_a_child_reads_nothing_unless_it_is_given_something() -> None:
    assert child.run(["cat"], timeout_s=10).stdout == ""
    assert child.run(["cat"], timeout_s=10, input_text="given\n").stdout == "given\n"


def test_a_child_speaks_english_whatever_the_operator_speaks() -> None:
    done = child.run(["env"], timeout_s=10, env={"MINE": "x"})

    assert {"LC_ALL=C.UTF-8", "LANG=C.UTF-8", "MINE=x", f"PATH={os.environ['PATH']}"} <= set(done.stdout.splitlines())


def test_output_that_is_not_utf8_is_no_crash() -> None:
    assert child.run(["printf", r"a\377b"], timeout_s=10).stdout == "a\ufffdb"


def test_a_long_command_does_not_drown_its_error() -> None:
    with pytest.raises(CannotRun) as caught:
        child.run(["sh", "-c", "exit 1", "x" * 5000], timeout_s=10)
    assert len(str(caught.value)) < 250


def test_a_stream_comes_line_by_line_while_the_program_runs() -> None:
    lines = child.stream(["sh", "-c", "echo one; echo two; exec sleep 60"])
    began = time.monotonic()

    assert [next(lines), next(lines)] == ["one", "two"]
    assert time.monotonic() - began < 10
    lines.close()  # type: ignore[attr-defined]


def test_closing_a_stream_ends_the_program_and_all_below_it(tmp_path: Path) -> None:
    lines = child.stream(["sh", "-c", f"echo $$; sleep 60 & echo $! > {tmp_path}/below; echo said; wait"])
    pid = int(next(lines))
    next(lines)

    lines.close()  # type: ignore[attr-defined]

    assert gone(pid)
    assert gone(int((tmp_path / "below").read_text()))


def test_a_stream_that_is_only_left_ends_the_program_as_well() -> None:
    for line in child.stream(["sh", "-c", "echo $$; exec sleep 60"]):
        pid = int(line)
        break

    assert gone(pid)


def test_a_stream_that_fails_says_why_after_its_lines() -> None:
    seen = []

    with pytest.raises(CannotRun, match="no journal here"):
        for line in child.stream(["sh", "-c", "echo first; echo no journal here >&2; exit 1"]):
            seen.append(line)  # noqa: PERF402 -- what came before the error counts

    assert seen == ["first"]


def test_a_stream_with_much_on_stderr_does_not_stall() -> None:
    assert list(child.stream(["sh", "-c", "seq 100000 >&2; echo done"])) == ["done"]


def test_a_stream_of_a_missing_program_is_missing() -> None:
    with pytest.raises(child.MissingProgram):
        next(iter(child.stream(["no-such-program-anywhere"])))


def test_no_file_descriptor_is_left_open() -> None:
    before = set(os.listdir("/proc/self/fd"))  # noqa: PTH208 -- names only

    child.run(["true"], timeout_s=10)
    list(child.stream(["true"]))
    with pytest.raises(child.TimedOut):
        child.run(["sleep", "5"], timeout_s=0.1)

    assert set(os.listdir("/proc/self/fd")) == before  # noqa: PTH208
