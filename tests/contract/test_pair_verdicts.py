"""dsv4ctl's probe names who is at fault, for stand-ins that misbehave behind the real router."""

import secrets
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from dsv4ctl import pair, pairing
from dsv4ctl.pair import Judged
from tests import releases
from tests.contract.conftest import standin
from tests.contract.engines import CLOCK, MODEL_NAME
from tests.contract.pairs import Pair, unstarted

RENDERED = releases.render(releases.spec("pd")).instances


@pytest.fixture(scope="module")
def bed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """A router without halves behind it; each test starts its own."""
    folder = tmp_path_factory.mktemp("verdicts")
    build = replace(standin(folder), tp=1, flags=("--device", "cpu", "--enable-metrics"))
    made = unstarted(build, folder, first=80)
    try:
        made.start_router()
        yield made
    finally:
        made.end()


def verdict(bed: Pair) -> Judged:
    """What the probe says of the pair."""
    found = pairing.of(RENDERED)
    assert found is not None
    found = pairing.Pair(
        prefill=replace(found.prefill, port=bed.prefill_port, bootstrap_port=bed.bootstrap_port),
        decode=replace(found.decode, port=bed.decode_port),
        router=replace(found.router, host="127.0.0.1", port=bed.router_port, served_model_name=MODEL_NAME),
    )
    return pair.judge(pairing.look(found, f"n-{secrets.token_hex(8)}", "", CLOCK, limit_s=2))


@pytest.mark.parametrize(
    ("prefill", "decode", "expected"),
    [
        ({}, {}, "ok"),
        ({"die_on_bare_generate": True}, {"die_on_bare_generate": True}, "ok"),
        ({"no_transfer": True}, {}, "hand-off"),
        ({"wrong_tokens": "repeated"}, {}, "garbage"),
        ({}, {"decode_never_answers": True}, "decode"),
        ({"register_late_s": 60.0}, {}, "prefill"),
    ],
    ids=lambda value: value if isinstance(value, str) else ",".join(value),
)
def test_the_probe_finds_who_is_at_fault(
    bed: Pair, prefill: dict[str, Any], decode: dict[str, Any], expected: str
) -> None:
    halves = bed.start("prefill", **prefill), bed.start("decode", **decode)
    try:
        for half in halves:
            half.wait_for()
        bed.wait_for_router(200)
        found = verdict(bed)
    finally:
        for half in halves:
            half.end()
    assert found.verdict == expected, found.words
