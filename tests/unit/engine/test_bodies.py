"""What the bodies of answers tell, those of other programs too."""

import json

import pytest

from dsv4ctl.engine import bodies


def test_requests_are_counted_over_ranks_and_queues() -> None:
    body = json.dumps(
        {
            "loads": [
                {"num_running_reqs": 2, "num_waiting_reqs": 1},
                {"num_running_reqs": 1, "disaggregation": {"decode_transfer_queue_reqs": 4}},
            ]
        }
    ).encode()
    assert bodies.requests_left(body) == 8
    assert bodies.requests_left(json.dumps({"loads": [{"num_running_reqs": 0}]}).encode()) == 0
    assert bodies.requests_left(b"[]") is None


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xff",
        b"<html>",
        b"[]",
        b"7",
        b'{"data": 7, "loads": {}, "choices": null}',
        b'{"data": [7]}',
        b"[" * 100_000,
    ],
)
def test_a_body_of_another_program_tells_nothing(body: bytes) -> None:
    assert bodies.served_models(body) == {}
    assert bodies.generated_text(body) == ""
    assert bodies.requests_left(body) is None
    assert bodies.work_mark(body) == ()
    assert bodies.own_reason(body) == ""


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"error": {"message": "too\n long"}}, "too long"),
        ({"error": "no worker"}, "no worker"),
        ({"reason": "no healthy decode"}, "no healthy decode"),
        ({"message": "not found"}, "not found"),
        ({"error": {"code": 400}}, ""),
    ],
)
def test_the_reason_is_taken_from_where_engines_and_routers_put_it(body: object, said: str) -> None:
    assert bodies.own_reason(json.dumps(body).encode()) == said
