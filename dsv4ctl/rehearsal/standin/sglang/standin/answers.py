"""The bodies of answers, in the shapes of the real engine. Pure but for the time that each answer carries."""

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from .messages import Generate, Output

FLUSHED = (
    "Cache flushed.\nPlease check backend logs for more details. "
    "(When there are running or waiting requests, the operation will not be performed.)\n"
)
DONE = b"data: [DONE]\n\n"
NO_QUEUES = {
    "mode": "null",
    "prefill_bootstrap_queue_reqs": 0,
    "prefill_inflight_queue_reqs": 0,
    "decode_prealloc_queue_reqs": 0,
    "decode_transfer_queue_reqs": 0,
    "decode_retracted_queue_reqs": 0,
    "kv_transfer_speed_gb_s": 0.0,
    "kv_transfer_latency_ms": 0.0,
}


@dataclass(frozen=True, slots=True)
class Shape:
    """How an endpoint words a generation: the object's name, and that of a streamed part."""

    name: str
    part: str


NATIVE = Shape("", "")
COMPLETION = Shape("text_completion", "text_completion")
CHAT = Shape("chat.completion", "chat.completion.chunk")


def error(message: str) -> dict[str, Any]:
    """OpenAI's shape of a bad request."""
    return {"object": "error", "message": message, "type": "Bad Request", "param": None, "code": 400}


def models(name: str, length: int) -> dict[str, Any]:
    """The list with the one model."""
    model = {"id": name, "object": "model", "created": int(time.time()), "owned_by": "sglang", "root": name}
    return {"object": "list", "data": [{**model, "parent": None, "max_model_len": length}]}


def loads(load: dict[str, Any], version: str, accelerators: int) -> dict[str, Any]:
    """The reply of /v1/loads."""
    names = ("num_running_reqs", "num_waiting_reqs", "num_used_tokens", "max_total_num_tokens", "max_running_requests")
    core = {name: load[name] for name in names}
    memory = {name: load[name] for name in ("weight_gb", "kv_cache_gb", "graph_gb")}
    usage = round(load["num_used_tokens"] / load["max_total_num_tokens"], 4)
    one = {
        "timestamp": time.time(),
        "dp_rank": 0,
        **core,
        "num_total_tokens": load["num_used_tokens"],
        "token_usage": usage,
        "gen_throughput": load["gen_throughput"],
        "cache_hit_rate": 0.0,
        "utilization": 0.0,
        "memory": {**memory, "token_capacity": load["max_total_num_tokens"]},
        "disaggregation": {**NO_QUEUES, **load["disaggregation"]},
        "queues": {"waiting": load["num_waiting_reqs"], "grammar": 0, "paused": 0, "retracted": 0, "prealloc_ready": 0},
    }
    moment = datetime.now(UTC).isoformat()
    return {
        "timestamp": moment,
        "version": version,
        "accelerator": None,
        "num_accelerators": accelerators,
        "loads": [one],
    }


def prometheus(prefix: str, load: dict[str, Any], labels: str) -> bytes:
    """Gauges in the text format."""
    gauges = {
        "num_running_reqs": load["num_running_reqs"],
        "num_queue_reqs": load["num_waiting_reqs"],
        "gen_throughput": load["gen_throughput"],
        "token_usage": load["num_used_tokens"] / load["max_total_num_tokens"],
        "num_used_tokens": load["num_used_tokens"],
        "max_total_num_tokens": load["max_total_num_tokens"],
        **load["counters"],
        **{f"num_{name}": number for name, number in load["disaggregation"].items() if name.endswith("_queue_reqs")},
        "weight_memory_usage_gb": load["weight_gb"],
        "kv_cache_memory_usage_gb": load["kv_cache_gb"],
        "startup_available_gpu_memory_gb": load["available_gb"],
    }
    lines = [
        f"# TYPE {prefix}{_family(name)}\n{prefix}{name}{{{labels}}} {float(value)}" for name, value in gauges.items()
    ]
    return ("\n".join(lines) + "\n").encode()


def arrivals(prefix: str, arrived: dict[tuple[str, str], int]) -> bytes:
    """Requests by endpoint and method, counted as they come in."""
    name = f"{prefix}http_requests_total"
    lines = [f'{name}{{endpoint="{path}",method="{method}"}} {n}.0\n' for (path, method), n in sorted(arrived.items())]
    return "".join([f"# TYPE {name} counter\n", *lines]).encode()


def _family(name: str) -> str:
    """Name and kind of the metric that a value belongs to."""
    if name.endswith("_count"):
        return f"{name.removesuffix('_count')} histogram"
    return f"{name} counter" if name.endswith("_total") else f"{name} gauge"


def failed(shape: Shape, output: Output) -> dict[str, Any]:
    """What a request gets that was refused, or that failed on its way."""
    if shape is NATIVE:
        return {"error": {"message": output.problem}}
    kind = "BadRequestError" if output.status == 400 else str(output.status)
    return {"object": "error", "message": output.problem, "type": kind, "param": None, "code": output.status}


def whole(shape: Shape, order: Generate, model: str, made: tuple[str, list[Output]]) -> dict[str, Any]:
    """A generation in one piece."""
    text, outputs = made
    finish = outputs[-1].finish
    tokens = [output.token for output in outputs if output.token is not None]
    if shape is NATIVE:
        return _native(order, text, tokens, finish)
    said: dict[str, Any] = {"text": text}
    if shape is CHAT:
        said = {"message": {"role": "assistant", "content": text, "reasoning_content": None}}
    usage = {"prompt_tokens": order.prompt_tokens, "completion_tokens": len(tokens)}
    return {
        **_head(order, shape.name, model),
        "choices": [{"index": 0, **said, "logprobs": None, "finish_reason": finish, "matched_stop": None}],
        "usage": {**usage, "total_tokens": order.prompt_tokens + len(tokens), "prompt_tokens_details": None},
        "metadata": {"weight_version": "default"},
    }


def stream(shape: Shape, order: Generate, model: str, outputs: Iterator[Output]) -> Iterator[bytes]:
    """A generation as server-sent events."""
    text, tokens = "", []
    if shape is CHAT:
        yield _event(_part(shape, order, model, ({"role": "assistant", "content": ""}, None)))
    for output in outputs:
        if output.problem:
            yield _event({"error": failed(shape, output)})
            break
        text += output.text
        tokens += [] if output.token is None else [output.token]
        finish = output.finish or None
        if shape is NATIVE:
            yield _event(_native(order, text, tokens, output.finish))
        elif shape is CHAT:
            yield _event(_part(shape, order, model, ({"content": output.text}, None)))
            if finish:
                yield _event(_part(shape, order, model, ({}, finish)))
        else:
            yield _event(_part(shape, order, model, (output.text, finish)))
    yield DONE


def _part(shape: Shape, order: Generate, model: str, said: tuple[Any, str | None]) -> dict[str, Any]:
    piece, finish = said
    content = {"delta": {"reasoning_content": None, **piece}} if shape is CHAT else {"text": piece}
    choice = {"index": 0, **content, "logprobs": None, "finish_reason": finish, "matched_stop": None}
    return {**_head(order, shape.part, model), "choices": [choice]}


def _head(order: Generate, name: str, model: str) -> dict[str, Any]:
    return {"id": order.request, "object": name, "created": int(time.time()), "model": model}


def _native(order: Generate, text: str, tokens: list[int], finish: str) -> dict[str, Any]:
    reason = {"type": finish, "length": len(tokens)} if finish else None
    meta = {"id": order.request, "finish_reason": reason, "prompt_tokens": order.prompt_tokens}
    return {"text": text, "output_ids": tokens, "meta_info": {**meta, "completion_tokens": len(tokens)}}


def _event(value: dict[str, Any]) -> bytes:
    return f"data: {json.dumps(value)}\n\n".encode()
