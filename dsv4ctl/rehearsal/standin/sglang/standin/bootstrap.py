"""The bootstrap server of a prefill, in its main process and up before the load: which rank listens where."""

import http.server
import json
import socket
import threading
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from . import misdeeds, words
from .settings import Settings

Rank = tuple[int, int, int, int]
ASKED = ("prefill_dp_rank", "prefill_cp_rank", "target_tp_rank", "target_pp_rank")
ANY: Rank = (-1, -1, -1, -1)
# What the real server tells besides the sizes, for a decode that has not said who it is.
UNKNOWN = ("target_tp_rank", "target_tp_ranks", "target_cp_ranks", "target_pp_ranks", "required_dst_info_num")
TOLD = ("attn_tp_size", "attn_cp_size", "pp_size", "page_size", "kv_cache_dtype", "prefill_http_port")


@dataclass(slots=True)
class Table:
    """Registered ranks; `first` is the first registration, which tells how many there shall be."""

    first: dict[str, Any] = field(default_factory=dict)
    ranks: dict[Rank, dict[str, Any]] = field(default_factory=dict)
    registered: int = 0
    rooms: dict[str, int] = field(default_factory=dict)

    def is_ready(self) -> bool:
        """Whether as many registrations have come as there are ranks; it is not looked whose they are."""
        sizes = [self.first.get(name, 0) for name in ("attn_tp_size", "attn_cp_size", "pp_size", "attn_dp_size")]
        return bool(self.first) and self.registered >= sizes[0] * sizes[1] * sizes[2] * sizes[3]

    def register(self, row: dict[str, Any]) -> None:
        """Take a rank in; one of another engine replaces ours."""
        self.first = self.first or row
        rank = (row["attn_dp_rank"], row["attn_cp_rank"], row["attn_tp_rank"], row["pp_rank"])
        self.ranks[rank] = {"rank_ip": row["rank_ip"], "rank_port": row["rank_port"]}
        self.registered += 1

    def info(self) -> dict[str, Any]:
        """What every decode asks for first."""
        told = {name: self.first[name] for name in TOLD}
        off = dict.fromkeys(("enable_dsa_cache_layer_split", "enable_kv_cache_sharding"), False)
        policy = {"follow_bootstrap_room": True, "decode_allocation_policy": self.first["decode_allocation_policy"]}
        return {**told, "dp_size": self.first["attn_dp_size"], **off, **policy, **dict.fromkeys(UNKNOWN)}


def start(settings: Settings) -> None:
    """Start the server of a prefill. A port that is taken is only logged, and the load goes on."""
    if settings.mode != "prefill":
        return
    host, port = settings["host"], settings["disaggregation_bootstrap_port"]
    try:
        server = Bootstrap(host, port)
    except OSError as error:
        words.say(f"Server error: {misdeeds.bind_error(error, (host, port))}")
        return
    threading.Thread(target=server.serve_forever, daemon=True).start()
    words.say(f"CommonKVBootstrapServer started successfully on {host}:{port}")


class Bootstrap(http.server.ThreadingHTTPServer):
    """The listening socket and the table."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, host: str, port: int) -> None:
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.table = Table()
        super().__init__((host, port), Handler)


class Handler(http.server.BaseHTTPRequestHandler):
    """One connection; nothing is logged, as by the real server."""

    server: Bootstrap
    protocol_version = "HTTP/1.1"
    timeout = 75

    def log_message(self, *_words: object) -> None:  # type: ignore[explicit-override]  # typing.override is newer than Python 3.11
        """Nothing."""

    def handle_any(self) -> None:
        """Answer one request."""
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        parts = urlsplit(self.path)
        status, answer = self.answer(parts.path, dict(parse_qsl(parts.query)), body)
        text = (answer if isinstance(answer, str) else json.dumps(answer)).encode()
        self.send_response(status)
        self.send_header("content-type", "text/plain" if isinstance(answer, str) else "application/json")
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    do_GET = do_POST = do_PUT = do_DELETE = handle_any  # noqa: N815

    def answer(self, path: str, query: dict[str, str], body: bytes) -> tuple[int, Any]:
        """Status and body."""
        table = self.server.table
        match self.command, path:
            case "GET", "/health":
                return 200, "OK"
            case "PUT", "/route":
                table.register(json.loads(body))
                return 200, "OK"
            case "GET", "/route":
                return route(table, query)
            case "POST", "/register_dp_rank":
                asked = json.loads(body)
                table.rooms[str(int(asked["bootstrap_room"]))] = int(asked["dp_rank"])
                return 200, "OK"
            case "POST", "/query_dp_ranks":
                rooms = map(str, json.loads(body)["bootstrap_rooms"])
                return 200, {room: table.rooms[room] for room in rooms if room in table.rooms}
        if path in ("/route", "/health", "/register_dp_rank", "/query_dp_ranks"):
            return 405, "Method not allowed"
        return 404, "404: Not Found"


def route(table: Table, query: dict[str, str]) -> tuple[int, Any]:
    """Where a rank listens; with every rank -1, what the prefill is like once all its ranks are registered."""
    if not all(query.get(name) for name in ASKED):
        return 400, "Missing inputs for bootstrap server."
    if not table.is_ready():
        return 503, f"Prefill server not fully registered yet ({table.registered} workers registered)."
    dp, cp, tp, pp = (int(query[name]) for name in ASKED)
    if (dp, cp, tp, pp) == ANY:
        return 200, table.info()
    if (found := table.ranks.get((dp, cp, tp, pp))) is None:
        ranks = f"dp_rank={dp} cp_rank={cp} tp_rank={tp} pp_rank={pp}"
        return 404, f"Bootstrap info not found for {ranks}"
    return 200, found
