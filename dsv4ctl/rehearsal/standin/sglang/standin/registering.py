"""How the ranks of a prefill become known: each listens for decodes and registers with the bootstrap server."""

import http.client
import importlib.util
import json
import os
import socket
import threading
import time
from typing import Any

from . import misdeeds, words
from .settings import Settings

TRIES = 5

_listeners: dict[int, socket.socket] = {}


def listen(settings: Settings, rank: int) -> socket.socket:
    """The socket of a rank for the other side of its pair, the same one for every call; it stays for life.

    Raises SchedulerFailed when the module is missing that would move the KV, which the real engine finds only now.
    """
    if rank not in _listeners:
        need_module(settings["disaggregation_transfer_backend"])
        _listeners[rank] = socket.create_server((address(), 0), family=_family())
    return _listeners[rank]


def need_module(backend: str) -> None:
    """Raise SchedulerFailed unless a backend's module can be found."""
    if backend in ("nixl", "mooncake") and importlib.util.find_spec(backend) is None:
        name = {"nixl": "NIXL", "mooncake": "mooncake"}[backend]
        raise misdeeds.SchedulerFailed(f"ImportError: Please install {name} by following the instructions at its site")


def address() -> str:
    """The address that is announced."""
    return os.environ.get("SGLANG_HOST_IP") or os.environ.get("HOST_IP") or "127.0.0.1"


def _family() -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in address() else socket.AF_INET


def register(settings: Settings, rank: int) -> None:
    """Make a rank known; a decode's ranks only listen. Whoever answers on the bootstrap port gets the registration."""
    if settings.mode == "null":
        return
    port = listen(settings, rank).getsockname()[1]
    if settings.mode == "decode":
        return
    if late_s := settings.behaviour.register_late_s:
        timer = threading.Timer(late_s, _register, (settings, rank, port))
        timer.daemon = True
        timer.start()
    else:
        _register(settings, rank, port)


def _register(settings: Settings, rank: int, port: int) -> None:
    """Try five times, as the real engine does, and go on without."""
    for attempt in range(TRIES):
        problem = _put(settings, _row(settings, rank, port))
        if not problem:
            return
        words.say(f"Prefill register attempt {attempt + 1}/{TRIES} failed: {problem}")
        if attempt + 1 < TRIES:
            time.sleep(2**attempt)
    words.say(f"Prefill instance failed to register to bootstrap server after {TRIES} retries")


def _put(settings: Settings, row: dict[str, Any]) -> str:
    """What went wrong, or ''."""
    host, _port = settings.url
    connection = http.client.HTTPConnection(host, settings["disaggregation_bootstrap_port"], timeout=5)
    try:
        connection.request("PUT", "/route", json.dumps(row), {"content-type": "application/json"})
        answer = connection.getresponse()
        answer.read()
        return "" if answer.status == 200 else f"status {answer.status}"
    except (OSError, http.client.HTTPException) as error:
        return str(error)
    finally:
        connection.close()


def _row(settings: Settings, rank: int, port: int) -> dict[str, Any]:
    return {
        "attn_tp_size": settings.tp,
        "attn_tp_rank": rank,
        "attn_cp_size": 1,
        "attn_cp_rank": 0,
        "attn_dp_size": 1,
        "attn_dp_rank": 0,
        "pp_size": 1,
        "pp_rank": 0,
        "system_dp_size": 1,
        "system_dp_rank": 0,
        "rank_ip": address(),
        "rank_port": port,
        "page_size": settings["page_size"] or 1,
        "kv_cache_dtype": settings["kv_cache_dtype"],
        "load_balance_method": "follow_bootstrap_room",
        "prefill_http_port": settings["port"],
        "decode_allocation_policy": "early",
    }
