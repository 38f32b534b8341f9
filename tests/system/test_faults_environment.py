"""Faults of what surrounds an engine: values, limits, tools, folders and its log (B55, B57, B58, B61, B63)."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from dsv4ctl.rehearsal.private import Machine
from tests.conftest import Behave
from tests.system.deploying import (
    PORT,
    QUICK,
    UNIT,
    configure,
    deploy,
    inside,
    install,
    journal,
    make_user,
    prop,
    systemctl,
    wait_for_journal,
)

CAP_SYS_RESOURCE = 24
DUMP = "/run/dsv4ctl/server/dump.json"


def dumped(machine: Machine) -> dict[str, Any]:
    """What reached the engine: argv, environment, working directory and limits, as it saw them itself."""
    found: dict[str, Any] = json.loads((machine.root / DUMP[1:]).read_text())
    return found


# ---- values ----------------------------------------------------------------------------------------------------------

NASTY_MODEL = "/srv/mo del %u %% %z \"q\" 'r' $HOME ${HOME} back\\slash größe"
NASTY_VALUE = '{"a": "b\\"c$d", "e": "%f %% %n", "g": "h;i # j"}'


def test_values_with_quotes_backslashes_dollars_and_percents_reach_the_engine_through_a_whole_deploy(
    machine: Machine, behaviour: Behave
) -> None:
    """B55, B57: through config, unit, systemd and supervisor, byte for byte, into argv, environment and folder."""
    machine.run(("cp", "-r", "/models/DeepSeek-V4-Flash", NASTY_MODEL), timeout_s=10)
    configure(machine, f"args = {json.dumps(['--model-loader-extra-config', NASTY_VALUE])}\n[engine.environment]")
    configure(machine, f"NASTY = {json.dumps(NASTY_VALUE)}\nLINES = {json.dumps('one' + chr(10) + 'two ' + chr(92))}")
    behaviour(PORT, **QUICK, dump_to=DUMP)

    deploy(machine, "--model", NASTY_MODEL, "--served-model-name", "näme$x%n")

    found = dumped(machine)
    following = dict(zip(found["argv"], found["argv"][1:], strict=False))
    assert following["--model-path"] == NASTY_MODEL
    assert following["--served-model-name"] == "näme$x%n"
    assert following["--model-loader-extra-config"] == NASTY_VALUE
    assert found["environment"]["NASTY"] == NASTY_VALUE
    assert found["environment"]["LINES"] == "one\ntwo \\"
    machine.run(("rm", "-r", NASTY_MODEL), timeout_s=10)


# ---- limits ----------------------------------------------------------------------------------------------------------


def test_every_process_of_the_engine_has_the_limits_that_gpus_and_their_networks_need(
    machine: Machine, behaviour: Behave
) -> None:
    """B58: services do not read limits.conf; without locked memory RDMA and NCCL cannot register theirs."""
    behaviour(PORT, **QUICK)
    install(machine)
    systemctl(machine, "start")

    assert [prop(machine, name) for name in ("LimitMEMLOCK", "TasksMax")] == ["infinity", "infinity"]
    # Where systemd itself may not raise a limit, as in a container, it takes the highest that it may: that of its own.
    own = {} if may_raise(machine) else limits(machine.root / "proc/1/limits")
    for name, pid in inside(machine).items():
        found = limits(machine.root / f"proc/{pid}/limits")
        assert found["Max locked memory"] == [own.get("Max locked memory", ["", "unlimited"])[1]] * 2, name
        assert found["Max open files"][1] == own.get("Max open files", ["", "1048576"])[1], name
        assert found["Max core file size"] == ["0", "0"], name


def test_a_process_with_less_than_its_unit_asks_for_is_named_by_status(machine: Machine, behaviour: Behave) -> None:
    """B58: of the main process and of the workers, what the kernel says is held against the unit."""
    behaviour(PORT, **QUICK)
    deploy(machine)
    pids = inside(machine)
    machine.run(("prlimit", f"--pid={pids['scheduler']}", "--memlock=65536:65536", "--nofile=512:512"), timeout_s=10)

    shown = json.loads(machine.run(("dsv4ctl", "status", "--json"), timeout_s=20).stdout)
    notes = shown["rows"][0]["notes"]

    for words in ("max locked memory 65536, and the unit asks for LimitMEMLOCK=infinity", "max open files 512, and"):
        (note,) = (note for note in notes if words in note)
        assert f"pid {pids['scheduler']} of {UNIT} live" in note
    # The others have what they are to have, wherever systemd may raise limits; elsewhere one line tells of all units.
    assert len(notes) == 2
    assert len([note for note in shown["notes"] if "systemd may not raise" in note]) == (not may_raise(machine))


def may_raise(machine: Machine) -> bool:
    """Whether the machine's systemd may raise limits."""
    status = (machine.root / "proc/1/status").read_text()
    return bool(int(status.partition("CapEff:")[2].split()[0], 16) >> CAP_SYS_RESOURCE & 1)


def limits(file: Path) -> dict[str, list[str]]:
    """Limit -> soft and hard value."""
    return {line[:26].strip(): line[26:].split()[:2] for line in file.read_text().splitlines()[1:]}


# ---- tools and folders -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("user", [None, "op"])
def test_tools_home_and_caches_are_there_for_the_engine_although_a_unit_has_no_shell(
    machine: Machine, behaviour: Behave, user: str | None
) -> None:
    """B61: it works as a service as it does from a shell: compilers are found, and what they make can be kept."""
    make_user(machine, user)
    behaviour(PORT, **QUICK, dump_to=DUMP)

    deployed = deploy(machine, *(["--user", user] if user else []))

    found = dumped(machine)
    folders = found["environment"]["PATH"].split(":")
    assert folders[:2] == ["/opt/sglang/bin", "/usr/local/cuda/bin"]
    assert {"/usr/local/bin", "/usr/bin", "/bin"} <= set(folders)
    written = [found["environment"][name] for name in ("HOME", "SGLANG_CACHE_DIR")] + [found["cwd"], "/tmp"]  # noqa: S108
    enter = ("nsenter", f"--target={inside(machine)['engine']}", "--mount", "setpriv", f"--reuid={user or 'root'}")
    for folder in written:
        machine.run((*enter, "sh", "-c", 'mkdir -p "$0" && touch "$0/kernel" && rm "$0/kernel"', folder), timeout_s=10)
    assert "not on the engine's PATH" not in deployed.stderr + journal(machine, "-u", UNIT)
    assert "cannot be written" not in journal(machine, "-u", UNIT)


def test_each_missing_tool_and_closed_folder_is_named_before_the_model_is_loaded(
    machine: Machine, behaviour: Behave
) -> None:
    """B61: by the deploy, and by each start of the unit, which sees what the engine will see."""
    configure(machine, '[engine.environment]\nPATH = "/nowhere"\nHOME = "/sys/nowhere"')
    behaviour(PORT, **QUICK)

    warned = deploy(machine).stderr

    lines = journal(machine, "-u", UNIT).splitlines()
    began = next(number for number, line in enumerate(lines) if "dsv4ctl: starting the engine" in line)
    for words in ("nvcc is not on the engine's PATH", "ninja is not on the engine's PATH"):
        assert f"warning: {words}" in warned
        assert any(words in line for line in lines[:began])
    assert any("HOME=/sys/nowhere cannot be written by user id 0" in line for line in lines[:began])


def test_an_engine_that_is_gone_is_named_by_the_start_itself(machine: Machine, behaviour: Behave) -> None:
    """B61: the interpreter is looked for in the unit's own environment, before anything is loaded, and not for ever."""
    behaviour(PORT, **QUICK)
    install(machine)
    machine.run(("mv", "/opt/sglang", "/opt/elsewhere"), timeout_s=10)

    failed = systemctl(machine, "start", check=False)

    machine.run(("mv", "/opt/elsewhere", "/opt/sglang"), timeout_s=10)
    assert failed.status != 0
    assert "/opt/sglang/bin/python is not an executable file" in prop(machine, "StatusText")
    assert [prop(machine, name) for name in ("ActiveState", "NRestarts")] == ["failed", "0"]


# ---- the log ---------------------------------------------------------------------------------------------------------


def test_two_hundred_thousand_lines_in_a_burst_reach_the_journal_all_of_them(
    machine: Machine, behaviour: Behave
) -> None:
    """B63: a limit per service would drop lines just when an incident needs them."""
    lines = 200_000
    behaviour(PORT, **QUICK, chatty_lines=lines)
    install(machine)

    systemctl(machine, "start")
    began = time.monotonic()
    # journald takes them from its socket at its own pace.
    wait_for_journal(machine, "ready: DeepSeek-V4-Flash")
    took_s = time.monotonic() - began

    count = "journalctl --output=cat --no-pager -u $0 --grep 'chatty line [0-9]+ of' | sort -u | wc -l"
    assert int(machine.run(("sh", "-c", count, UNIT), timeout_s=60).stdout) == lines
    assert took_s < 30
