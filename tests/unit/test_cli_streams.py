"""What becomes of a command when nobody hears what it says, or nothing can be written."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dsv4ctl.problems import Status

DSV4CTL = Path(sys.executable).with_name("dsv4ctl")

SCRIPT = """
import sys
from dsv4ctl.cli import signals, streams
out = streams.install(changing=sys.argv[1] in signals.CHANGING)
for line in range(3):
    print("data", line, flush=True)
    print("talk", line, file=sys.stderr)
open(sys.argv[2], "w").write(f"went on, {out.lost}")
"""


def become(command: str, how: str, mark: Path) -> tuple[int, str]:
    """Exit status of a command whose output goes where the shell says, and what it came to."""
    script = f'"$@" {how}'
    argv = ["sh", "-c", script, "sh", sys.executable, "-c", SCRIPT, command, str(mark)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)
    return done.returncode, mark.read_text() if mark.exists() else done.stderr


@pytest.mark.parametrize("how", [">&- 2>&-", "<&- >&- 2>&-", "2>/dev/full", ">/dev/null 2>&-"])
def test_no_word_that_cannot_be_said_keeps_a_host_from_being_changed(how: str, tmp_path: Path) -> None:
    assert become("teardown", how, tmp_path / "mark") == (0, "went on, None")


def test_data_that_cannot_be_written_is_told_when_all_is_done(tmp_path: Path) -> None:
    status, mark = become("deploy", ">/dev/full", tmp_path / "mark")
    assert (status, mark) == (0, "went on, cannot write the outcome to stdout: no space left on device")


def unheard(argv: list[str | Path]) -> int:
    """Exit status of a command that nobody has ever listened to, neither to its data nor to its talk."""
    read, write = os.pipe()
    os.close(read)
    try:
        return subprocess.run(argv, stdout=write, stderr=write, check=False, timeout=60).returncode
    finally:
        os.close(write)


def test_a_reader_who_has_gone_ends_nothing_that_changes_the_host(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    assert unheard([sys.executable, "-c", SCRIPT, "deploy", mark]) == 0
    assert mark.read_text() == "went on, None"


def test_a_reader_who_has_gone_ends_a_command_that_only_shows(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    assert unheard([sys.executable, "-c", SCRIPT, "logs", mark])
    assert not mark.exists()


@pytest.mark.parametrize("more", [[], ["--json"]])
def test_a_deploy_that_is_refused_is_not_taken_for_done_because_nobody_listens(more: list[str], tmp_path: Path) -> None:
    argv: list[str | Path] = [DSV4CTL, "deploy", "--root", tmp_path, "--config", tmp_path / "none", *more]
    assert unheard(argv) not in {Status.OK, Status.BUG, 1}


def test_a_terminal_that_others_have_made_non_blocking_is_waited_for() -> None:
    read, write = os.pipe()
    os.set_blocking(write, False)
    script = f"from dsv4ctl.cli import streams; streams.install(changing=True); print({'x' * 10!r} * 50000)"
    with subprocess.Popen([sys.executable, "-c", script], stdout=write, stderr=subprocess.PIPE) as process:
        os.close(write)
        with os.fdopen(read) as reader:
            said = reader.read()
        assert process.wait(timeout=60) == 0
    assert len(said) == 500001
