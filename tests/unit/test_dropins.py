"""Drop-ins are found where systemd will find them, before it has loaded the unit, and those that usurp it refused."""

from dataclasses import replace
from pathlib import Path

import pytest

from dsv4ctl import dropins
from dsv4ctl.host import Host
from dsv4ctl.model import ActiveState, HostView
from dsv4ctl.problems import Problem
from tests import releases
from tests.unit.test_plan import unit

SERVER = "dsv4-server.service"
MADE = releases.render(releases.spec())
ETC = "etc/systemd/system"
SLEEPS = "[Service]\nExecStart=\nExecStart=/bin/sleep 1000\n"


def put(root: Path, path: str, text: str) -> Path:
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def refused(root: Path) -> list[Problem]:
    return list(dropins.refusals(Host.real(root), MADE, MADE.instances))


def test_a_drop_in_that_waits_for_a_unit_that_is_not_there_yet_is_told_and_refused_with_what_to_type(
    tmp_path: Path,
) -> None:
    file = put(tmp_path, f"{ETC}/{SERVER}.d/override.conf", SLEEPS)

    said = list(dropins.told(Host.real(tmp_path), MADE, HostView()))
    (problem,) = refused(tmp_path)

    assert said[0] == f"{SERVER} is changed by {file}"
    assert said[1].startswith(f"{SERVER}: ExecStart= starts /bin/sleep and not our supervisor")
    assert str(problem).startswith(f"cannot deploy {SERVER}: ExecStart= starts /bin/sleep and not our supervisor")
    assert str(problem).endswith(f"({file})")
    assert problem.hint.startswith(f"systemctl revert {SERVER} ")


def test_what_is_not_to_be_started_is_told_and_refused_by_nobody(tmp_path: Path) -> None:
    put(tmp_path, f"{ETC}/{SERVER}.d/override.conf", "[Service]\nKillMode=process\n")

    assert list(dropins.refusals(Host.real(tmp_path), MADE, ())) == []
    assert any("KillMode=process" in words for words in dropins.told(Host.real(tmp_path), MADE, HostView()))


def test_a_setting_of_the_operators_own_is_told_once_and_refused_by_nobody(tmp_path: Path) -> None:
    file = put(tmp_path, f"{ETC}/{SERVER}.d/override.conf", "[Service]\nEnvironmentFile=-/etc/dsv4ctl/engine.env\n")
    loaded = replace(unit(SERVER, ActiveState.ACTIVE), drop_ins=(str(file),))

    assert list(dropins.told(Host.real(tmp_path), MADE, HostView())) == [f"{SERVER} is changed by {file}"]
    assert list(dropins.told(Host.real(tmp_path), MADE, HostView(units={SERVER: loaded}))) == []
    assert refused(tmp_path) == []


def test_a_drop_in_of_an_installed_unit_is_told_read_or_not_and_one_that_is_gone_as_that(tmp_path: Path) -> None:
    read, unread = (put(tmp_path, f"{ETC}/{SERVER}.d/{name}.conf", "[Service]\nNice=1\n") for name in ("10", "20"))
    gone = f"/{ETC}/{SERVER}.d/30.conf"
    loaded = replace(unit(SERVER, ActiveState.ACTIVE), drop_ins=(f"/{read.relative_to(tmp_path)}", gone))

    assert list(dropins.changes(Host.real(tmp_path), loaded)) == [
        f"{SERVER} is changed by /{read.relative_to(tmp_path)}",
        f"{SERVER} is changed by {gone}, which is gone, and systemd does not know yet: systemctl daemon-reload",
        f"{SERVER} will be changed by {unread}, which systemd has not read yet: systemctl daemon-reload",
    ]


def test_what_drift_tells_of_an_installed_unit_is_not_told_twice(tmp_path: Path) -> None:
    for file in MADE.files:
        put(tmp_path, file.path[1:], file.text)
    put(tmp_path, f"{ETC}/{SERVER}.d/override.conf", "[Service]\nNice=1\n")

    assert list(dropins.told(Host.real(tmp_path), MADE, HostView())) == []


@pytest.mark.parametrize("folder", ["dsv4-.service.d", "service.d"])
def test_what_holds_for_several_units_is_refused_without_a_revert_that_would_not_touch_it(
    tmp_path: Path, folder: str
) -> None:
    file = put(tmp_path, f"run/systemd/system/{folder}/types.conf", "[Service]\nType=exec\n")

    (problem,) = refused(tmp_path)

    assert problem.hint == f"take that out of {file}, then systemctl daemon-reload"


def test_of_files_of_one_name_the_first_on_the_load_path_holds_and_an_empty_one_hides_the_others(
    tmp_path: Path,
) -> None:
    put(tmp_path, f"run/systemd/system/{SERVER}.d/50-x.conf", SLEEPS)
    put(tmp_path, f"usr/lib/systemd/system/{SERVER}.d/10-a.conf", "[Service]\nNice=1\n")
    assert len(refused(tmp_path)) == 1

    put(tmp_path, f"{ETC}/{SERVER}.d/50-x.conf", "")

    assert refused(tmp_path) == []
    assert [file.name for file in dropins.of(Host.real(tmp_path), SERVER)] == ["10-a.conf"]
