"""The HTTP port: sockets, keys, and the way from a request to an endpoint and back."""

import contextlib
import http.server
import json
import select
import socket
import threading
from collections.abc import Iterator
from http import HTTPStatus
from typing import cast
from urllib.parse import urlsplit

from . import endpoints, misdeeds, warmup, words
from .endpoints import Answer, Call
from .engine import ClientGone, Engine

BACKLOG = 2048
OPEN_PREFIXES = ("/health", "/ready", "/metrics")
GONE = (BrokenPipeError, ConnectionResetError, TimeoutError, ClientGone)


# IPv6 has four parts.
Address = tuple[str, int] | tuple[str, int, int, int]


class CannotBind(Exception):
    """The HTTP port is taken, or the address is not ours."""


class Site:
    """The listening sockets of a server and the threads that serve them."""

    def __init__(self, engine: Engine) -> None:
        self.listeners = [Listener(engine, *found) for found in _addresses(engine)]
        self.threads = [
            threading.Thread(target=one.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
            for one in self.listeners
        ]
        for thread in self.threads:
            thread.start()

    def close(self) -> None:
        """Close the port; requests under way go on."""
        while self.listeners:
            listener = self.listeners.pop()
            listener.shutdown()
            listener.socket.close()


def _addresses(engine: Engine) -> Iterator[tuple[socket.AddressFamily, Address]]:
    found = socket.getaddrinfo(
        engine.settings["host"] or None, engine.settings["port"], type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    yield from dict.fromkeys((one[0], cast(Address, one[4])) for one in found)


class Listener(http.server.ThreadingHTTPServer):
    """One listening socket."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = BACKLOG

    def __init__(self, engine: Engine, family: socket.AddressFamily, address: Address) -> None:
        self.engine = engine
        self.address_family = family
        super().__init__(address, Handler, bind_and_activate=False)
        if family is socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self.socket.bind(address)
            self.socket.listen(BACKLOG)
        except OSError as error:
            self.socket.close()
            raise CannotBind(misdeeds.bind_error(error, address)) from None

    def get_request(self) -> tuple[socket.socket, object]:  # type: ignore[explicit-override]  # typing.override is newer than Python 3.11
        """Accept only while the event loop runs; until then the kernel accepts, and nobody answers."""
        self.engine.answering.wait()
        return super().get_request()

    def handle_error(self, _request: object, _client_address: object) -> None:  # type: ignore[explicit-override]  # typing.override is newer than Python 3.11
        """Errors of a connection are logged, not printed with a banner."""
        words.say(f"[http_server] Error: {misdeeds.trace()}")


class Handler(http.server.BaseHTTPRequestHandler):
    """One connection."""

    server: Listener
    protocol_version = "HTTP/1.1"
    timeout = 5
    disable_nagle_algorithm = True

    def version_string(self) -> str:  # type: ignore[explicit-override]  # typing.override is newer than Python 3.11
        """The Server header."""
        return "uvicorn"

    def log_message(self, *_words: object) -> None:  # type: ignore[explicit-override]  # typing.override is newer than Python 3.11
        """Nothing: the access line is written with the status."""

    def handle_any(self) -> None:
        """Answer one request."""
        engine = self.server.engine
        engine.calls.add(id(self))
        try:
            self.send(self.answer(engine))
        except GONE:
            self.close_connection = True
        finally:
            engine.calls.discard(id(self))

    do_GET = do_POST = do_PUT = do_DELETE = do_HEAD = do_OPTIONS = handle_any  # noqa: N815

    def answer(self, engine: Engine) -> Answer:
        """The answer of the endpoint, of the key check, or of the router."""
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        engine.answering.wait()
        parts = urlsplit(self.path)
        arrived = (parts.path, self.command)
        engine.arrived[arrived] = engine.arrived.get(arrived, 0) + 1
        warm = self.headers.get(warmup.MARK) == engine.settings.instance
        if not warm and not _allowed(engine, self.command, parts.path, self.headers.get("authorization", "")):
            return Answer(401, {"error": "Unauthorized"})
        call = Call(engine=engine, path=parts.path, query=parts.query, body=body, warm=warm, client_here=self.is_here)
        return endpoints.answer(self.command, call)

    def is_here(self) -> bool:
        """Whether the client still holds its connection."""
        readable, _, _ = select.select([self.connection], [], [], 0)
        with contextlib.suppress(BlockingIOError):
            return not readable or bool(self.connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT))
        return True

    def send(self, answer: Answer) -> None:
        """Write an answer: whole, or in chunks as they come."""
        self.server.engine.answering.wait()
        self.send_response(answer.status)
        self.access(answer.status)
        for name, value in answer.headers:
            self.send_header(name, value)
        if answer.stream is not None:
            self.send_chunks(answer.stream)
            return
        body = answer.body if isinstance(answer.body, bytes) else json.dumps(answer.body).encode()
        if answer.kind:
            self.send_header("content-type", answer.kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def send_chunks(self, stream: Iterator[bytes]) -> None:
        """A body whose length is not known yet."""
        self.send_header("content-type", "text/event-stream; charset=utf-8")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for chunk in stream:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))
        self.wfile.write(b"0\r\n\r\n")

    def access(self, status: int) -> None:
        """The access line, unless its path is excluded."""
        excluded = self.server.engine.settings["uvicorn_access_log_exclude_prefixes"] or ()
        if not self.path.startswith(tuple(excluded)):
            host, port = self.client_address[:2]
            words.access(f'{host}:{port} - "{self.requestline}" {status} {HTTPStatus(status).phrase}')


def _allowed(engine: Engine, method: str, path: str, header: str) -> bool:
    """Whether a request may pass: health, readiness, metrics always; control by the admin key where there is one."""
    if method == "OPTIONS" or path.startswith(OPEN_PREFIXES):
        return True
    if engine.settings.behaviour.status_401:
        return False
    admin = engine.settings["admin_api_key"] if path in endpoints.CONTROL else None
    needed = admin or engine.settings["api_key"]
    kind, _, key = header.partition(" ")
    return not needed or (kind.lower() == "bearer" and key == needed)
