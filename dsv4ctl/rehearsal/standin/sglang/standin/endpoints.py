"""What each endpoint answers in each phase."""

import json
import uuid
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs

from .. import __version__
from . import answers, messages, misdeeds
from .engine import Engine, Status
from .messages import Abort, AskState, Flush, Generate, Output
from .settings import Settings

CONTROL = ("/flush_cache", "/abort_request", "/freeze_gc")
JSON = "application/json"


@dataclass(frozen=True, slots=True)
class Answer:
    """An HTTP answer: a body as bytes or as a JSON value, or a stream."""

    status: int
    body: Any = b""
    kind: str = ""
    stream: Iterator[bytes] | None = None
    headers: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        """A JSON value is of JSON's kind."""
        if not isinstance(self.body, bytes) and not self.kind:
            object.__setattr__(self, "kind", JSON)


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """An HTTP request. `warm`: it comes from the server's own warm-up; `client_here` tells whether anybody waits."""

    engine: Engine
    path: str
    query: str
    body: bytes
    warm: bool
    client_here: Callable[[], bool]

    def json(self) -> dict[str, Any]:
        """The body; raises BadRequest."""
        try:
            value = json.loads(self.body or b"{}")
        except ValueError:
            raise BadRequest(answers.error("1 validation error:\n  JSON decode error")) from None
        if not isinstance(value, dict):
            raise BadRequest(answers.error("1 validation error:\n  Input should be a valid dictionary"))
        return value


@dataclass(frozen=True, slots=True)
class Prompt:
    """What to go on from, with how many tokens at most, and in which shape the answer is wanted."""

    text: str
    tokens: int
    shape: answers.Shape


class BadRequest(Exception):
    """A request that is refused with 400 and this body."""

    def __init__(self, body: object) -> None:
        super().__init__("bad request")
        self.body = body


def answer(method: str, call: Call) -> Answer:
    """The answer to a request."""
    routes = {**ROUTES, **({"/metrics": (("GET",), metrics)} if call.engine.settings["enable_metrics"] else {})}
    if call.engine.settings.behaviour.without_ready:
        routes.pop("/ready")
    if call.path not in routes:
        return Answer(404, {"detail": "Not Found"})
    methods, endpoint = routes[call.path]
    if method not in methods:
        return Answer(405, {"detail": "Method Not Allowed"}, headers=(("allow", ", ".join(methods)),))
    try:
        return endpoint(call)
    except BadRequest as error:
        return Answer(400, error.body)


def ready(call: Call) -> Answer:
    """Only a flag: 200 while Up and not draining."""
    return Answer(200 if call.engine.status is Status.UP and not call.engine.draining else 503)


def health(call: Call) -> Answer:
    """A generation of one token."""
    return Answer(call.engine.health(call.path))


def models(call: Call) -> Answer:
    """The one model."""
    return Answer(200, answers.models(call.engine.settings.served_name, _length(call)))


def _length(call: Call) -> int:
    """The effective context length in tokens."""
    return int(call.engine.settings["context_length"] or call.engine.settings.model.max_positions)


def model_info(call: Call) -> Answer:
    """What is served, without asking the schedulers."""
    told = call.engine.settings
    names = ("model_path", "served_model_name", "tokenizer_path", "load_format", "reasoning_parser", "tool_call_parser")
    shown = {name: told[name] for name in (*names, "disaggregation_mode")}
    kind = {"model_type": told.model.model_type, "architectures": [told.model.architecture]}
    return Answer(200, {**shown, "is_generation": True, "weight_version": "default", **kind})


def server_info(call: Call) -> Answer:
    """Everything, the key in clear included; hangs when rank 0 hangs."""
    engine = call.engine
    state = engine.ask(AskState(uuid.uuid4().hex), call.client_here)
    values, graphs = engine.settings.values, {"prefill": 0.0, "decode": engine.seconds["graphs"]}
    more = {
        "launch_command": " ".join(engine.settings.words),
        "status": "ready",
        "max_total_num_tokens": engine.tokens,
        "max_req_input_len": min(_length(call), engine.tokens) - 6,
        "startup_time": {
            "load_weight": engine.seconds["weights"],
            "kv_cache_allocation": engine.seconds["pools"],
            "scheduler_e2e": engine.seconds["all"],
            "cuda_graph": graphs,
            "tokenizer_e2e": engine.seconds["all"],
        },
        "kv_events": None,
        "internal_states": [{**values, **state}],
        "version": __version__,
        "frontend": "python",
    }
    return Answer(200, {**values, **more})


def loads(call: Call) -> Answer:
    """From shared memory, so it answers even when the schedulers hang."""
    told, load = call.engine.settings, call.engine.load()
    if parse_qs(call.query).get("format") == ["prometheus"]:
        return Answer(200, answers.prometheus("sglang_", load, 'dp_rank="0"'), "text/plain; version=0.0.4")
    return Answer(200, answers.loads(load, __version__, told.tp if told.on_gpu else 1))


def metrics(call: Call) -> Answer:
    """The gauges that people look at first."""
    kind = "unified" if call.engine.settings.mode == "null" else call.engine.settings.mode
    labels = f'engine_type="{kind}",model_name="{call.engine.settings["served_model_name"]}",tp_rank="0",pp_rank="0"'
    gauges = answers.prometheus("sglang:", call.engine.load(), labels)
    counted = answers.arrivals("sglang:", call.engine.arrived)
    return Answer(200, gauges + counted, "text/plain; version=0.0.4; charset=utf-8")


def generate(call: Call) -> Answer:
    """SGLang's own generation endpoint."""
    asked = call.json()
    prompt = asked.get("text") or asked.get("input_ids")
    if not prompt:
        message = "Either text, input_ids or input_embeds should be provided."
        raise BadRequest({"error": {"message": message}})
    wanted = int((asked.get("sampling_params") or {}).get("max_new_tokens", 128))
    return _generation(call, asked, Prompt(str(prompt), wanted, answers.NATIVE))


def completions(call: Call) -> Answer:
    """OpenAI's completions."""
    asked = call.json()
    if "prompt" not in asked:
        raise BadRequest(answers.error("1 validation error:\n  Field required: prompt"))
    wanted = int(asked.get("max_tokens") or 16)
    return _generation(call, asked, Prompt(str(asked["prompt"]), wanted, answers.COMPLETION))


def chat(call: Call) -> Answer:
    """OpenAI's chat completions."""
    asked = call.json()
    if not asked.get("messages"):
        raise BadRequest(answers.error("1 validation error:\n  Field required: messages"))
    wanted = asked.get("max_completion_tokens") or asked.get("max_tokens") or 64
    # A router writes messages anew, with other spaces and nulls.
    prompt = "\n".join(f"{one.get('role')}: {json.dumps(one.get('content'))}" for one in asked["messages"])
    return _generation(call, asked, Prompt(prompt, int(wanted), answers.CHAT))


def _generation(call: Call, asked: dict[str, Any], prompt: Prompt) -> Answer:
    """Generate and answer in a shape, streaming if asked for."""
    told = call.engine.settings
    size, limit = max(1, len(prompt.text) // 4), _length(call)
    if size + prompt.tokens > limit:
        raise BadRequest(
            answers.error(f"Requested token count exceeds the model's maximum context length of {limit} tokens.")
        )
    purpose = messages.WARMUP if call.warm else messages.USER
    # The first token is a prefill's whole work.
    wanted = 1 if told.mode == "prefill" else prompt.tokens
    room, bootstrap = _crossing(told, asked)
    seed, refrain = zlib.crc32(prompt.text.encode()), _refrain(prompt.text)
    order = Generate(uuid.uuid4().hex, wanted, size, seed, purpose, room, bootstrap, refrain)
    outputs = _told(call, order)
    name = str(asked.get("model") or told.served_name)
    if asked.get("stream"):
        return Answer(200, stream=answers.stream(prompt.shape, order, name, outputs))
    return _whole(call, prompt.shape, order, (name, list(outputs)))


def _told(call: Call, order: Generate) -> Iterator[Output]:
    """The outputs of a request; its begin and its end, whatever that is, stand in a file if that was asked for."""
    path = None if call.warm else call.engine.settings.behaviour.generations_to
    misdeeds.tell(path, f"begin {order.request}")
    try:
        yield from call.engine.generate(order, call.client_here)
    finally:
        misdeeds.tell(path, f"end {order.request}")


def _refrain(prompt: str) -> str:
    """The first word of every line, if it is the same and there are some lines."""
    lines = prompt.strip().splitlines()
    first = {line.partition(" ")[0] for line in lines}
    return first.pop() if len(lines) > 2 and len(first) == 1 else ""


def _crossing(told: Settings, asked: dict[str, Any]) -> tuple[int | None, str]:
    """The room of a request and the bootstrap address of its prefill, as a router adds them; in a pair only."""
    room, host = asked.get("bootstrap_room"), str(asked.get("bootstrap_host") or "127.0.0.1")
    if told.mode == "null" or room is None:
        return None, ""
    port = asked.get("bootstrap_port") or told["disaggregation_bootstrap_port"]
    return int(room), host if host == messages.FAKE else f"{f'[{host}]' if ':' in host else host}:{port}"


def _whole(call: Call, shape: answers.Shape, order: Generate, made: tuple[str, list[Output]]) -> Answer:
    """A whole answer, or the garbage that the behaviour asks for."""
    name, outputs = made
    if outputs[-1].problem:
        return Answer(outputs[-1].status, answers.failed(shape, outputs[-1]))
    garbage = None if call.warm else call.engine.settings.now.garbage_generation
    if garbage == "not_json":
        return Answer(200, b"<html>upstream is fine</html>", "text/html")
    if garbage == "no_choices":
        return Answer(200, {"object": "list", "data": []})
    text = "" if garbage == "empty" else "".join(output.text for output in outputs).rstrip()
    return Answer(200, answers.whole(shape, order, name, (text, outputs)))


def abort_request(call: Call) -> Answer:
    """End one request, or all."""
    asked = call.json()
    call.engine.tell(Abort("" if asked.get("abort_all") else str(asked.get("rid", "-"))))
    return Answer(200)


def flush_cache(call: Call) -> Answer:
    """Empty the cache."""
    call.engine.ask(Flush(uuid.uuid4().hex), call.client_here)
    return Answer(200, answers.FLUSHED.encode())


def freeze_gc(call: Call) -> Answer:  # noqa: ARG001 -- every endpoint gets the call
    """Nothing to freeze here."""
    return Answer(200)


ROUTES: Mapping[str, tuple[tuple[str, ...], Callable[[Call], Answer]]] = {
    "/ready": (("GET",), ready),
    "/ping": (("GET",), ready),
    "/health": (("GET",), health),
    "/health_generate": (("GET",), health),
    "/v1/models": (("GET",), models),
    "/model_info": (("GET",), model_info),
    "/get_model_info": (("GET",), model_info),
    "/server_info": (("GET",), server_info),
    "/get_server_info": (("GET",), server_info),
    "/v1/loads": (("GET",), loads),
    "/generate": (("POST", "PUT"), generate),
    "/v1/completions": (("POST",), completions),
    "/v1/chat/completions": (("POST",), chat),
    "/abort_request": (("GET", "POST"), abort_request),
    "/flush_cache": (("GET", "POST"), flush_cache),
    "/freeze_gc": (("GET", "POST"), freeze_gc),
}
