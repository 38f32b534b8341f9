"""What a router says of the engines behind it, from its /workers. Knows sglang-router's words; recorded with 0.3.2."""

import json
from collections.abc import Iterable
from dataclasses import dataclass

from dsv4ctl.engine.router import bracketed
from dsv4ctl.model import Peer


@dataclass(frozen=True, slots=True)
class Workers:
    """The URLs that a router sends to, and which of them it thinks well of."""

    known: frozenset[str]
    healthy: frozenset[str]


def parse(body: bytes) -> Workers | None:
    """Read /workers; None when it is none."""
    try:
        listed = json.loads(body)["workers"]
        healthy = frozenset(str(one["url"]) for one in listed if one["is_healthy"])
        return Workers(known=frozenset(str(one["url"]) for one in listed), healthy=healthy)
    except (ValueError, KeyError, TypeError):
        return None


def ids(body: bytes) -> dict[str, str] | None:
    """Read from /workers by which id the router knows each URL, healthy or not; None when it is none."""
    try:
        return {str(one["url"]): str(one["id"]) for one in json.loads(body)["workers"]}
    except (ValueError, KeyError, TypeError):
        return None


def url(peer: Peer) -> str:
    """Where a router has been told that a worker is."""
    return f"http://{bracketed(peer.host)}:{peer.port}"


def missing(peers: Iterable[Peer], seen: Workers) -> tuple[Peer, ...]:
    """The workers that a router should send to and does not."""
    return tuple(peer for peer in peers if url(peer) not in seen.healthy)


def strange(peers: Iterable[Peer], seen: Workers) -> tuple[str, ...]:
    """Addresses that a router sends to and that nobody asked for."""
    return tuple(sorted(seen.known - {url(peer) for peer in peers}))
