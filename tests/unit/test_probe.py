"""HTTP probes against real servers on loopback, most of them bad ones."""

import json
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest

from dsv4ctl import probe

Reply = Callable[[socket.socket], None]


class Server:
    """A server on loopback that reads one request a connection and then does what `reply` does."""

    def __init__(self, reply: Reply, family: socket.AddressFamily = socket.AF_INET) -> None:
        self.reply = reply
        self.requests: list[bytes] = []
        self.listening = socket.create_server(("localhost" if family == socket.AF_INET else "::1", 0), family=family)
        self.port: int = self.listening.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def url(self, path: str = "/", host: str = "127.0.0.1") -> str:
        return probe.base_url(host, self.port) + path

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self.listening.accept()
                with connection:
                    self.requests.append(connection.recv(65536))
                    with suppress(OSError):
                        self.reply(connection)

    def close(self) -> None:
        # A thread in accept() is not woken by close().
        self.listening.shutdown(socket.SHUT_RDWR)
        self.listening.close()


@contextmanager
def serving(reply: Reply | bytes, family: socket.AddressFamily = socket.AF_INET) -> Iterator[Server]:
    server = Server((lambda connection: connection.sendall(reply)) if isinstance(reply, bytes) else reply, family)
    try:
        yield server
    finally:
        server.close()


def answer(status: str, body: bytes) -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


OK = answer("200 OK", b'{"ok": true}')


def test_an_answer_is_its_status_and_its_body() -> None:
    with serving(OK) as server:
        found = probe.get(server.url("/ready?x=1"), timeout_s=5)

    assert (found.status, found.body, found.error) == (200, b'{"ok": true}', "")
    assert found.json() == {"ok": True}
    assert 0 < found.seconds < 5
    assert server.requests[0].startswith(b"GET /ready?x=1 HTTP/1.1\r\n")
    assert f"Host: 127.0.0.1:{server.port}\r\n".encode() in server.requests[0]


def test_a_post_carries_its_json_and_its_key() -> None:
    with serving(OK) as server:
        probe.post(server.url("/generate"), {"text": "hé", "n": 1}, "sk-secret", timeout_s=5)

    head, body = server.requests[0].split(b"\r\n\r\n")
    assert b"Authorization: Bearer sk-secret" in head
    assert b"Content-Type: application/json" in head
    assert json.loads(body) == {"text": "hé", "n": 1}


def test_no_key_means_no_authorization() -> None:
    with serving(OK) as server:
        probe.get(server.url(), timeout_s=5)

    assert b"Authorization" not in server.requests[0]


@pytest.mark.parametrize("status", [401, 404, 500, 503, 302])
def test_an_unfriendly_status_is_an_answer_too(status: int) -> None:
    with serving(
        f"HTTP/1.1 {status} X\r\nLocation: http://127.0.0.1:9/\r\nContent-Length: 2\r\n\r\nno".encode()
    ) as server:
        found = probe.get(server.url(), timeout_s=5)

    assert (found.status, found.body, found.error) == (status, b"no", "")


@pytest.mark.parametrize("name", ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"])
def test_a_proxy_of_the_environment_is_not_asked(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(answer("503 Service Unavailable", b"proxy")) as proxy, serving(OK) as server:
        monkeypatch.setenv(name, proxy.url())
        monkeypatch.delenv("NO_PROXY", raising=False)

        found = probe.get(server.url(), timeout_s=5), probe.post(server.url(), {}, timeout_s=5)

    assert [one.status for one in found] == [200, 200]
    assert proxy.requests == []


def test_a_chunked_answer_is_put_together() -> None:
    with serving(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n") as server:
        assert probe.get(server.url(), timeout_s=5).body == b"abcde"


def test_an_answer_without_a_length_ends_with_the_connection() -> None:
    with serving(b"HTTP/1.0 200 OK\r\n\r\nabc") as server:
        assert probe.get(server.url(), timeout_s=5).body == b"abc"


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc", "broke off 7 bytes before its end"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab", "not a whole HTTP answer"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "not a whole HTTP answer"),
        (b"HTTP/1.1 two hundred\r\n\r\n", "not a whole HTTP answer"),
        (b"", "remote end closed connection without response"),
        (b"HTTP/1.1 200 OK\r\nA: " + b"x" * 100_000, "not a whole HTTP answer"),
    ],
)
def test_half_an_answer_is_none_and_says_so(reply: bytes, words: str) -> None:
    with serving(reply) as server:
        found = probe.get(server.url(), timeout_s=5)

    assert found.status is None
    assert re.search(words, found.error)


def test_nobody_there_is_connection_refused() -> None:
    with serving(OK) as server:
        url = server.url()

    found = probe.get(url, timeout_s=5)

    assert (found.status, found.error) == (None, "connection refused")


def test_a_server_that_takes_the_connection_and_never_answers_costs_the_timeout_and_no_more() -> None:
    over = threading.Event()

    def wait(_: socket.socket) -> None:
        over.wait(10)

    with serving(wait) as server:
        found = probe.get(server.url(), timeout_s=0.3)
    over.set()

    assert (found.status, found.error) == (None, "no whole answer within 0.3 s")
    assert 0.3 <= found.seconds < 2


def test_a_server_that_drips_cannot_hold_us_beyond_the_timeout() -> None:
    def drip(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
        for _ in range(100):
            connection.sendall(b"x")
            time.sleep(0.05)

    with serving(drip) as server:
        found = probe.get(server.url(), timeout_s=0.4)

    assert (found.status, found.error) == (None, "no whole answer within 0.4 s")
    assert found.seconds < 2


def test_a_head_that_drips_cannot_hold_us_either() -> None:
    def drip(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\n")
        for number in range(90):
            connection.sendall(f"X-{number}: y\r\n".encode())
            time.sleep(0.05)

    with serving(drip) as server:
        assert probe.get(server.url(), timeout_s=0.4).seconds < 2


def test_an_endless_answer_is_cut_at_the_limit() -> None:
    def pour(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            connection.sendall(b"x" * 65536)

    with serving(pour) as server:
        found = probe.get(server.url(), timeout_s=20)

    assert (found.status, len(found.body)) == (200, probe.BODY_LIMIT)
    assert found.error == "the answer was cut at 4194304 bytes"


def test_an_answer_of_just_the_limit_is_whole() -> None:
    with serving(answer("200 OK", b"x" * probe.BODY_LIMIT)) as server:
        found = probe.get(server.url(), timeout_s=20)

    assert (len(found.body), found.error) == (probe.BODY_LIMIT, "")


def test_ipv6_is_asked_like_ipv4() -> None:
    with serving(OK, socket.AF_INET6) as server:
        assert probe.get(server.url(host="::"), timeout_s=5).status == 200


def test_a_body_that_is_no_json_is_none() -> None:
    assert probe.Answer(200, b"<html>").json() is None
    assert probe.Answer(200, b"\xff").json() is None


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:30001"),
        ("0.0.0.0", "http://127.0.0.1:30001"),  # noqa: S104 -- not bound
        ("", "http://127.0.0.1:30001"),
        ("10.0.0.5", "http://10.0.0.5:30001"),
        ("::", "http://[::1]:30001"),
        ("[::]", "http://[::1]:30001"),
        ("::1", "http://[::1]:30001"),
        ("[fd00::5]", "http://[fd00::5]:30001"),
        ("localhost", "http://localhost:30001"),
    ],
)
def test_a_wildcard_is_asked_on_the_loopback_of_its_family(host: str, url: str) -> None:
    assert probe.base_url(host, 30001) == url


def test_a_request_that_is_given_up_is_hung_up_and_nothing_of_it_is_under_way_any_more() -> None:
    heard: list[bytes] = []
    over = threading.Event()

    def until_hung_up(connection: socket.socket) -> None:
        heard.append(connection.recv(1))
        over.set()

    with serving(until_hung_up) as server:
        pending = probe.Pending(server.url("/v1/completions"), {"prompt": "hi"}, "", timeout_s=600)
        assert pending.answer(0.3) is None
        pending.give_up()
        assert over.wait(30)
        found = pending.answer(0)

    assert heard == [b""]
    assert found is not None
    assert found.status is None


def test_a_request_that_was_answered_may_be_given_up_as_well() -> None:
    with serving(OK) as server:
        pending = probe.Pending(server.url("/v1/completions"), {"prompt": "hi"}, "k1", timeout_s=30)
        found = pending.answer(30)
        pending.give_up()

    assert found is not None
    assert found.json() == {"ok": True}
    assert b"Authorization: Bearer k1" in server.requests[0]


def test_nobody_there_is_an_answer_that_says_so_also_when_it_is_given_up() -> None:
    pending = probe.Pending("http://127.0.0.1:1/v1/completions", {}, "", timeout_s=30)
    found = pending.answer(30)
    pending.give_up()

    assert found is not None
    assert "refused" in found.error
