"""Ports with real sockets on loopback: each kind of listener, and each kind of socket that is none."""

import os
import re
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from dsv4ctl import cgroups, child, inetdiag, procs, sockets, sslines, who
from dsv4ctl.model import Family, Keeper, Listener, PortView
from tests import ports

RECORDED = Path(__file__).parent / "recorded"
WILDCARD_ROLES = ("", "0.0.0.0", "::")  # noqa: S104 -- asked for, not bound
V4, V6 = socket.AF_INET, socket.AF_INET6

Bind = Callable[..., socket.socket]
Start = Callable[..., subprocess.Popen[str]]


def outside_address() -> str:
    """An address of this host that is not on loopback; a second loopback address where there is none."""
    with socket.socket(V4, socket.SOCK_DGRAM) as trial:
        try:
            trial.connect(("192.0.2.1", 9))  # sends nothing
            return str(trial.getsockname()[0])
        except OSError:
            return "127.0.0.2"


NIC = outside_address()

# Row B07: every kind of listener. Family, address, IPV6_V6ONLY.
KINDS = {
    "0.0.0.0": (V4, "0.0.0.0", None),  # noqa: S104
    "127.0.0.1": (V4, "127.0.0.1", None),
    "one NIC address": (V4, NIC, None),
    ":: for both families": (V6, "::", False),
    ":: with V6ONLY": (V6, "::", True),
    "::1": (V6, "::1", True),
    "::1 without V6ONLY": (V6, "::1", False),
    "127.0.0.1 as IPv6": (V6, "::ffff:127.0.0.1", False),
}


@pytest.fixture
def port() -> int:
    """A port that nobody uses, and that nobody takes meanwhile: of those that are ours alone."""
    return ports.unused()


@pytest.fixture
def bind(port: int) -> Iterator[Bind]:
    """Bind the port, and listen unless told otherwise; all sockets are closed when the test ends."""
    with ExitStack() as opened:

        def begin(
            family: int = V4, address: str = "127.0.0.1", *, v6only: bool | None = None, **how: bool
        ) -> socket.socket:
            made = opened.enter_context(socket.socket(family))
            if v6only is not None:
                made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, v6only)
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, how.get("reuse_address", False))
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, how.get("reuse_port", False))
            made.bind((address, port))
            if how.get("listen", True):
                made.listen()
            return made

        yield begin


def could_serve(host: str, port: int) -> bool:
    """Whether a server that sets SO_REUSEADDR, as the engine's does, really could listen."""
    with socket.socket(V6 if ":" in host else V4) as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            server.bind((host, port))
            server.listen()
        except OSError:
            return False
    return True


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("role", WILDCARD_ROLES)
def test_a_listener_of_each_kind_is_found_and_blocks_a_wildcard_role(
    kind: str, role: str, port: int, bind: Bind
) -> None:
    family, address, v6only = KINDS[kind]
    bind(family, address, v6only=v6only)

    found = sockets.view(role, port)

    (holder,) = found.holders
    assert (holder.listener.address, holder.listener.port) == (address, port)
    assert holder.listener.family == (Family.IPV6 if family == V6 else Family.IPV4)
    assert holder.processes[0].identity == procs.ourselves()
    assert f"pid {os.getpid()}" in found.blocked
    assert f"{address}]:{port}" in found.blocked or f"{address}:{port}" in found.blocked


@pytest.mark.parametrize(
    ("role", "blocking"),
    [
        ("127.0.0.1", set(KINDS) - {"one NIC address"}),
        ("localhost", set(KINDS) - {"one NIC address"}),
        ("::1", set(KINDS) - {"one NIC address"}),
        ("127.0.0.7", {"0.0.0.0", ":: for both families"}),  # noqa: S104
        (NIC, {"0.0.0.0", "one NIC address", ":: for both families"}),  # noqa: S104
    ],
)
@pytest.mark.parametrize("kind", KINDS)
def test_a_role_on_one_address_is_blocked_by_whoever_would_answer_there(
    role: str, blocking: set[str], kind: str, port: int, bind: Bind
) -> None:
    family, address, v6only = KINDS[kind]
    bind(family, address, v6only=v6only)

    found = sockets.view(role, port)

    assert bool(found.blocked) == (kind in blocking), found.blocked
    assert len(found.holders) == 1, "what is not in the way is shown all the same"
    assert found.blocked or could_serve(role, port)


def test_the_other_family_of_localhost_is_said_to_be_the_reason(port: int, bind: Bind) -> None:
    bind(V6, "::1", v6only=True)

    assert could_serve("127.0.0.1", port), "the kernel would not have stopped it"
    assert "`localhost` leads to as well: some clients would reach it instead" in sockets.blocked("127.0.0.1", port)


def test_an_address_is_the_same_however_it_is_written(port: int, bind: Bind) -> None:
    bind(V6, "::1", v6only=True)

    for spelling in ("0:0:0:0:0:0:0:1", "[::1]", "0::0001"):
        assert "listens on it" in sockets.blocked(spelling, port)


def test_two_listeners_that_share_a_port_are_both_found(port: int, bind: Bind) -> None:
    bind(reuse_port=True)
    bind(reuse_port=True)

    found = sockets.view("127.0.0.1", port)

    assert len({holder.listener.inode for holder in found.holders}) == 2
    assert found.kept_by is Keeper.KNOWN
    assert found.blocked.count("listens on it") == 2


@pytest.mark.parametrize("reuse_address", [False, True])
@pytest.mark.parametrize(("family", "address"), [(V4, "127.0.0.1"), (V4, "0.0.0.0"), (V6, "::1"), (V6, "::")])  # noqa: S104
def test_a_socket_that_is_bound_and_does_not_listen_is_noticed(
    family: int,
    address: str,
    reuse_address: bool,  # noqa: FBT001 -- a parameter of the test
    port: int,
    bind: Bind,
) -> None:
    # Row B06: /proc/net/tcp and ss do not show it, and a bind with SO_REUSEADDR beside one that has set it is granted.
    bind(family, address, listen=False, reuse_address=reuse_address)

    for role in (address, *WILDCARD_ROLES):
        found = sockets.view(role, port)
        assert found.holders == ()
        assert "has it bound, but does not listen" in found.blocked
        told = bool(inetdiag.bound(port))
        assert f"pid {os.getpid()}" in found.blocked or not told
        assert found.kept_by is (Keeper.KNOWN if told else Keeper.UNKNOWN)
        assert sockets.seen(port) == (found if told else PortView(port=port))


def test_a_bound_socket_on_another_address_or_port_is_not_in_the_way(port: int, bind: Bind) -> None:
    bind(V4, "127.0.0.2", listen=False)

    assert sockets.blocked("127.0.0.1", port) == ""
    assert sockets.blocked("", port + 1 if not sockets.holders(port + 1) else port - 1) == ""


def test_the_source_port_of_an_outgoing_connection_is_taken_and_told_as_that(port: int, bind: Bind) -> None:
    # Row B04: nobody listens, and yet no server can bind.
    with socket.create_server(("127.0.0.1", 0)) as server, bind(listen=False) as outgoing:
        outgoing.connect(server.getsockname())

        found = sockets.view("127.0.0.1", port)

        assert not could_serve("127.0.0.1", port)
        assert found.holders == ()
        assert re.match(
            rf"nobody listens, but pid {os.getpid()} .* has it in use for a connection with 127", found.blocked
        )
        assert sockets.blocked("", port) == found.blocked
        assert found.kept_by is Keeper.KNOWN
        assert sockets.seen(port) == found
        assert sockets.blocked("::1", port) == ""


def used_by_a_server(server: socket.socket, *, served_out: bool) -> socket.socket:
    """One connection of a server that then stops listening; `served_out`: it closed the connection first."""
    client = socket.create_connection(server.getsockname())
    accepted, _ = server.accept()
    server.close()
    if served_out:
        accepted.close()
        client.close()
        return client
    client.close()
    return accepted


def test_time_wait_of_a_server_that_had_set_reuseaddr_blocks_nobody(port: int, bind: Bind) -> None:
    # Row B05.
    used_by_a_server(bind(reuse_address=True), served_out=True)

    assert "TIME-WAIT" in child.run(["ss", "-tanH", f"sport = :{port}"], timeout_s=5).stdout
    assert sockets.blocked("127.0.0.1", port) == sockets.blocked("", port) == ""
    assert could_serve("127.0.0.1", port)


def test_time_wait_of_a_server_that_had_not_set_it_is_told_with_its_end(port: int, bind: Bind) -> None:
    used_by_a_server(bind(), served_out=True)

    assert not could_serve("127.0.0.1", port)
    for role in ("127.0.0.1", ""):
        found = sockets.view(role, port)
        assert found.blocked.startswith("nobody has it, but ended connections of a server")
        assert "in TIME_WAIT: the kernel lets go in 60 s at most" in found.blocked
        assert found.kept_by is Keeper.KERNEL
    assert sockets.seen(port) == found


def test_what_passes_by_itself_is_not_the_reason_beside_somebody_who_has_the_port(port: int, bind: Bind) -> None:
    used_by_a_server(bind(), served_out=True)
    bind(V6, "::1", v6only=True, listen=False)

    found = sockets.view("", port)

    assert found.kept_by in (Keeper.KNOWN, Keeper.UNKNOWN)
    assert "has it bound, but does not listen" in found.blocked


def test_an_address_that_no_server_could_have_is_kept_by_nobody(port: int) -> None:
    found = sockets.view("192.0.2.1", port)

    assert (found.kept_by, found.blocked) == (Keeper.NOBODY, "192.0.2.1 is no address of this host")


def test_what_is_left_of_an_accepted_connection_blocks_nobody(port: int, bind: Bind) -> None:
    with used_by_a_server(bind(reuse_address=True), served_out=False):
        assert sockets.blocked("127.0.0.1", port) == sockets.blocked("", port) == ""
        assert could_serve("127.0.0.1", port)


def test_a_free_port_is_free_and_stays_so(port: int) -> None:
    for role in ("127.0.0.1", "::1", *WILDCARD_ROLES):
        assert sockets.view(role, port) == PortView(port=port)

    assert could_serve("127.0.0.1", port)


def test_an_address_of_another_host_cannot_be_bound() -> None:
    assert sockets.blocked("203.0.113.7", 21000) == "203.0.113.7 is no address of this host"
    assert sockets.blocked("2001:db8::7", 21000) == "2001:db8::7 is no address of this host"
    assert sockets.blocked("not:an:address", 21000) == "not:an:address is no address of this host"


LISTEN = """
import socket, sys, time
server = socket.create_server(("127.0.0.1", {port}))
print("up", flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("below", ["", "inner"])
def test_a_holder_is_told_with_its_unit_and_its_process(below: str, port: int, start: Start, cgroup: Path) -> None:
    process = start(LISTEN.format(port=port), cgroup=cgroup / below)

    (holder,) = sockets.holders(port)

    assert holder.unit == cgroup.name
    assert [found.pid for found in holder.processes] == [process.pid]
    assert procs.within(holder.listener.cgroup, f"/{cgroup.relative_to(procs.cgroup_root())}")
    assert sockets.words(holder) == f"{who.words(holder.processes[0])} on 127.0.0.1:{port}"


def test_all_processes_that_share_one_socket_are_told(port: int, start: Start, cgroup: Path) -> None:
    process = start(LISTEN.format(port=port).replace("print", "import os; os.fork() and print"), cgroup=cgroup)

    (holder,) = sockets.holders(port)

    assert len(holder.processes) == 2
    assert process.pid in {found.pid for found in holder.processes}


def test_a_socket_that_left_the_cgroup_it_was_made_in_belongs_to_whoever_has_it(
    port: int, start: Start, cgroup: Path
) -> None:
    # As systemd's socket units pass theirs on, and as a process keeps it that moves to another cgroup.
    moved = start(
        LISTEN.format(port=port).replace("print", f"open('{cgroup}/inner/cgroup.procs', 'w').write('0'); print"),
        cgroup=cgroup.parent,
    )

    (holder,) = sockets.holders(port)

    assert not procs.within(holder.listener.cgroup, f"/{cgroup.relative_to(procs.cgroup_root())}")
    assert [found.pid for found in holder.processes] == [moved.pid]
    assert holder.unit == cgroup.name


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody who may not look")
def test_an_owner_that_cannot_be_looked_into_is_told_by_its_unit_alone(port: int, start: Start, cgroup: Path) -> None:
    start(LISTEN.format(port=port), cgroup=cgroup)
    reading, writing = os.pipe()
    pid = os.fork()
    if not pid:
        os.setuid(65534)
        try:
            (holder,) = sockets.holders(port)
            by = sockets.view("127.0.0.1", port).kept_by
            os.write(writing, f"{len(holder.processes)} {by} {holder.unit} {sockets.words(holder)}".encode())
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    os.close(writing)

    place = cgroups.place(f"/{cgroup.relative_to(procs.cgroup_root())}")
    with os.fdopen(reading) as said:
        assert said.read() == (
            f"0 unknown {cgroup.name} a process of {place} that cannot be identified on 127.0.0.1:{port}"
        )


BIND = LISTEN.replace("socket.create_server(", "socket.socket(); server.bind(")


def test_who_has_a_port_bound_without_listening_is_told_with_its_unit(port: int, start: Start, cgroup: Path) -> None:
    process = start(BIND.format(port=port), cgroup=cgroup)
    if not inetdiag.bound(port):
        pytest.skip("this kernel does not tell of sockets that are only bound (Linux 6.8 does)")

    why = sockets.blocked("127.0.0.1", port)

    seen = procs.read(process.pid)
    assert seen is not None
    assert why == f"{who.words(seen)} on 127.0.0.1:{port} has it bound, but does not listen"
    ((_, number),) = inetdiag.bound(port)
    assert procs.cgroup_of_id(number) == f"/{cgroup.relative_to(procs.cgroup_root())}"


def test_listeners_without_a_port_are_all_of_them(port: int, bind: Bind) -> None:
    bind()

    assert port in {listener.port for listener in sockets.listeners()}
    assert {listener.port for listener in sockets.listeners(port)} == {port}


def test_the_ephemeral_range_is_the_kernels() -> None:
    assert list(sockets.ephemeral_range()) == [
        int(word) for word in child.run(["sysctl", "-n", "net.ipv4.ip_local_port_range"], timeout_s=5).stdout.split()
    ]


def test_the_reserved_ports_are_the_kernels() -> None:
    said = Path("/proc/sys/net/ipv4/ip_local_reserved_ports").read_text().strip()

    assert bool(said) == bool(sockets.reserved_ports())


def test_each_line_of_ss_is_read() -> None:
    text = (RECORDED / "ss-tanHe-cgroup-6.1.0.txt").read_text()
    unit = "/system.slice/dsv4-server.service/libpod-payload"

    assert sslines.parse_ss(text) == tuple(
        Listener(family=family, address=address, port=port, inode=inode, v6only=v6only, cgroup=unit)
        for family, address, port, inode, v6only in (
            (Family.IPV4, "127.0.0.1", 21002, 82687, False),
            (Family.IPV4, "127.0.0.1", 21002, 82686, False),
            (Family.IPV4, "127.0.0.1", 21003, 82688, False),
            (Family.IPV4, "0.0.0.0", 21001, 82685, False),  # noqa: S104
            (Family.IPV6, "::ffff:127.0.0.1", 21007, 82692, False),
            (Family.IPV6, "::", 21004, 82689, False),
            (Family.IPV6, "::", 21005, 82690, True),
            (Family.IPV6, "::1", 21006, 82691, True),
            (Family.IPV6, "fe80::fc:ff:fe00:1", 21008, 82694, True),
        )
    )
    assert [(found.state, found.peer) for found in sslines.parse_sockets(text) if found.state != "LISTEN"] == [
        ("CLOSE-WAIT", "127.0.0.1:21011"),
        ("ESTAB", "127.0.0.1:21001"),
        ("TIME-WAIT", "127.0.0.1:21001"),
        ("FIN-WAIT-1", "127.0.0.1:21001"),
        ("ESTAB", "127.0.0.1:21009"),
    ]


@pytest.mark.parametrize(
    ("extras", "inode", "cgroup"),
    [
        ("ino:5 sk:1 cgroup:unreachable:1b <-> cgroup:unreachable:1b", 5, ""),  # the cgroup is gone, its socket is not
        ("ino:5 sk:1 <->", 5, ""),  # a kernel without cgroups
        ("uid:1000 ino:5 sk:1 cgroup:/a.service v6only:0 <->", 5, "/a.service"),
        ("", 0, ""),
    ],
)
def test_what_ss_cannot_tell_is_left_empty(extras: str, inode: int, cgroup: str) -> None:
    (found,) = sslines.parse_ss(f"LISTEN 0 128 0.0.0.0:30001 0.0.0.0:* {extras}\n")

    assert (found.inode, found.cgroup) == (inode, cgroup)
