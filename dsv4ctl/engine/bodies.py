"""What the bodies of an engine's or a router's answers tell. A body that is none tells nothing, and raises nothing."""

import json

_QUEUES = ("num_running_reqs", "num_waiting_reqs")
# What a prefill or decode role still carries for its partner: as much a request in flight as a running one.
_PD_QUEUES = (
    "prefill_bootstrap_queue_reqs",
    "prefill_inflight_queue_reqs",
    "decode_prealloc_queue_reqs",
    "decode_transfer_queue_reqs",
    "decode_retracted_queue_reqs",
)


def served_models(body: bytes) -> dict[str, int | None]:
    """Model id -> context length from the body of /v1/models; empty when it is none."""
    entries = _entries(body, "data")
    return {str(e["id"]): _count(e.get("max_model_len")) for e in entries if "id" in e}


def generated_text(body: bytes) -> str:
    """The text of a completion; '' when the body is none."""
    return "".join(str(choice.get("text") or "") for choice in _entries(body, "choices"))


def requests_left(body: bytes) -> int | None:
    """How many requests an engine still carries, by /v1/loads; None when the body does not tell."""
    ranks = _entries(body, "loads")
    if not ranks:
        return None
    carried = sum(_count(rank.get(name)) or 0 for rank in ranks for name in _QUEUES)
    parts = [part for rank in ranks if isinstance(part := rank.get("disaggregation"), dict)]
    return carried + sum(_count(part.get(name)) or 0 for part in parts for name in _PD_QUEUES)


def work_mark(body: bytes) -> tuple[object, ...]:
    """What of /v1/loads changes when tokens are made: two different marks mean that the engine works. () when untold.

    Waiting requests are left out: they may grow while the scheduler hangs.
    """
    names = ("num_running_reqs", "num_used_tokens", "num_total_tokens", "gen_throughput")
    return tuple(rank.get(name) for rank in _entries(body, "loads") for name in names)


def own_reason(body: bytes) -> str:
    """The message of an OpenAI-style error body or a router's reason, cut to a line; '' when there is none."""
    found = _parsed(body)
    error = found.get("error") or found.get("reason") or found
    message = error.get("message") if isinstance(error, dict) else error if isinstance(error, str) else None
    return " ".join(message.split())[:120] if isinstance(message, str) else ""


def _parsed(body: bytes) -> dict[str, object]:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _entries(body: bytes, name: str) -> list[dict[str, object]]:
    """The objects of a list in a JSON object; whatever else the body is, none."""
    found = _parsed(body).get(name)
    return [entry for entry in found if isinstance(entry, dict)] if isinstance(found, list) else []


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
