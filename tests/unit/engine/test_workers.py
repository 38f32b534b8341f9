"""What a router says of its workers; the body is recorded from sglang-router 0.3.2 in front of a pair, shortened."""

import pytest

from dsv4ctl.engine import workers
from dsv4ctl.model import Peer, Role

RECORDED = b"""{"workers":[
{"id":"94d64e3b-6122-4264-995a-8148fbe141fb","url":"http://127.0.0.1:20002","model_id":"DeepSeek-V4-Flash",
 "worker_type":"prefill","is_healthy":true,"load":0,"connection_mode":"HTTP","bootstrap_port":20003},
{"id":"0746b80b-32da-4537-8d67-aa69ee1d0f08","url":"http://127.0.0.1:20012","model_id":"DeepSeek-V4-Flash",
 "worker_type":"decode","is_healthy":false,"load":0,"connection_mode":"HTTP"}],
"total":2,"stats":{"prefill_count":1,"decode_count":1,"regular_count":0}}"""
PEERS = (
    Peer(name="prefill", role=Role.PREFILL, unit="dsv4-prefill.service", host="127.0.0.1", port=20002),
    Peer(name="decode", role=Role.DECODE, unit="dsv4-decode.service", host="127.0.0.1", port=20012),
)


def read(body: bytes) -> workers.Workers:
    found = workers.parse(body)
    assert found is not None
    return found


def test_a_worker_that_is_known_and_not_healthy_is_missing_as_one_is_that_is_not_known() -> None:
    moved = Peer(name="decode", role=Role.DECODE, unit="dsv4-decode.service", host="127.0.0.1", port=21012)

    assert workers.missing(PEERS, read(RECORDED)) == PEERS[1:]
    assert workers.missing((PEERS[0], moved), read(RECORDED)) == (moved,)


def test_an_address_that_nobody_asked_for_is_strange_whether_it_is_healthy_or_not() -> None:
    assert workers.strange(PEERS, read(RECORDED)) == ()
    assert workers.strange(PEERS[:1], read(RECORDED)) == ("http://127.0.0.1:20012",)


def test_an_ipv6_worker_is_written_in_brackets() -> None:
    assert workers.url(Peer(name="s", role=Role.SERVER, unit="u", host="::1", port=20002)) == "http://[::1]:20002"


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"workers": 3}', b'{"workers": [{"url": "x"}]}', b"\xff"])
def test_whatever_else_answers_tells_of_no_workers(body: bytes) -> None:
    assert workers.parse(body) is None
