"""The arithmetic against every public report of max_total_num_tokens, by the number of the report."""

from typing import Any

import pytest

from dsv4ctl.memory import asked, budget, layout, pool
from dsv4ctl.memory.asked import Ask, Speculation
from dsv4ctl.memory.layout import BEFORE, FIRST, PAGE_TOKENS, Layout
from dsv4ctl.memory.models import V4_FLASH, V41_FLASH
from dsv4ctl.memory.sizes import GIB, floor_to, gib
from tests.plans import VERSIONS, ask

# Within what two printed decimals of the logged GiB allow.
LOGGED = 0.002


def bytes_per_token(lay: Layout, *, speculative: bool) -> float:
    return layout.per_token(lay, V4_FLASH, state_bytes=4, speculative=speculative).full(0.1)


def tokens(asked_for: Ask, available_gib: float) -> int:
    return pool.of(asked_for, asked.flags(asked_for), gib(available_gib)).tokens


@pytest.mark.parametrize(
    ("lay", "plain", "speculative"),
    [(FIRST, 15_955.85, 25_491.85), (BEFORE, 7705.45, 9259.90)],
    ids=["first", "before"],
)
def test_the_constants_of_older_builds_are_those_that_their_logs_print(
    lay: Layout, plain: float, speculative: float
) -> None:
    found = [bytes_per_token(lay, speculative=on) for on in (False, True)]

    assert found == pytest.approx([plain, speculative], abs=0.005)


@pytest.mark.parametrize(
    ("available_gib", "formula", "reported"),
    [pytest.param(45.78, 3_080_704, 3_080_960, id="1"), pytest.param(19.58, 1_317_376, 1_317_632, id="2")],
)
def test_reports_1_and_2_eight_h20(available_gib: float, formula: int, reported: int) -> None:
    of_h20 = ask("h20", "fp8", tp=8, context_tokens=1_048_576, running_requests=256, engine_version="0.5.12")

    found = tokens(of_h20, available_gib)

    assert found == formula
    assert found == pytest.approx(reported, rel=LOGGED)


@pytest.mark.parametrize(("fraction", "reported"), [(0.88, 3_080_960), (0.60, 1_317_632)])
def test_reports_1_and_2_from_nothing_but_the_kind_of_gpu_and_the_checkpoint(fraction: float, reported: int) -> None:
    flags: dict[str, Any] = {"tp": 8, "context_tokens": 1_048_576, "running_requests": 256, "fraction": fraction}

    made = budget.of(ask("h20", "fp8", engine_version="0.5.12", **flags))

    assert made.tokens == pytest.approx(reported, rel=0.01)


def test_report_1_leaves_what_it_logged_after_the_pools_and_after_the_graphs() -> None:
    made = budget.of(
        ask("h20", "fp8", tp=8, context_tokens=1_048_576, running_requests=256, fraction=0.88, engine_version="0.5.12")
    )

    after_pools = made.slack_bytes - made.bytes_of("request table") - made.bytes_of("window map")

    assert after_pools / GIB == pytest.approx(10.18, abs=0.05)
    assert (made.bytes_of("decode graphs") + made.bytes_of("decode logits")) / GIB == pytest.approx(1.93, rel=0.15)


def test_report_4_two_rtx_pro_6000() -> None:
    flags: dict[str, Any] = {"tp": 2, "running_requests": 4, "fraction": 0.93, "engine_version": VERSIONS[BEFORE]}

    made = budget.of(ask(**flags))

    assert made.weights_bytes / GIB == pytest.approx(74.92, rel=0.001)
    assert tokens(ask(**flags), 94.0 * 0.93 - 74.92) == pytest.approx(1_732_100, abs=PAGE_TOKENS)
    # 0.6 % from the logged weights and 94.0 GiB free; the planned weights are 0.04 GiB less.
    assert made.tokens == pytest.approx(1_722_368, rel=0.01)


def test_report_5_the_slope_between_two_fractions_is_the_price_of_a_token() -> None:
    flags: dict[str, Any] = {
        "tp": 2,
        "context_tokens": 786_432,
        "running_requests": 48,
        "engine_version": VERSIONS[BEFORE],
    }
    dspark = Speculation(algorithm="DSPARK", draft_tokens=5)

    low, high = (tokens(ask(**flags, speculation=dspark), 94.05 * share - 79.6) for share in (0.93, 0.95))

    assert high - low == pytest.approx(1_019_648 - 801_536, abs=2 * PAGE_TOKENS)
    assert gib(0.02 * 94.05) / (1_019_648 - 801_536) == pytest.approx(
        bytes_per_token(BEFORE, speculative=True), rel=1e-4
    )


def test_report_8_three_dgx_spark_with_v41() -> None:
    each = layout.per_token(BEFORE, V41_FLASH, state_bytes=4, speculative=True).full(0.0)

    found = floor_to(PAGE_TOKENS, gib(8.84 - 0.30) / each)

    assert each == pytest.approx(1670.75)
    assert found == pytest.approx(5_488_384, abs=PAGE_TOKENS)
    assert found == pytest.approx(5_491_200, rel=LOGGED)


def test_report_10_eight_l20_both_runs_had_the_same_budget() -> None:
    with_eagle, without = (bytes_per_token(FIRST, speculative=on) for on in (True, False))

    from_the_other = 120_576 * without / with_eagle

    assert 120_576 * without / GIB == pytest.approx(1.792, abs=0.001)
    assert 73_472 * with_eagle / GIB == pytest.approx(1.744, abs=0.001)
    assert from_the_other == pytest.approx(73_472, rel=0.028)


def test_report_11_the_window_pool_of_v41_on_h20() -> None:
    costs = layout.per_token(BEFORE, V41_FLASH, state_bytes=4, speculative=True)

    each = costs.window_token * costs.inflation

    assert each == pytest.approx(41 * 584) == pytest.approx(23_944)
    assert 707_840 * each / GIB == pytest.approx(15.78, abs=0.01)


def test_report_12_four_h200_with_eagle() -> None:
    assert 1_066_240 * bytes_per_token(FIRST, speculative=True) / GIB == pytest.approx(25.31, abs=0.01)


def test_report_13_one_gpu_of_48_gib_prints_the_constant() -> None:
    assert round(bytes_per_token(BEFORE, speculative=True), 2) == 9259.90
