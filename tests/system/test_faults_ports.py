"""Faults of ports: the engine's own helper that takes one, and strangers on every kind of address (B06, B07)."""

import itertools
import re
from collections.abc import Iterator

import pytest

from dsv4ctl.model import SuperviseExit
from dsv4ctl.problems import Status
from dsv4ctl.rehearsal.private import Machine
from tests.conftest import Behave
from tests.system.deploying import (
    PORT,
    QUICK,
    RENDEZVOUS,
    UNIT,
    deploy,
    install,
    listen,
    processes_of_ours,
    prop,
    systemctl,
    wait_for_state,
    wait_for_words,
)

# Addresses for documentation (RFC 5737, RFC 3849): nobody's.
NIC4, NIC6 = "192.0.2.7", "2001:db8::7"
# Whatever a stranger can listen on: address, and whether IPV6_V6ONLY is set.
KINDS = (
    ("0.0.0.0", False),  # noqa: S104 -- the stranger's
    ("127.0.0.1", False),
    (NIC4, False),
    ("::", False),
    ("::", True),
    ("::1", False),
    ("::1", True),
    (NIC6, False),
    (NIC6, True),
)
WILDCARDS = ("0.0.0.0", "::")  # noqa: S104 -- the engine's


@pytest.fixture
def nic(machine: Machine) -> Iterator[None]:
    """A network card with an address of each family."""
    card = f"""
    ip link add nic0 type dummy 2>/dev/null || ip link add nic0 type bridge
    ip address add {NIC4}/24 dev nic0
    ip -6 address add {NIC6}/64 dev nic0 nodad
    ip link set nic0 up
    """
    machine.run(("sh", "-ec", card), timeout_s=10)
    yield
    machine.run(("ip", "link", "delete", "nic0"), timeout_s=10)


@pytest.mark.parametrize("how", ["listening", "bound"])
def test_a_port_that_the_engines_own_helper_takes_is_told_as_its_own(
    machine: Machine, behaviour: Behave, how: str
) -> None:
    """B06: a self-collision is no stale server: the helper is named as the engine's own, and the end leaves nothing."""
    behaviour(PORT, **(QUICK | {"load_s": 1.5}), helper_takes_port=how)

    failed = deploy(machine, check=False)

    assert failed.status == Status.NOT_READY
    assert f"could not bind port {PORT}: its own pid " in failed.stderr
    assert "python" in failed.stderr.rpartition("its own pid")[2]
    assert processes_of_ours(machine) == 0
    assert prop(machine, "ExecMainStatus") == str(int(SuperviseExit.PORT))


def test_a_helper_that_holds_the_port_is_named_while_the_engine_loads_and_is_left_alone(
    machine: Machine, behaviour: Behave
) -> None:
    """B06: nothing inside the unit's own cgroup is killed for the port's sake while the engine may still need it."""
    behaviour(PORT, **(QUICK | {"load_s": 2.0}), helper_takes_port="listening")
    install(machine)
    systemctl(machine, "start", "--no-block")

    wait_for_words(machine, f"port {PORT} is held by pid ")
    helper = prop(machine, "StatusText").partition("is held by pid ")[2].split()[0]

    wait_for_words(machine, "capturing graphs")
    assert f"is held by pid {helper} " in prop(machine, "StatusText")
    assert (machine.root / "proc" / helper).exists()


@pytest.mark.parametrize(("job", "port"), [("http", PORT), ("rendezvous", RENDEZVOUS)])
def test_a_stranger_that_has_bound_a_port_and_does_not_listen_is_refused_before_the_start(
    machine: Machine, job: str, port: int
) -> None:
    """B06: such a socket is not in /proc/net/tcp, and a probe with SO_REUSEADDR calls its port free."""
    stranger = listen(machine, "127.0.0.1", port, bound_only=True)

    refused = deploy(machine, check=False)

    assert refused.status == Status.PORT_TAKEN
    assert f"cannot give port {port} ({job}) to {UNIT}" in refused.stderr
    assert "has it bound, but does not listen" in refused.stderr
    assert not (machine.root / "etc/systemd/system" / UNIT).exists()
    assert stranger.poll() is None


@pytest.mark.usefixtures("nic")
def test_a_deploy_is_refused_for_every_kind_of_listener_on_each_of_its_ports(machine: Machine) -> None:
    """B07: two kinds at a time, each on the HTTP port once and on the rendezvous port once."""
    for at_http, at_rendezvous in itertools.pairwise((*KINDS, KINDS[0])):
        listen(machine, at_http[0], PORT, v6only=at_http[1])
        listen(machine, at_rendezvous[0], RENDEZVOUS, v6only=at_rendezvous[1])

        refused = deploy(machine, "--host", WILDCARDS[0], check=False)

        machine.end_session()
        assert refused.status == Status.PORT_TAKEN, (at_http, at_rendezvous)
        for job, port, (address, _) in (("http", PORT, at_http), ("rendezvous", RENDEZVOUS, at_rendezvous)):
            shown = f"[{address}]" if ":" in address else address
            (line,) = (line for line in refused.stderr.splitlines() if f"port {port} ({job})" in line)
            assert "(python3, user root, login session 1, since " in line
            assert f"on {shown}:{port} " in line
    assert not (machine.root / "etc/systemd/system" / UNIT).exists()


PORTS = (("http", PORT), ("rendezvous", RENDEZVOUS))
BOUND_ONLY = (("127.0.0.1", False), (NIC6, True))


@pytest.mark.usefixtures("nic")
def test_a_start_by_systemd_alone_is_refused_for_every_kind_of_listener(machine: Machine) -> None:
    """B07: a reboot and a crash pass the same gate as a deploy, and a taken port is not tried again."""
    install(machine, "--host", WILDCARDS[1])
    kinds = (*((kind, False) for kind in KINDS), *((kind, True) for kind in BOUND_ONLY))
    for ((address, v6only), bound_only), (job, port) in zip(kinds, itertools.cycle(PORTS), strict=False):
        listen(machine, address, port, v6only=v6only, bound_only=bound_only)

        refused = systemctl(machine, "start", check=False)

        machine.end_session()
        shown = f"[{address}]" if ":" in address else address
        said = prop(machine, "StatusText")
        assert refused.status != 0, (address, v6only)
        assert f"cannot start: {job} port {port} is taken: " in said
        assert f"on {shown}:{port} {'has it bound' if bound_only else 'listens on it'}" in said
        # Who has a port only bound is told by Linux 6.8 and later.
        assert bound_only or re.search(r"login session 1 .*pid \d+ [(]python3[)]", said)
        assert [prop(machine, name) for name in ("ExecMainStatus", "NRestarts", "ActiveState")] == ["3", "0", "failed"]
        systemctl(machine, "reset-failed")
        # Starts that fail in a row are counted, and these are more than the brake allows.
        machine.run(("rm", "-r", "/var/lib/dsv4ctl/starts"), timeout_s=10)


@pytest.mark.usefixtures("nic")
@pytest.mark.parametrize("kind", [("::1", True), (NIC4, False)])
def test_a_listener_that_appears_on_another_address_during_the_load_ends_it(
    machine: Machine, behaviour: Behave, kind: tuple[str, bool]
) -> None:
    """B07: else clients of one address family, or of one network, would reach another program than the engine."""
    behaviour(PORT, **(QUICK | {"load_s": 20}))
    install(machine, "--host", "0.0.0.0")  # noqa: S104 -- inside
    systemctl(machine, "start", "--no-block")
    wait_for_words(machine, "loading weights")

    stranger = listen(machine, kind[0], PORT, v6only=kind[1])
    wait_for_state(machine, "failed")

    said = prop(machine, "StatusText")
    assert f"port {PORT} is taken while the engine loads" in said
    assert "python3" in said
    assert stranger.poll() is None
    assert processes_of_ours(machine) == 0
