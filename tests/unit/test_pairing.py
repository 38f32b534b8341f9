"""The probe of a pair against small servers that stand for a prefill, a decode and the router between them."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from typing_extensions import override

from dsv4ctl import pair, pairing
from dsv4ctl.clock import RealClock
from dsv4ctl.model import Instance, Role
from dsv4ctl.pair import Judged, PairVerdict
from tests import releases

NONCE = "k7-3f9a51"
Reply = Callable[[str, dict[str, object]], tuple[int, str]]


@contextmanager
def serving(reply: Reply) -> Iterator[int]:
    """A server on loopback that answers path and body with status and text; its port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            size = int(self.headers.get("Content-Length") or 0)
            status, text = reply(self.path, json.loads(self.rfile.read(size) or b"{}"))
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text.encode())

        do_POST = do_GET  # noqa: N815 -- the name that http.server calls

        @override
        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()


@dataclass
class Engine:
    """A half: what it counts, and what it has in hand. A bare generate is recorded, as it would end a real prefill."""

    arrived: int = 1
    finished: int = 1
    meeting: int = 0
    handing: int = 0
    status: dict[str, int] = field(default_factory=dict)
    bare: list[str] = field(default_factory=list)

    def reply(self, path: str, body: dict[str, object]) -> tuple[int, str]:
        path = path.partition("?")[0]
        if body:
            self.bare.append(path)
        texts = {"/metrics": self._metrics(), "/v1/loads": self._loads()}
        return self.status.get(path, 200), texts.get(path, "")

    def _metrics(self) -> str:
        arrived = f'sglang:http_requests_total{{endpoint="/v1/completions",method="POST"}} {self.arrived}\n'
        return f'{arrived}sglang:num_requests_total{{model_name="dsv4"}} {self.finished}\n'

    def _loads(self) -> str:
        none = dict.fromkeys(("prefill_inflight_queue_reqs", "decode_prealloc_queue_reqs"), 0)
        queues = none | {"prefill_bootstrap_queue_reqs": self.meeting, "decode_transfer_queue_reqs": self.handing}
        return json.dumps({"loads": [{"num_running_reqs": 0, "num_waiting_reqs": 0, "disaggregation": queues}]})


@dataclass
class Router:
    """What it passes on to the halves, and what it answers; `stuck` until the test is over."""

    prefill: Engine
    decode: Engine
    text: str = f"{NONCE} 80"
    ready: int = 200
    sends: bool = True
    answers: bool = True
    over: threading.Event = field(default_factory=threading.Event)

    def reply(self, path: str, _body: dict[str, object]) -> tuple[int, str]:
        if path == "/readiness":
            return self.ready, ""
        if self.sends:
            self.prefill.arrived += 1
            self.decode.arrived += 1
        if not self.answers:
            self.over.wait(20)
        # The halves count it a moment after the answer has gone out.
        if self.sends:
            threading.Timer(0.1, self._count).start()
        return 200, json.dumps({"choices": [{"text": self.text}]})

    def _count(self) -> None:
        self.prefill.finished += 1
        self.decode.finished += 1


@dataclass
class Host:
    """A pair, and its instances at the ports where it really is."""

    prefill: Engine
    decode: Engine
    router: Router
    found: pairing.Pair

    def judged(self) -> Judged:
        return pair.judge(pairing.look(self.found, NONCE, "", RealClock(), limit_s=0.5))


@pytest.fixture
def host() -> Iterator[Host]:
    prefill, decode = Engine(), Engine()
    router = Router(prefill, decode)
    made = {one.role: one for one in releases.render(releases.spec("pd")).instances}
    with ExitStack() as stack:
        ports = [stack.enter_context(serving(one.reply)) for one in (prefill, decode, router)]
        found = pairing.of((replace(made[Role.ROUTER], port=ports[2]),))
        assert found is not None
        found = replace(
            found,
            prefill=replace(found.prefill, port=ports[0], bootstrap_port=ports[0]),
            decode=replace(found.decode, port=ports[1]),
        )
        yield Host(prefill, decode, router, found)
        router.over.set()


def test_a_pair_that_answers_and_counts_is_ok_also_when_it_counts_a_moment_later(host: Host) -> None:
    assert host.judged().verdict is PairVerdict.OK


def test_b74_no_generation_is_ever_sent_to_a_half(host: Host) -> None:
    host.judged()
    assert host.prefill.bare == host.decode.bare == []


@pytest.mark.parametrize(
    ("half", "path", "verdict"),
    [
        ("prefill", "/ready", PairVerdict.PREFILL),
        ("prefill", "/route", PairVerdict.PREFILL),
        ("decode", "/ready", PairVerdict.DECODE),
    ],
)
def test_b79_a_half_that_is_not_ready_is_named_and_nothing_is_asked(
    host: Host, half: str, path: str, verdict: PairVerdict
) -> None:
    engine = host.prefill if half == "prefill" else host.decode
    engine.status[path] = 503
    found = host.judged()
    assert found.verdict is verdict
    assert f"{path} on port" in found.words
    assert host.prefill.arrived == 1


def test_halves_of_before_ready_are_taken_at_their_other_words(host: Host) -> None:
    host.prefill.status["/ready"] = host.decode.status["/ready"] = 404
    assert host.judged().verdict is PairVerdict.OK


def test_a_router_that_is_not_ready_is_named(host: Host) -> None:
    host.router.ready = 503
    assert host.judged().verdict is PairVerdict.ROUTER


def test_a_router_that_is_stuck_sends_nothing(host: Host) -> None:
    host.router.sends = host.router.answers = False
    found = host.judged()
    assert found.verdict is PairVerdict.ROUTER
    assert "never reached prefill nor decode" in found.words


def test_a_request_is_looked_for_while_it_is_still_waited_for(host: Host) -> None:
    host.router.answers = False
    host.prefill.meeting = host.decode.handing = 1
    assert host.judged().verdict is PairVerdict.HAND_OFF
    host.decode.handing = 0
    assert host.judged().verdict is PairVerdict.DECODE


def test_an_answer_from_elsewhere_is_the_routers_fault(host: Host) -> None:
    host.router.sends = False
    assert host.judged().verdict is PairVerdict.ROUTER


def test_an_answer_that_does_not_repeat_is_asked_for_again_and_does_for_random_weights_only(host: Host) -> None:
    host.router.text = "5ox5ox"
    assert host.judged().verdict is PairVerdict.GARBAGE
    assert host.prefill.arrived == 3
    host.found = replace(host.found, prefill=replace(host.found.prefill, repeats=False))
    assert host.judged().verdict is PairVerdict.OK


@pytest.mark.parametrize("mode", ["single-tp4", "dual-tp4"])
def test_whole_servers_are_no_pair(mode: str) -> None:
    assert pairing.of(releases.render(releases.spec(mode)).instances) is None


def test_without_its_router_there_is_no_pair() -> None:
    made: tuple[Instance, ...] = releases.render(releases.spec("pd")).instances
    assert pairing.of(one for one in made if one.role is not Role.ROUTER) is None
