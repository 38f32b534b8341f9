"""TCP sockets that are bound and neither listen nor are connected, which only netlink tells of (sock_diag(7))."""

import socket
import struct
import sys
from collections.abc import Iterator

from dsv4ctl.model import Family, Listener

NETLINK_SOCK_DIAG = 4
SOCK_DIAG_BY_FAMILY = 20
NLM_F_REQUEST_AND_DUMP = 0x301
NLMSG_ERROR, NLMSG_DONE = 2, 3
# A state of Linux 6.8 and later (TCP_BOUND_INACTIVE); older kernels find no socket in it. Debian 12's `ss` is too old.
BOUND_INACTIVE = 1 << 13

_HEADER = struct.Struct("=IHHII")  # length, type, flags, sequence, port id
_REQUEST = struct.Struct("=BBBxI")  # family, protocol, extensions, states; a socket id follows
_SOCKET_ID = struct.Struct("!HH16s16s12x")  # source port, destination port, source, destination; interface and cookie
_MESSAGE = struct.Struct("=BBBB48sIIIII")  # family, state, timer, retransmits, socket id, expires, queues, uid, inode
_ATTRIBUTE = struct.Struct("=HH")  # length with this header, type; a value of the type below is a u64
CGROUP_ID = 21


def bound(port: int) -> tuple[tuple[Listener, int], ...]:
    """The sockets that have `port` bound without using it, of both families, as listeners that they may become.

    With each comes the id of the cgroup that it was made in (the inode of its folder), 0 when the kernel does not tell.
    Empty on a kernel before 6.8, and where netlink is not to be had.
    """
    try:
        found = [found for family in (socket.AF_INET, socket.AF_INET6) for found in _ask(family, port)]
    except OSError:
        return ()
    # In this state Linux 6.18 does not heed the port of the request.
    return tuple((listener, cgroup) for listener, cgroup in found if listener.port == port)


def _ask(family: int, port: int) -> Iterator[tuple[Listener, int]]:
    body = _REQUEST.pack(family, socket.IPPROTO_TCP, 0, BOUND_INACTIVE) + _SOCKET_ID.pack(port, 0, b"", b"")
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_SOCK_DIAG) as link:
        link.settimeout(2)
        link.send(_HEADER.pack(_HEADER.size + len(body), SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST_AND_DUMP, 1, 0) + body)
        while True:
            for kind, message in _messages(link.recv(65536)):
                if kind in {NLMSG_DONE, NLMSG_ERROR}:
                    return
                yield _read(message), _cgroup_id(message[_MESSAGE.size :])


def _messages(buffer: bytes) -> Iterator[tuple[int, bytes]]:
    while len(buffer) >= _HEADER.size:
        length, kind, *_ = _HEADER.unpack_from(buffer)
        yield kind, buffer[_HEADER.size : length]
        buffer = buffer[(length + 3) & ~3 :]  # messages begin at multiples of four


def _read(message: bytes) -> Listener:
    number, _, _, _, socket_id, *_, inode = _MESSAGE.unpack_from(message)
    port, _, source, _ = _SOCKET_ID.unpack(socket_id)
    is_v4 = number == socket.AF_INET
    address = socket.inet_ntop(number, source[:4] if is_v4 else source)
    return Listener(family=Family.IPV4 if is_v4 else Family.IPV6, address=address, port=port, inode=inode)


def _cgroup_id(attributes: bytes) -> int:
    while len(attributes) >= _ATTRIBUTE.size:
        length, kind = _ATTRIBUTE.unpack_from(attributes)
        if kind == CGROUP_ID:
            return int.from_bytes(attributes[_ATTRIBUTE.size : length], sys.byteorder)
        attributes = attributes[max(_ATTRIBUTE.size, (length + 3) & ~3) :]
    return 0
