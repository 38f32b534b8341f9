"""A machine of its own for each worker, with the library of the cuts and an engine that is there at once."""

import json
import os
from pathlib import Path

import pytest

from dsv4ctl.rehearsal.private import Machine
from dsv4ctl.rehearsal.standins import CONFIG
from tests.interrupts import cutting, ledger
from tests.interrupts.cutting import Cutter
from tests.interrupts.journeys import BAD_PORT, Host
from tests.interrupts.ledger import Ledger
from tests.interrupts.promises import MODE
from tests.system.deploying import PORT, QUICK

INSTANT = QUICK | {"load_s": 0.0, "graphs_steps": 1}


@pytest.fixture(scope="session")
def host(machine: Machine, tmp_path_factory: pytest.TempPathFactory) -> Host:
    """A host to cut commands off on."""
    machine.write(f"/run/standin/{PORT}.json", json.dumps(INSTANT))
    machine.write(f"/run/standin/{BAD_PORT}.json", json.dumps(INSTANT | {"exit": 1}))
    machine.write("/etc/dsv4ctl/config.toml", f"{CONFIG}\n{MODE}\n")
    Cutter(machine).install(cutting.build(Path(tmp_path_factory.mktemp("cut"))))
    return Host(machine)


@pytest.fixture(scope="session")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Ledger:
    """What was cut off so far."""
    return ledger.of_these_sources(tmp_path_factory.mktemp("cuts"))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Tell how many were cut off, of earlier runs as well."""
    if ledger.ENV not in os.environ:
        return
    for line in ledger.table(ledger.of_these_sources(Path()).cuts()):
        terminalreporter.write_line(line)
