"""HTTP to an engine on this host, straight to the socket. Says what was answered, not what it means."""

import http.client
import io
import json
import queue
import socket
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from urllib.parse import urlsplit

BODY_LIMIT = 4 * 1024 * 1024

WILDCARDS = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1", "[::]": "::1"}  # noqa: S104 -- not bound, replaced


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back, after `seconds`. `status` is None when no whole answer came; `error` says why then."""

    status: int | None
    body: bytes = b""
    seconds: float = 0.0
    error: str = ""

    def json(self) -> object:
        """The body as JSON; None when it is none."""
        try:
            return json.loads(self.body)
        except ValueError:
            return None


class _Deadline(io.RawIOBase):
    """A socket as a file with one deadline for the whole; with one for each read a dripping server never ends."""

    def __init__(self, connection: socket.socket, end: float) -> None:
        super().__init__()
        self._connection, self._end = connection, end

    def readable(self) -> bool:  # type: ignore[explicit-override]  # typing.override is newer than Python 3.11
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[explicit-override,override]
        self._connection.settimeout(_left(self._end))
        return self._connection.recv_into(buffer)

    def makefile(self, _mode: str) -> io.BufferedReader:
        """What http.client asks a socket for."""
        return io.BufferedReader(self)


@dataclass(frozen=True, slots=True)
class _Request:
    method: str
    url: str
    key: str
    payload: bytes | None = None

    @property
    def address(self) -> tuple[str, int]:
        parts = urlsplit(self.url)
        return parts.hostname or "", parts.port or 80

    @property
    def text(self) -> bytes:
        """The whole request as it goes out."""
        parts, payload = urlsplit(self.url), self.payload
        lines = [
            f"{self.method} {parts.path or '/'}{'?' + parts.query if parts.query else ''} HTTP/1.1",
            f"Host: {parts.netloc}",
        ]
        lines += ["Connection: close", "Accept: */*", "User-Agent: dsv4ctl"]
        lines += [f"Authorization: Bearer {self.key}"] if self.key else []
        lines += [] if payload is None else ["Content-Type: application/json", f"Content-Length: {len(payload)}"]
        return "\r\n".join([*lines, "", ""]).encode() + (payload or b"")


class Pending:
    """A POST under way in a thread: its answer may be waited for now and then, and it can be given up.

    Never raises for what the other side does.
    """

    def __init__(self, url: str, payload: Mapping[str, object], key: str, *, timeout_s: float) -> None:
        self._answers: queue.SimpleQueue[Answer] = queue.SimpleQueue()
        # Of our own: the number of the one that the thread closes may be somebody else's a moment later.
        self._handle: socket.socket | None = None
        self._given_up = threading.Event()
        asked = _Request("POST", url, key, json.dumps(payload).encode())

        def ask() -> None:
            self._answers.put(_ask(asked, timeout_s, self._connected))

        self._thread = threading.Thread(target=ask, daemon=True)
        self._thread.start()

    def answer(self, within_s: float) -> Answer | None:
        """The answer, once; None when there is none within so many seconds."""
        try:
            return self._answers.get(timeout=max(0.0, within_s))
        except queue.Empty:
            return None

    def give_up(self) -> None:
        """Hang up, so that whoever was asked lets go of it, too. Nothing is under way any more when this returns."""
        self._given_up.set()
        self._hang_up()
        self._thread.join()
        if self._handle is not None:
            self._handle.close()

    def _connected(self, connection: socket.socket) -> None:
        self._handle = connection.dup()
        if self._given_up.is_set():
            self._hang_up()

    def _hang_up(self) -> None:
        # The other side may have ended the connection already.
        with suppress(OSError):
            if self._handle is not None:
                self._handle.shutdown(socket.SHUT_RDWR)


def base_url(host: str, port: int) -> str:
    """The URL at which to ask a server that binds `host` on this machine: a wildcard becomes its family's loopback."""
    host = WILDCARDS.get(host, host).strip("[]")
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def get(url: str, key: str = "", *, timeout_s: float) -> Answer:
    """GET a plain http URL; `timeout_s` covers all of it. Never raises for what the other side does.

    Proxy variables are not looked at: hosts export them for model downloads, and a proxy's 503 is not the engine's.
    """
    return _ask(_Request("GET", url, key), timeout_s)


def post(url: str, payload: Mapping[str, object], key: str = "", *, timeout_s: float) -> Answer:
    """POST `payload` as JSON; otherwise like `get`."""
    return _ask(_Request("POST", url, key, json.dumps(payload).encode()), timeout_s)


def delete(url: str, key: str = "", *, timeout_s: float) -> Answer:
    """DELETE; otherwise like `get`."""
    return _ask(_Request("DELETE", url, key), timeout_s)


def _ask(request: _Request, timeout_s: float, connected: Callable[[socket.socket], None] = lambda _: None) -> Answer:
    began = time.monotonic()
    try:
        with socket.create_connection(request.address, timeout_s) as connection:
            connected(connection)
            status, body, error = _exchange(connection, request, began + timeout_s)
    except TimeoutError:
        status, body, error = None, b"", f"no whole answer within {timeout_s:g} s"
    except OSError as failure:
        status, body, error = None, b"", (failure.strerror or str(failure)).lower()
    except http.client.HTTPException as failure:
        status, body, error = None, b"", f"not a whole HTTP answer: {failure or type(failure).__name__}"
    return Answer(status, body, time.monotonic() - began, error)


def _exchange(connection: socket.socket, request: _Request, end: float) -> tuple[int | None, bytes, str]:
    """Send a request, read its answer: status, body and what is wrong with it."""
    connection.settimeout(_left(end))
    connection.sendall(request.text)
    # An HTTPResponse asks its socket for makefile() and nothing else; its annotation wants a whole socket.
    with closing(http.client.HTTPResponse(_Deadline(connection, end), method=request.method)) as response:  # type: ignore[arg-type]
        response.begin()
        body = response.read(BODY_LIMIT)
        if response.length:  # what Content-Length promised and did not come
            return None, body, f"the answer broke off {response.length} bytes before its end"
        cut = len(body) == BODY_LIMIT and response.read(1) != b""
        return response.status, body, f"the answer was cut at {BODY_LIMIT} bytes" if cut else ""


def _left(end: float) -> float:
    """Seconds to the deadline. Raises TimeoutError when it has passed, for a socket takes 0 as "do not wait at all"."""
    if (left := end - time.monotonic()) <= 0:
        raise TimeoutError
    return left
