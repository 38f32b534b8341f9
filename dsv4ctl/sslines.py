"""Lines of `ss` -> sockets, in its words (ss(8)). Pure; asks nobody."""

import re
from dataclasses import dataclass

from dsv4ctl.model import Family, Listener

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
