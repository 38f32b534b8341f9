"""What an operator names and is not there is a wrong option, and no failing of the host."""

from dataclasses import replace
from pathlib import Path

import pytest

from dsv4ctl import cli
from dsv4ctl.clock import RealClock
from dsv4ctl.host import Host
from dsv4ctl.problems import Status
from dsv4ctl.store import Paths
from tests import releases
from tests.unit.test_releases import PROVED, generation


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("history", "77"), "cannot find release 77 (there is: none)"),
        (("diff", "1", "77"), "cannot find release 1 (there is: none)"),
        (("rollback", "99", "--dry-run"), "cannot find release 99 (there is: none)"),
        (("deploy", "--plan", "/nope"), "cannot read /nope: no such file or directory\n  try: dsv4ctl plan --out FILE"),
        (("deploy", "--config", "/nope"), "cannot read /nope: there is no such file"),
        (("probe", "--role", "nonsense"), "cannot find nonsense: installed are server"),
        (("logs", "nonsense"), "cannot find nonsense: installed are server"),
        (("who", "gpu:0-3"), "'gpu:0-3' is neither a port such as 30001 nor a GPU such as gpu:0"),
    ],
)
def test_whoever_names_what_is_not_there_is_told_so_with_the_status_of_wrong_options(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], said: str
) -> None:
    install(tmp_path)

    assert cli.run([*words, "--root", str(tmp_path)]) == Status.USAGE
    assert said in capsys.readouterr().err


def test_whoever_asks_for_help_in_another_way_is_told_how(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["help", "deploy"]) == Status.USAGE
    assert "no such command 'help'; did you mean '--help'?" in capsys.readouterr().err


def test_a_rollback_is_not_told_that_nothing_was_proved_when_what_is_installed_was(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = Host(tmp_path, Paths(tmp_path), RealClock()).store.releases
    kept.keep(replace(generation(1), release=releases.render(releases.spec())))
    install(tmp_path)

    assert cli.run(["rollback", "--dry-run", "--root", str(tmp_path)]) == Status.HOST
    assert "no earlier release was ever proved" in capsys.readouterr().err

    kept.judge(1, PROVED)

    assert cli.run(["rollback", "--dry-run", "--root", str(tmp_path)]) == Status.HOST
    said = capsys.readouterr().err
    assert "no release before release 1, which is installed, was ever proved" in said
    assert "try: dsv4ctl rollback 1   brings up that one again" in said


def install(root: Path) -> None:
    """The files of a server, as a deploy leaves them."""
    for file in releases.render(releases.spec()).files:
        path = root / file.path.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(file.text)
