"""What the halves of a real pair counted: idle, after one answer, and with either scheduler stopped."""

from pathlib import Path

import pytest

from dsv4ctl.engine.counters import Counts, Queues, parse_counts, parse_queues

RECORDED = Path(__file__).with_name("recorded") / "pair"


def counts(moment: str, half: str) -> Counts | None:
    return parse_counts((RECORDED / f"{moment}-{half}.metrics").read_text())


def queues(moment: str, half: str) -> Queues | None:
    return parse_queues((RECORDED / f"{moment}-{half}.json").read_bytes())


def test_one_answer_is_counted_by_both_halves_and_no_probe_is() -> None:
    # The one of the idle pair is its own warm-up.
    assert counts("idle", "prefill") == Counts(arrived=1, finished=1, generated_tokens=1)
    assert counts("asked", "prefill") == Counts(arrived=2, finished=2, generated_tokens=2)
    assert counts("idle", "decode") == Counts(arrived=1, finished=1, generated_tokens=8)
    assert counts("asked", "decode") == Counts(arrived=2, finished=2, generated_tokens=16)


@pytest.mark.parametrize("stuck", ["stuck-decode", "stuck-prefill"])
def test_a_request_that_is_stuck_has_arrived_at_both_halves(stuck: str) -> None:
    for half in ("prefill", "decode"):
        found = counts(stuck, half)
        assert found is not None
        assert found.arrived == found.finished + 1


def test_whoever_is_left_alone_holds_the_request() -> None:
    assert (queues("stuck-decode", "prefill"), queues("stuck-decode", "decode")) == (
        Queues(waiting=1, meeting=1),
        Queues(),
    )
    assert (queues("stuck-prefill", "prefill"), queues("stuck-prefill", "decode")) == (
        Queues(),
        Queues(waiting=1, handing=1),
    )
    assert queues("idle", "decode") == Queues()


@pytest.mark.parametrize("text", ["", "<html>", "# HELP sglang:x y\n", "smg_http_requests_total 4\n"])
def test_what_is_no_engines_metrics_is_nothing(text: str) -> None:
    assert parse_counts(text) is None


@pytest.mark.parametrize(
    "body", [b"", b"{}", b"[]", b'{"loads": [{}]}', b'{"loads": [null]}', b'{"loads": 3}', b"\xff"]
)
def test_what_is_no_engines_load_is_nothing(body: bytes) -> None:
    assert parse_queues(body) is None


def test_ranks_and_labels_are_summed() -> None:
    text = (
        'sglang:num_requests_total{is_streaming="false"} 2.0\n'
        'sglang:num_requests_total{is_streaming="true"} 3.0\n'
        'sglang:http_requests_total{endpoint="/generate",method="POST"} 1.0\n'
        'sglang:http_requests_total{endpoint="/v1/chat/completions",method="POST"} 1e+02\n'
        'sglang:http_requests_total{endpoint="/metrics",method="GET"} 9.0\n'
        "sglang:num_transfer_failed_reqs_total 4.0\n"
        "sglang:num_bootstrap_failed_reqs_total 1.0\n"
    )
    assert parse_counts(text) == Counts(arrived=101, finished=5, failed=5)
