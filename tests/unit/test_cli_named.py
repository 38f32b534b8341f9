"""What an operator names and is not there is a wrong option, and no failing of the host."""

from pathlib import Path

import pytest

from dsv4ctl import cli
from dsv4ctl.problems import Status
from tests import releases


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
    ],
)
def test_whoever_names_what_is_not_there_is_told_so_with_the_status_of_wrong_options(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], said: str
) -> None:
    install(tmp_path)

    assert cli.run([*words, "--root", str(tmp_path)]) == Status.USAGE
    assert said in capsys.readouterr().err


def install(root: Path) -> None:
    """The files of a server, as a deploy leaves them."""
    for file in releases.render(releases.spec()).files:
        path = root / file.path.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(file.text)
