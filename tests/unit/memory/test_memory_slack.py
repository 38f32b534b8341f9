"""What grows with the context and lies outside the pools."""

from dataclasses import replace
from typing import Any

import pytest

from dsv4ctl.memory import budget, slack
from dsv4ctl.memory.asked import Indexer, Switches
from dsv4ctl.memory.figures import Figure, Kind, Part
from dsv4ctl.memory.sizes import GIB
from dsv4ctl.model import Role
from tests.plans import DSPARK, EAGLE, ask

DEEPGEMM = Switches(indexer=Indexer.DEEPGEMM)
TORCH = Switches(indexer=Indexer.TORCH)


def figure(name: str, **flags: Any) -> Figure:
    (found,) = (one for one in budget.of(ask(**({"fraction": 0.85} | flags))).figures if one.name == name)
    return found


def figures_of(gpu: str, **flags: Any) -> dict[str, int]:
    return {one.name: one.bytes for one in budget.of(ask(gpu, **({"fraction": 0.85} | flags))).figures}


def test_64_by_131072_by_4_are_megabytes() -> None:
    found = figure("decode logits", context_tokens=524_288)

    assert found.bytes == 64 * 131_072 * 4 == 33_554_432
    assert found.note == "64 x 131072 x 4 = 33.5 MB"
    assert found.kind is Kind.EXACT


@pytest.mark.parametrize(
    ("rows", "context", "amount"),
    [(8192, 1_048_576, 8_589_934_592), (2048, 1_048_576, 2_147_483_648), (256, 131_072, 33_554_432), (1, 8192, 8192)],
)
def test_logits_are_rows_by_context_bytes(rows: int, context: int, amount: int) -> None:
    assert slack.logits_bytes(rows, context) == amount


def test_the_request_table_of_a_million_tokens_is_a_gigabyte_with_the_default_of_256_requests() -> None:
    assert figure("request table", context_tokens=1_048_576, running_requests=None).bytes == 4 * 257 * (1_048_576 + 4)
    assert figure("request table", context_tokens=1_048_576, running_requests=16).bytes == pytest.approx(71e6, rel=0.01)


def test_tilelang_does_not_cut_a_chunks_logits_and_deepgemm_does() -> None:
    whole = figure("prefill logits", context_tokens=1_048_576)
    cut = figure("prefill logits", context_tokens=1_048_576, switches=DEEPGEMM)

    assert whole.bytes == 8192 * 1_048_576
    assert "not cut by TileLang" in whole.note
    assert cut.bytes <= 0.2 * 0.15 * 97_887 * 1024**2
    assert "cut to" in cut.note


def test_deepgemm_never_takes_more_logits_than_its_share_of_what_is_free() -> None:
    made = budget.of(ask(context_tokens=1_048_576, fraction=0.88, switches=DEEPGEMM))
    others = made.needed_slack_bytes - made.bytes_of("prefill logits")

    assert made.bytes_of("prefill logits") == pytest.approx(0.2 * (made.slack_bytes - others))


def test_v41_has_a_column_a_token_and_keeps_a_chunks_logits_to_two_gib() -> None:
    made = figures_of("h200", checkpoint="v4.1-flash", tp=8, context_tokens=524_288)

    assert made["decode logits"] == 64 * 524_288 * 4
    assert made["prefill logits"] <= 2 * GIB


def test_the_torch_fallback_gathers_tens_of_gigabytes() -> None:
    found = figure("prefill logits", switches=TORCH)

    assert 21e9 < found.low_bytes < found.high_bytes < 27e9


def test_a_decode_engine_has_no_prefill_logits_and_a_prefill_engine_no_graphs() -> None:
    decode, prefill = figures_of("h200", role=Role.DECODE), figures_of("h200", role=Role.PREFILL)

    assert {"prefill logits", "index tables", "sparse gather"}.isdisjoint(decode)
    assert {"decode graphs", "decode logits", "decode partials"}.isdisjoint(prefill)
    assert "decode graphs" not in figures_of("h200", decode_graphs=False)


def test_each_draft_token_has_a_row_of_decode_logits_and_the_graphs_grow_by_half() -> None:
    plain, drafted = figure("decode graphs"), figure("decode graphs", speculation=DSPARK)

    assert figure("decode logits", speculation=DSPARK).bytes == 6 * figure("decode logits").bytes
    assert drafted.bytes > 1.5 * plain.bytes


def test_kernels_of_a_generation_have_their_own_buffers() -> None:
    blackwell_workstation, hopper = figures_of("rtx-pro-6000"), figures_of("h200")

    assert {"window copy", "decode partials"} <= blackwell_workstation.keys() - hopper.keys()
    assert "sparse gather" in hopper.keys() - blackwell_workstation.keys()
    assert "window copy" not in figures_of("rtx-pro-6000", switches=Switches(direct_window=True))


@pytest.mark.parametrize(
    ("context", "chunk", "running", "needed_gib"),
    [
        (131_072, 8192, 64, 6.7),
        (524_288, 4096, 64, 6.4),
        (524_288, 8192, 64, 9.9),
        (1_048_576, 2048, 32, 5.6),
        (1_048_576, 4096, 32, 8.4),
        (1_048_576, 8192, 64, 14.3),
    ],
)
def test_the_slack_that_rtx_pro_6000_needs(context: int, chunk: int, running: int, needed_gib: float) -> None:
    flags: dict[str, Any] = {"context_tokens": context, "chunk_tokens": chunk, "running_requests": running}

    made = budget.of(ask(fraction=0.85, **flags))

    assert made.needed_slack_bytes / GIB == pytest.approx(needed_gib, abs=0.25)


def test_the_range_of_what_is_left_has_the_estimates_at_their_ends() -> None:
    made = budget.of(ask(speculation=EAGLE))
    taken = [one for one in made.figures if one.part is Part.SLACK]
    worst, best = made.left_range_bytes

    assert worst < made.left_bytes < best
    assert best - worst == sum(one.high_bytes - one.low_bytes for one in taken)


def test_measured_graphs_hold_their_logits() -> None:
    plain = ask(context_tokens=524_288)
    measured = replace(plain, measured=replace(plain.measured, graphs_bytes=2 * GIB))

    made = budget.of(measured)

    assert made.bytes_of("decode graphs") == 2 * GIB
    assert {one.kind for one in made.figures if one.name == "decode graphs"} == {Kind.MEASURED}
    assert made.bytes_of("decode logits") == 0
