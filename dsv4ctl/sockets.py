"""TCP ports as the kernel tells them: who listens, and whether a server could bind. Ends nobody, decides nothing."""

import errno
import os
import socket
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from dsv4ctl import cgroups, child, inetdiag, owners, procs, topology, who
from dsv4ctl.model import Holder, Keeper, Listener, PortView
from dsv4ctl.sslines import Socket, parse_sockets, parse_ss

SS_TIMEOUT_S = 10

# Every address of this machine; "" and "*" as servers and `ss` write it.
WILDCARDS = frozenset({"", "*", "0.0.0.0", "::"})  # noqa: S104 -- compared with, not bound
LOOPBACKS = ("127.0.0.1", "::1")

# The last state of an ended connection, in which the kernel keeps it for a fixed time.
TIME_WAIT, TIME_WAIT_S = "TIME-WAIT", 60


@dataclass(frozen=True, slots=True)
class Taken:
    """Why a port cannot be had, in words, and who keeps it."""

    why: str = ""
    by: Keeper = Keeper.NOBODY


def listeners(port: int | None = None) -> tuple[Listener, ...]:
    """The listeners on a port, or on all. Raises MissingProgram without `ss`."""
    return parse_ss(_ss("-ltnHe", port))


def holders(port: int) -> tuple[Holder, ...]:
    """Who listens on a port: one holder a listening socket, with the processes that have it open.

    Looks at the processes of the socket's own cgroup only, so it takes as long on a busy host as on an idle one; at all
    processes when that cgroup tells nothing or nobody in it has the socket. Processes that may not be looked into are
    left out; the unit still stands, for the kernel names the cgroup to everybody.
    """
    return owners.held(listeners(port))


def holders_on(ports: Iterable[int], others: Iterable[int] = ()) -> tuple[Holder, ...]:
    """The holders of several ports by one question to the kernel, and whatever the pids of `others` listen on."""
    wanted, every = frozenset(ports), listeners()
    rest = {listener.inode: listener for listener in every if listener.port not in wanted}
    having = owners.of(rest, others)
    return (
        *owners.held(listener for listener in every if listener.port in wanted),
        *(owners.holder(rest[inode], pids) for inode, pids in having.items()),
    )


def connections(port: int) -> int:
    """How many connections with clients a server on this port has. Raises MissingProgram without `ss`."""
    return sum(found.state == "ESTAB" for found in parse_sockets(_ss("-tnHe", port)))


def view(host: str, port: int) -> PortView:
    """A port as found, for a server that shall bind `host`. Binds it for an instant: see `blocked`."""
    found = holders(port)
    taken = _taken(host, port, found)
    return PortView(port=port, holders=found, blocked=taken.why, kept_by=taken.by)


def seen(port: int) -> PortView:
    """A port as it can be seen without a bind, which would be in the way of a server that is about to listen.

    What is said to block it may be left of connections that a server with SO_REUSEADDR does not mind.
    """
    found = holders(port)
    taken = _listened(found) if found else _unlistened(port, parse_sockets(_ss("-tanHe", port)), bound_on(port))
    return PortView(port=port, holders=found, blocked=taken.why, kept_by=taken.by)


def blocked(host: str, port: int) -> str:
    """Why a server could not have `port` on `host` for itself now, in words; '' when it could.

    It could not when somebody listens who would be asked in its place, on either address family, or when the kernel
    refuses the bind. What is left of old connections (TIME_WAIT, ESTABLISHED) does not block a server that sets
    SO_REUSEADDR, as the engine does. To find out, the port is bound for an instant: do not ask while the server starts.
    """
    return _taken(host, port, holders(port)).why


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
    if not holder.processes:
        return f"{who.unknown(cgroups.place(holder.listener.cgroup))} that cannot be identified {where}"
    return f"{' and '.join(map(who.words, holder.processes[:3]))} {where}"


def _taken(host: str, port: int, found: tuple[Holder, ...]) -> Taken:
    if ways := {holder: how for holder in found if (how := in_the_way(host, holder))}:
        return Taken("; ".join(ways.values()), _keeper(ways))
    refused = [taken for address in _addresses(host) if (taken := _refused(address, port, host)).why]
    # What passes by itself is not the reason while there is another one.
    return min(refused, key=lambda taken: taken.by is Keeper.KERNEL, default=Taken())


def _keeper(found: Iterable[Holder]) -> Keeper:
    return Keeper.KNOWN if all(holder.processes for holder in found) else Keeper.UNKNOWN


def _listened(found: Iterable[Holder]) -> Taken:
    every = tuple(found)
    return Taken("; ".join(f"{words(holder)} listens on it" for holder in every), _keeper(every))


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


def _refused(address: str, port: int, host: str) -> Taken:
    """Why the kernel refuses a bind; nothing when it does not, or only for one without SO_REUSEADDR."""
    failed = _bind(address, port, reuse=False)
    # What `host` does not name itself is not bound by the server: only who could come to listen there is in its way.
    is_extra = address == "::" or address != _plain(host)
    if failed == errno.EADDRINUSE:
        return _in_use(address, port, is_bound=host in WILDCARDS or not is_extra)
    if not failed or (failed in {errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL} and is_extra):
        return Taken()  # a host without IPv6 has no such port to be taken
    if failed == errno.EADDRNOTAVAIL:
        return Taken(f"{address} is no address of this host")
    return Taken(f"cannot bind {_shown_at(address, port)}: {os.strerror(failed).lower()}")


def _in_use(address: str, port: int, *, is_bound: bool) -> Taken:
    """Nobody was seen listening, yet the bind was refused: by what the port is taken; nothing when it will not matter.

    `is_bound`: the server binds that address.
    """
    found = [one for one in parse_sockets(_ss("-tanHe", port)) if _at(address, one.listener)]
    if appeared := owners.held(one.listener for one in found if one.state == "LISTEN"):
        return _listened(appeared)
    bound = tuple(holder for holder in bound_on(port) if _at(address, holder.listener))
    if not bound and not found:
        return Taken(_bound_words(()), Keeper.UNKNOWN)
    # What is left of old connections does not mind a server that sets SO_REUSEADDR, unless the one before it had not.
    if not bound and not (is_bound and _bind(address, port, reuse=True)):
        return Taken()
    return _unlistened(port, found, bound)


def bound_on(port: int) -> tuple[Holder, ...]:
    """Who has a port bound and does not listen on it; nobody on a kernel before 6.8, which does not tell."""
    return owners.held(replace(found, cgroup=procs.cgroup_of_id(cgroup)) for found, cgroup in inetdiag.bound(port))


def _unlistened(port: int, found: Iterable[Socket], bound: tuple[Holder, ...]) -> Taken:
    """By what a port is taken on which nobody listens: a bound socket, a connection, or the remains of connections."""
    if bound:
        return Taken(_bound_words(bound), _keeper(bound))
    every = tuple(found)
    # A connection without inode is in nobody's hands: TIME_WAIT and what the kernel closes on its own.
    if connected := [one for one in every if one.listener.inode]:
        held = owners.held(one.listener for one in connected[:3])
        return Taken(_connected_words(port, connected, held), _keeper(held))
    return Taken(_remains_words(every), Keeper.KERNEL) if every else Taken()


def _at(address: str, listener: Listener) -> bool:
    """Whether a socket is where a bind of `address` would collide with it."""
    theirs = _plain(listener.address)
    return theirs == address or theirs in WILDCARDS or address in WILDCARDS


def _bound_words(bound: Iterable[Holder]) -> str:
    named = " and ".join(map(words, bound)) or "a process that the kernel does not name"
    return f"{named} has it bound, but does not listen"


def _connected_words(port: int, connected: list[Socket], held: tuple[Holder, ...]) -> str:
    named = " and ".join(map(words, held))
    peers = ", ".join(one.peer for one in connected[:3])
    first, last = ephemeral_range()
    advice = f" (the kernel gives {first} to {last} to outgoing connections)" if first <= port <= last else ""
    return f"nobody listens, but {named} has it in use for a connection with {peers}{advice}"


def _remains_words(found: Iterable[Socket]) -> str:
    states = sorted({one.state for one in found})
    what = "nobody has it, but ended connections of a server that had not set SO_REUSEADDR are"
    if states == [TIME_WAIT]:
        return f"{what} in TIME_WAIT: the kernel lets go in {TIME_WAIT_S} s at most"
    return f"{what} in {' and '.join(state.replace('-', '_') for state in states)}: the kernel lets go by itself"


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
