"""What systemd's programs print, recorded from version 252 with units made for it, and read."""

import json
import re
from pathlib import Path

import pytest

from dsv4ctl import child, systemd
from dsv4ctl.model import ActiveState, LoadState, Unit
from dsv4ctl.problems import CannotRun, Problem

RECORDED = Path(__file__).parent / "recorded"
SHOWN = (RECORDED / "systemctl-show-252.txt").read_text()
BOOTED_AT = 1_795_972_503.54


@pytest.fixture
def units() -> dict[str, Unit]:
    return systemd.parse_show(SHOWN, wall_minus_monotonic_s=BOOTED_AT)


def test_a_running_service_is_read_whole(units: dict[str, Unit]) -> None:
    folder = "/etc/systemd/system"

    assert units["dsv4-server.service"] == Unit(
        name="dsv4-server.service",
        load=LoadState.LOADED,
        active=ActiveState.ACTIVE,
        sub="running",
        enabled="enabled",
        main_pid=158,
        cgroup="/dsv4.slice/dsv4-server.service",
        status_text="loading weights 31/46: a=b",
        result="success",
        exit_code="",
        exit_status=0,
        restarts=0,
        since=1_795_975_173.08,
        needs_reload=False,
        fragment=f"{folder}/dsv4-server.service",
        drop_ins=(f"{folder}/dsv4-server.service.d/a.conf", f"{folder}/dsv4-server.service.d/b.conf"),
    )


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("dsv4-fails.service", "loaded failed exit-code exited 3"),
        ("dsv4-killed.service", "loaded failed signal killed 11"),
        ("dsv4-loops.service", "loaded failed exit-code exited 1"),
        ("dsv4-bad.service", "bad-setting inactive success  0"),
        ("dsv4-none.service", "not-found inactive success  0"),
        ("dsv4-masked.service", "masked inactive success  0"),
        ("dsv4.target", "loaded inactive   0"),
        ("dsv4.slice", "loaded active   0"),
        ("init.scope", "loaded active success  0"),
    ],
)
def test_each_way_to_be_is_told_apart(units: dict[str, Unit], name: str, words: str) -> None:
    unit = units[name]

    assert f"{unit.load} {unit.active} {unit.result} {unit.exit_code} {unit.exit_status}" == words


def test_restarts_are_counted_and_what_never_changed_has_no_date(units: dict[str, Unit]) -> None:
    assert units["dsv4-loops.service"].restarts == 6
    assert units["dsv4-none.service"].since is None


def test_no_unit_is_no_block() -> None:
    assert systemd.parse_show("\n", wall_minus_monotonic_s=0) == {}


BLOCK = "Id=x.service\nLoadState={load}\nActiveState={active}\nSubState=s\n"


@pytest.mark.parametrize("word", list(ActiveState))
def test_every_active_state_of_systemd_is_known(word: ActiveState) -> None:
    text = BLOCK.format(load="loaded", active=word)

    assert systemd.parse_show(text, wall_minus_monotonic_s=0)["x.service"].active is word


@pytest.mark.parametrize(("load", "active"), [("loaded", "dozing"), ("odd", "active"), ("", "active")])
def test_an_unknown_word_is_named_loudly(load: str, active: str) -> None:
    text = BLOCK.format(load=load, active=active)
    said = "ActiveState=dozing" if active == "dozing" else f"LoadState={load}"

    with pytest.raises(Problem, match=f"it says {said} of x.service, a word we do not know"):
        systemd.parse_show(text, wall_minus_monotonic_s=0)


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("systemd 252 (252.38-1~deb12u1)\n+PAM +AUDIT", 252),
        ("systemd 249 (249.11-0ubuntu3.12)\n", 249),
        ("systemd 256~rc3 (256~rc3-1)\n", 256),
        ("systemd 257.4-1\n", 257),
    ],
)
def test_the_version_is_its_first_number(text: str, version: int) -> None:
    assert systemd.parse_version(text) == version


def test_something_that_is_not_systemd_has_no_version() -> None:
    with pytest.raises(Problem, match="cannot tell systemd's version"):
        systemd.parse_version("OpenRC 0.54\n")


def test_the_version_of_this_host_is_told() -> None:
    try:
        assert systemd.version() >= 200
    except child.MissingProgram:
        pytest.skip("no systemd is installed here")


def test_the_exposure_is_the_overall_one() -> None:
    assert systemd.parse_security((RECORDED / "analyze-security-252.txt").read_text()) == 9.8
    with pytest.raises(Problem, match="cannot find the overall exposure"):
        systemd.parse_security("")


def test_journal_entries_are_read_bytes_that_are_no_text_included() -> None:
    entries = [systemd.parse_entry(line) for line in (RECORDED / "journalctl-json-252.jsonl").read_text().splitlines()]

    assert [entry.message for entry in entries] == ["caf\ufffd \x1b[1m", "two café", "x" * 60]
    assert entries[0] == systemd.Entry(
        at=1795975173.078088, priority=6, identifier="python3", pid=158, message="caf\ufffd \x1b[1m"
    )
    assert re.fullmatch(r"\d\d:\d\d:\d\d", entries[0].clock())


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (None, ""),
        ("", ""),
        ([], ""),
        ([104, 105], "hi"),
        (["first", "second"], "first"),
        ([[104, 105], "second"], "hi"),
        ("two\nlines", "two\nlines"),
    ],
)
def test_every_form_of_a_message_is_text(message: object, text: str) -> None:
    line = json.dumps({"__REALTIME_TIMESTAMP": "1", "MESSAGE": message})

    assert systemd.parse_entry(line) == systemd.Entry(at=1e-6, priority=6, identifier="", pid=0, message=text)


def test_an_entry_of_the_kernel_is_told_by_its_command_when_it_has_no_identifier() -> None:
    line = json.dumps({"__REALTIME_TIMESTAMP": "1", "_COMM": "sh", "PRIORITY": "3", "MESSAGE": "x"})

    assert systemd.parse_entry(line).identifier == "sh"
    assert systemd.parse_entry(line).priority == 3


@pytest.fixture
def service(tmp_path: Path) -> Path:
    unit = tmp_path / "dsv4-server.service"
    unit.write_text("[Service]\nExecStart=/bin/true\n")
    try:
        systemd.version()
    except child.MissingProgram:
        pytest.skip("no systemd is installed here")
    return unit


def test_a_unit_file_that_is_sound_verifies_without_a_word(service: Path) -> None:
    assert systemd.verify([service]) == ""


def test_a_misspelt_key_is_told_although_verify_exits_with_0(service: Path) -> None:
    service.write_text("[Service]\nExecStart=/bin/true\nKilMode=mixed\n")

    assert "Unknown key" in systemd.verify([service])


def test_the_exposure_of_a_unit_file_is_told_offline(service: Path) -> None:
    if systemd.version() < 250:
        pytest.skip("systemd-analyze security --offline came with 250")
    naked = systemd.security(service)
    service.write_text("[Service]\nExecStart=/bin/true\nPrivateUsers=yes\nProtectSystem=strict\nNoNewPrivileges=yes\n")

    assert 0 < systemd.security(service) < naked <= 10


@pytest.mark.skipif(systemd.is_running(), reason="systemd is the init of this host and would answer")
@pytest.mark.parametrize("ask", [systemd.start, systemd.stop, systemd.enable, systemd.reset_failed])
def test_a_host_without_systemd_is_told_as_that(ask: object, service: Path) -> None:  # noqa: ARG001 -- skips without systemctl
    with pytest.raises(CannotRun, match="it is not the init of this host") as caught:
        ask("dsv4-server.service")  # type: ignore[operator]
    assert "dsv4ctl rehearse" in caught.value.hint


def test_asking_for_no_unit_asks_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = tmp_path / "asked"
    program = tmp_path / "systemctl"
    program.write_text(f"#!/bin/sh\n: > {asked}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))

    assert systemd.show([]) == {}
    assert not asked.exists()
    systemd.show(["x.service"])
    assert asked.exists()


@pytest.mark.parametrize("state", ["inactive", "failed"])
@pytest.mark.parametrize(("job", "down"), [("", True), ("Job=0\n", True), ("Job=4711\n", False)])
def test_a_unit_whose_start_waits_for_its_turn_is_not_down(state: str, job: str, down: bool) -> None:  # noqa: FBT001 -- a parameter
    text = f"Id=dsv4-router.service\nLoadState=loaded\nActiveState={state}\nSubState=dead\n{job}"
    unit = systemd.parse_show(text, wall_minus_monotonic_s=0)["dsv4-router.service"]
    assert (unit.active, unit.sub) == ((ActiveState(state), "dead") if down else (ActiveState.ACTIVATING, "queued"))
