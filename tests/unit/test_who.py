"""One holder has one name, whichever room speaks of it."""

import pytest

from dsv4ctl import sockets, who
from dsv4ctl.blame import Suspect, Verdict, words
from dsv4ctl.model import Gpu, Process
from tests.unit.blame.forests import SESSION, UUID, holds, listens, process

CONTAINER = f"/system.slice/docker-{'ab' * 32}.scope"
STRAY = process(1000, 200, comm="python3", cgroup=SESSION)
BOXED = process(1000, 200, comm="python3", cgroup=CONTAINER)
NOWHERE = process(1000, 200, comm="python3", cgroup="/")
GPU = Gpu(
    index=0,
    uuid=UUID.format(0),
    name="H200",
    pci_address="",
    total_bytes=141 * 2**30,
    used_bytes=2**30,
    reserved_bytes=0,
)


@pytest.mark.parametrize(
    ("found", "place"), [(STRAY, "login session 3, "), (BOXED, "docker container abababababab, "), (NOWHERE, "")]
)
def test_a_holder_is_named_with_its_user_where_it_runs_and_since_when(found: Process, place: str) -> None:
    assert who.words(found).startswith(f"pid 1000 (python3, user root, {place}since ")


@pytest.mark.parametrize("found", [STRAY, BOXED, NOWHERE])
def test_a_port_a_gpu_and_a_teardown_say_the_same_of_it(found: Process) -> None:
    suspect = Suspect(verdict=Verdict.STRAY, process=found, holds=("listens on 127.0.0.1:30000",), signs=())

    name = who.words(found)

    assert sockets.words(listens(30000, found)) == f"{name} on 127.0.0.1:30000"
    assert words.suspect(suspect) == f"{name} listens on 127.0.0.1:30000"
    assert f"; {name} with 1.0 GiB" in words.gpu(GPU, (holds(0, found),))


def test_somebody_who_cannot_be_identified_is_named_by_where_the_socket_was_made() -> None:
    assert sockets.words(listens(30000)) == (
        "a process of login session 3 that cannot be identified on 127.0.0.1:30000"
    )
    assert sockets.words(listens(30000, cgroup="")) == "a process that cannot be identified on 127.0.0.1:30000"
