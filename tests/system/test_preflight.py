"""What would not start is refused while the old server still serves."""

import stat
from collections.abc import Iterator

import pytest

from dsv4ctl.problems import Status
from dsv4ctl.rehearsal.private import Machine
from tests.conftest import Behave
from tests.system.deploying import PORT, QUICK, deploy, prop

REFUSED = {
    "a model that is not there": (("--model", "/nope"), Status.ENGINE_MISSING, "the model /nope is not there"),
    "an unknown user": (("--user", "nosuch"), Status.USAGE, "no user nosuch"),
    "a user that may not read the model": (("--user", "nobody"), Status.ENGINE_MISSING, "user nobody may not read"),
    "a missing key file": (("--api-key-file", "/nope"), Status.USAGE, "API key file /nope"),
    "an empty key file": (("--api-key-file", "/etc/empty"), Status.USAGE, "API key"),
    "a device for a key": (("--api-key-file", "/dev/zero"), Status.USAGE, "it is no file"),
    "an interpreter that is none": (("--python", "/bin/true"), Status.ENGINE_MISSING, "no Python interpreter"),
    "a key of two lines": (("--api-key-file", "/etc/two"), Status.USAGE, "API key"),
    "a context beyond the model's": (("--context-length", "2M"), None, "context"),
}


@pytest.fixture
def closed(machine: Machine) -> Iterator[None]:
    """Only root may look for models, until the test is over: the machine is that of other tests as well."""
    folder = machine.root / "models"
    before = stat.S_IMODE(folder.stat().st_mode)
    folder.chmod(0o700)
    yield
    folder.chmod(before)


@pytest.mark.usefixtures("closed")
@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_start_is_refused_by_plan_and_deploy_and_the_old_server_stays(
    machine: Machine, behaviour: Behave, case: str
) -> None:
    flags, status, words = REFUSED[case]
    behaviour(PORT, **QUICK)
    machine.write("/etc/empty", "")
    machine.write("/etc/two", "one\ntwo\n")
    deploy(machine)
    before = prop(machine, "InvocationID")

    planned = machine.run(("dsv4ctl", "plan", "--port", str(PORT), *flags), timeout_s=60, check=False)
    deployed = deploy(machine, *flags, check=False)

    assert (planned.status, deployed.status) == ((status, status) if status else (planned.status, planned.status))
    assert planned.status not in (Status.OK, Status.CHANGES)
    assert words in deployed.stderr
    assert (prop(machine, "ActiveState"), prop(machine, "InvocationID")) == ("active", before)
