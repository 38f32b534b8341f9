"""A machine of its own with the library of the cuts, and an engine that is there at once."""

import json
from pathlib import Path

import pytest

from dsv4ctl.rehearsal.private import Machine
from dsv4ctl.rehearsal.standins import CONFIG
from tests.interrupts import cutting
from tests.interrupts.cutting import Cutter
from tests.interrupts.journeys import Host
from tests.interrupts.promises import MODE
from tests.system.deploying import PORT, QUICK


@pytest.fixture(scope="session")
def host(machine: Machine, tmp_path_factory: pytest.TempPathFactory) -> Host:
    """A host to cut commands off on."""
    machine.write(f"/run/standin/{PORT}.json", json.dumps(QUICK))
    machine.write("/etc/dsv4ctl/config.toml", f"{CONFIG}\n{MODE}\n")
    Cutter(machine).install(cutting.build(Path(tmp_path_factory.mktemp("cut"))))
    return Host(machine)
