"""TCP ports as the kernel tells them: who listens, and whether a server could bind. Ends nobody, decides nothing."""

import errno
import os
import re
import socket
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from dsv4ctl import census, child, inetdiag, procs, topology
from dsv4ctl.model import Family, Holder, Listener, PortView, Process

SS_TIMEOUT_S = 10

# Every address of this machine; "" and "*" as servers and `ss` write it.
WILDCARDS = frozenset({"", "*", "0.0.0.0", "::"})  # noqa: S104 -- compared with, not bound
LOOPBACKS = ("127.0.0.1", "::1")

# A cgroup that tells nothing of the owner: everybody's, or systemd's own, which makes sockets for others to inherit.
TELLS_NOTHING = frozenset({"", "/", "/init.scope"})

IN_TIME_WAIT = (
    "connections of a server that had not set SO_REUSEADDR are in TIME_WAIT: the kernel lets go in 60 s at most"
)

_INODE = re.compile(r"\bino:(\d+)")
_V6ONLY = re.compile(r"\bv6only:1\b")
# ss writes "cgroup:PATH" among other fields, each "word:value"; a path of systemd's has no spaces (it writes \x20).
_CGROUP = re.compile(r"\bcgroup:(/\S*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Socket:
    """A TCP socket in any state, in the words of `ss`: LISTEN, ESTAB, TIME-WAIT, …"""

    state: str
    listener: Listener
    peer: str


def parse_ss(text: str) -> tuple[Listener, ...]:
    """The listeners in the output of `ss -tanHe --cgroup` or `ss -ltnHe --cgroup`."""
    return tuple(found.listener for found in parse_sockets(text) if found.state == "LISTEN")


def parse_sockets(text: str) -> tuple[Socket, ...]:
    """All sockets in the output of `ss -tanHe --cgroup`."""
    return tuple(_parse_line(line) for line in text.splitlines() if line.strip())


def _parse_line(line: str) -> Socket:
    state, _, _, local, peer, *_ = line.split()
    address, port = local.rsplit(":", 1)
    # "127.0.0.1%lo" and "[fe80::1]%eth0" are bound to an interface, which hides them from nobody on this host.
    address = address.split("%", 1)[0].strip("[]")
    family = Family.IPV6 if ":" in address or address == "*" else Family.IPV4
    inode, cgroup = _INODE.search(line), _CGROUP.search(line)
    listener = Listener(
        family=family,
        address="::" if address == "*" else address,
        port=int(port),
        inode=int(inode.group(1)) if inode else 0,
        v6only=bool(_V6ONLY.search(line)),
        cgroup=cgroup.group(1) if cgroup else "",
    )
    return Socket(state=state, listener=listener, peer=peer)


def listeners(port: int | None = None) -> tuple[Listener, ...]:
    """The listeners on a port, or on all. Raises MissingProgram without `ss`."""
    return parse_ss(_ss("-ltnHe", port))


def holders(port: int) -> tuple[Holder, ...]:
    """Who listens on a port: one holder a listening socket, with the processes that have it open.

    Looks at the processes of the socket's own cgroup only, so it takes as long on a busy host as on an idle one; at all
    processes when that cgroup tells nothing or nobody in it has the socket. Processes that may not be looked into are
    left out; the unit still stands, for the kernel names the cgroup to everybody.
    """
    return _held(listeners(port))


def holders_on(ports: Iterable[int], others: Iterable[int] = ()) -> tuple[Holder, ...]:
    """The holders of several ports by one question to the kernel, and whatever the pids of `others` listen on."""
    wanted, every = frozenset(ports), listeners()
    rest = {listener.inode: listener for listener in every if listener.port not in wanted}
    owners = _owners(rest, others)
    return (
        *_held(listener for listener in every if listener.port in wanted),
        *(_holder(rest[inode], pids) for inode, pids in owners.items()),
    )


def connections(port: int) -> int:
    """How many connections with clients a server on this port has. Raises MissingProgram without `ss`."""
    return sum(found.state == "ESTAB" for found in parse_sockets(_ss("-tnHe", port)))


def view(host: str, port: int) -> PortView:
    """A port as found, for a server that shall bind `host`. Binds it for an instant: see `blocked`."""
    found = holders(port)
    why = _blocked(host, port, found)
    return PortView(port=port, holders=found, blocked=why, passes=why == IN_TIME_WAIT)


def blocked(host: str, port: int) -> str:
    """Why a server could not have `port` on `host` for itself now, in words; '' when it could.

    It could not when somebody listens who would be asked in its place, on either address family, or when the kernel
    refuses the bind. What is left of old connections (TIME_WAIT, ESTABLISHED) does not block a server that sets
    SO_REUSEADDR, as the engine does. To find out, the port is bound for an instant: do not ask while the server starts.
    """
    return _blocked(host, port, holders(port))


def ephemeral_range() -> tuple[int, int]:
    """The first and the last port that the kernel gives to outgoing connections, of both families."""
    first, last = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()
    return int(first), int(last)


def reserved_ports() -> frozenset[int]:
    """The ports that the kernel keeps out of its choice for outgoing connections (ip_local_reserved_ports)."""
    return frozenset(topology.parse_list(Path("/proc/sys/net/ipv4/ip_local_reserved_ports").read_text()))


def words(holder: Holder) -> str:
    """A holder in words: who it is, since when, on which address; or that it cannot be told."""
    where = f"on {_shown(holder.listener)}"
    unit = f" of {holder.unit}" if holder.unit else ""
    if not holder.processes:
        return f"a process{unit} that cannot be identified {where}"
    return f"{' and '.join(_process_words(process) for process in holder.processes[:3])}{unit} {where}"


def _process_words(process: Process) -> str:
    since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(process.started_at))
    return f"pid {process.pid} ({process.comm}, user {process.user}, since {since})"


def _held(found: Iterable[Listener]) -> tuple[Holder, ...]:
    every = tuple(found)
    owners: dict[int, tuple[int, ...]] = {}
    for cgroup in {listener.cgroup for listener in every} - TELLS_NOTHING:
        inodes = {listener.inode for listener in every if listener.cgroup == cgroup}
        owners |= _owners(inodes, procs.cgroup_pids(cgroup))
    if missing := {listener.inode for listener in every} - owners.keys() - {0}:
        owners |= _owners(missing, procs.pids())
    return tuple(_holder(listener, owners.get(listener.inode, ())) for listener in every)


def _holder(listener: Listener, pids: Iterable[int]) -> Holder:
    processes = tuple(filter(None, map(procs.read, pids)))
    # An inherited socket belongs to whoever has it now, not to the cgroup it was made in (socket units: that of pid 1).
    cgroups = [process.cgroup for process in processes if process.pid != 1] or [listener.cgroup]
    return Holder(listener=listener, processes=processes, unit=procs.unit_of_cgroup(cgroups[0]))


def _owners(inodes: Iterable[int], pids: Iterable[int]) -> dict[int, tuple[int, ...]]:
    """The pids among `pids` that have one of these sockets open, by inode; an inode that nobody has is left out."""
    links = {f"socket:[{inode}]": inode for inode in inodes}
    found: dict[int, set[int]] = {}
    for pid in pids:
        for link in census.open_files(pid):
            if inode := links.get(link):
                found.setdefault(inode, set()).add(pid)
    return {inode: tuple(sorted(holding)) for inode, holding in found.items()}


def _blocked(host: str, port: int, found: tuple[Holder, ...]) -> str:
    if taken := [how for holder in found if (how := in_the_way(host, holder))]:
        return "; ".join(taken)
    return next((why for address in _addresses(host) if (why := _refused(address, port, host))), "")


def in_the_way(host: str, holder: Holder) -> str:
    """How a listener is in the way of a server on `host`; '' when it is not."""
    address = _plain(holder.listener.address)
    dual = address == "::" and not holder.listener.v6only
    mine = "127.0.0.1" if host == "localhost" else _plain(host)
    if mine in WILDCARDS or address == mine:
        return f"{words(holder)} listens on it"
    if address in WILDCARDS and (dual or (":" in address) == (":" in mine)):
        return f"{words(holder)} listens on every address"
    # `localhost` is ::1 before it is 127.0.0.1, so clients of one family would reach another program than the others.
    if {mine, address} == {*LOOPBACKS} or (mine in LOOPBACKS and address in WILDCARDS):
        return f"{words(holder)} listens where `localhost` leads to as well: some clients would reach it instead"
    return ""


def _plain(address: str) -> str:
    """An address as the kernel would write it, without brackets; an IPv4 one that is written as IPv6 as what it is."""
    address = address.strip("[]")
    with suppress(OSError):  # no IPv6 address
        address = socket.inet_ntop(socket.AF_INET6, socket.inet_pton(socket.AF_INET6, address.split("%")[0]))
    return address.removeprefix("::ffff:")


def _addresses(host: str) -> tuple[str, ...]:
    """What to bind to know whether a server on `host` could: for a wildcard both families, whichever it names.

    And for one loopback both, as for `in_the_way`: `localhost` leads to either.
    """
    if host in WILDCARDS:
        return ("0.0.0.0", "::")  # noqa: S104 -- bound for an instant, never listened on
    mine = "127.0.0.1" if host == "localhost" else _plain(host)
    return tuple(dict.fromkeys((mine, *LOOPBACKS))) if mine in LOOPBACKS else (mine,)


def _refused(address: str, port: int, host: str) -> str:
    """Why the kernel refuses a bind, in words; '' when it does not, or only for one without SO_REUSEADDR."""
    failed = _bind(address, port, reuse=False)
    # What `host` does not name itself is not bound by the server: only who could come to listen there is in its way.
    is_extra = address == "::" or address != _plain(host)
    if failed == errno.EADDRINUSE:
        return _in_use(address, port, is_bound=host in WILDCARDS or not is_extra)
    if not failed or (failed in {errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL} and is_extra):
        return ""  # a host without IPv6 has no such port to be taken
    if failed == errno.EADDRNOTAVAIL:
        return f"{address} is no address of this host"
    return f"cannot bind {_shown_at(address, port)}: {os.strerror(failed).lower()}"


def _in_use(address: str, port: int, *, is_bound: bool) -> str:
    """Nobody was seen listening, yet the bind was refused: by what the port is taken; '' when that will not matter.

    `is_bound`: the server binds that address.
    """
    seen = [found for found in parse_sockets(_ss("-tanHe", port)) if _at(address, found.listener)]
    if appeared := _held(found.listener for found in seen if found.state == "LISTEN"):
        return "; ".join(f"{words(holder)} listens on it" for holder in appeared)
    bound = _held(
        replace(found, cgroup=procs.cgroup_of_id(cgroup))
        for found, cgroup in inetdiag.bound(port)
        if _at(address, found)
    )
    if bound or not seen:
        return _bound_words(bound)
    # What is left of old connections does not mind a server that sets SO_REUSEADDR, unless the one before it had not.
    return _connected_words(port, seen) if is_bound and _bind(address, port, reuse=True) else ""


def _at(address: str, listener: Listener) -> bool:
    """Whether a socket is where a bind of `address` would collide with it."""
    theirs = _plain(listener.address)
    return theirs == address or theirs in WILDCARDS or address in WILDCARDS


def _bound_words(bound: Iterable[Holder]) -> str:
    who = " and ".join(words(holder) for holder in bound) or "a process that the kernel does not name"
    return f"{who} has it bound, but does not listen"


def _connected_words(port: int, seen: Iterable[Socket]) -> str:
    # A connection without inode is in nobody's hands: TIME_WAIT and what the kernel closes on its own.
    connected = [found for found in seen if found.listener.inode]
    if not connected:
        return IN_TIME_WAIT
    who = " and ".join(map(words, _held(found.listener for found in connected[:3])))
    peers = ", ".join(found.peer for found in connected[:3])
    first, last = ephemeral_range()
    advice = f" (the kernel gives {first} to {last} to outgoing connections)" if first <= port <= last else ""
    return f"nobody listens, but {who} has it in use for a connection with {peers}{advice}"


def _bind(address: str, port: int, *, reuse: bool) -> int:
    """The error number of a bind, 0 when it was granted; it is let go at once."""
    try:
        with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, reuse)
            if ":" in address:
                trial.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            trial.bind((address, port))
    except socket.gaierror:
        return errno.EADDRNOTAVAIL  # a name that leads nowhere
    except OSError as error:
        return error.errno or errno.EIO
    return 0


def _shown(listener: Listener) -> str:
    return _shown_at(listener.address, listener.port)


def _shown_at(address: str, port: int) -> str:
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def _ss(flags: str, port: int | None) -> str:
    narrowed = [] if port is None else [f"sport = :{port}"]
    return child.run(["ss", flags, "--cgroup", *narrowed], timeout_s=SS_TIMEOUT_S).stdout
