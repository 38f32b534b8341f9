"""What an engine counts, from its /metrics and /v1/loads. Knows SGLang's names for it; recorded with 0.5.23."""

import json
import re
from dataclasses import dataclass

_SAMPLE = re.compile(r"^sglang:(?P<name>\w+)(?:\{(?P<labels>.*)\})? (?P<value>[0-9.eE+-]+)$", re.MULTILINE)
GENERATES = frozenset({"/v1/completions", "/v1/chat/completions", "/generate"})
FAILED = frozenset({"num_bootstrap_failed_reqs_total", "num_transfer_failed_reqs_total"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """What an engine has counted since it started; health probes are not in it.

    `arrived` counts requests for a generation as they come in, the others as they are through. `failed`: hand-overs.
    """

    arrived: int = 0
    finished: int = 0
    generated_tokens: int = 0
    failed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Queues:
    """Where an engine's requests are now. `meeting`: both halves agree on rooms; `handing`: the KV is on its way."""

    running: int = 0
    waiting: int = 0
    meeting: int = 0
    handing: int = 0

    @property
    def has_any(self) -> bool:
        """Whether any request is in its hands."""
        return bool(self.running or self.waiting or self.meeting or self.handing)


def parse_counts(text: str) -> Counts | None:
    """Read /metrics, summed over ranks and labels; None when it is no engine's, or one without metrics."""
    samples = [(m["name"], m["labels"] or "", int(float(m["value"]))) for m in _SAMPLE.finditer(text)]
    if not samples:
        return None
    return Counts(
        arrived=sum(
            v for name, labels, v in samples if name == "http_requests_total" and _endpoint(labels) in GENERATES
        ),
        finished=sum(v for name, _, v in samples if name == "num_requests_total"),
        generated_tokens=sum(v for name, _, v in samples if name == "generation_tokens_total"),
        failed=sum(v for name, _, v in samples if name in FAILED),
    )


def _endpoint(labels: str) -> str:
    found = re.search(r'endpoint="([^"]*)"', labels)
    return found[1] if found else ""


def parse_queues(body: bytes) -> Queues | None:
    """Read /v1/loads?include=all, summed over ranks; None when it is none."""
    try:
        loads = json.loads(body)["loads"]
        halves = [load["disaggregation"] for load in loads]
        return Queues(
            running=sum(load["num_running_reqs"] for load in loads),
            waiting=sum(load["num_waiting_reqs"] for load in loads),
            meeting=sum(h["prefill_bootstrap_queue_reqs"] + h["decode_prealloc_queue_reqs"] for h in halves),
            handing=sum(h["prefill_inflight_queue_reqs"] + h["decode_transfer_queue_reqs"] for h in halves),
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
