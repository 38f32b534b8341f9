"""Every way in which an engine ends by itself: what systemd and the operator are told, and what comes after it."""

from dsv4ctl.model import SuperviseExit
from dsv4ctl.rehearsal.private import Machine
from tests.conftest import Behave
from tests.system.deploying import (
    PORT,
    QUICK,
    configure,
    install,
    journal,
    last_lines,
    processes_of_ours,
    prop,
    systemctl,
    until,
    wait_for_active,
)

# What the stand-in is told to do -> the unit's exit status, words of its status, and what systemd does next.
WHILE_LOADING: tuple[tuple[dict[str, object], SuperviseExit, str, str], ...] = (
    ({"exit": 1}, SuperviseExit.DIED_LOADING, "ended with exit status 1", "auto-restart"),
    ({"exit": 2}, SuperviseExit.USAGE, "refuses its arguments", "failed"),
    ({"exit": 3}, SuperviseExit.PORT, f"could not bind port {PORT}", "failed"),
    ({"die_in": "weights"}, SuperviseExit.DIED_LOADING, "in weights", "auto-restart"),
    (
        {"crash_in": "graphs", "crash_settle_s": 0.1},
        SuperviseExit.DIED_LOADING,
        "was killed by SIGKILL in graphs",
        "auto-restart",
    ),
)


def down(machine: Machine) -> str:
    """How the unit is down, once it is: "failed", or "auto-restart" where systemd starts it again."""
    until(lambda: prop(machine, "SubState") in ("failed", "auto-restart"), lambda: last_lines(machine))
    return prop(machine, "SubState")


def test_each_end_of_a_load_has_its_own_words_status_and_consequence(machine: Machine, behaviour: Behave) -> None:
    install(machine)
    for does, status, words, after in WHILE_LOADING:
        behaviour(PORT, **(QUICK | does))
        systemctl(machine, "start", "--no-block")

        found = down(machine)

        assert (found, prop(machine, "ExecMainStatus")) == (after, str(int(status))), (does, last_lines(machine))
        assert words in prop(machine, "StatusText"), (does, prop(machine, "StatusText"))
        assert processes_of_ours(machine) == 0, does
        systemctl(machine, "stop")
        systemctl(machine, "reset-failed", check=False)


def test_an_engine_that_loses_its_port_while_it_serves_is_ended_and_started_again(
    machine: Machine, behaviour: Behave
) -> None:
    configure(machine, '[limits]\nrestart = "1s"\nwatch = "1s"\nunhealthy = "2s"')
    behaviour(PORT, **QUICK, lose_port=1.0)
    install(machine)
    systemctl(machine, "start")
    behaviour(PORT, **QUICK)

    until(lambda: prop(machine, "NRestarts") == "1", lambda: last_lines(machine))
    wait_for_active(machine)

    said = journal(machine)
    assert f"the port is lost: nobody listens on 127.0.0.1:{PORT}" in said
    assert f"status={int(SuperviseExit.UNHEALTHY)}/" in said
