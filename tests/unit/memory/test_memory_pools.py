"""Tokens and bytes of the pools against what SGLang 0.5.23's own configurator gave when it was executed.

recorded/pools-0.5.23.json: the unmodified class DSV4PoolConfigurator, called on a CPU with these budgets and flags.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from dsv4ctl.memory import asked, layout, pool, weights
from dsv4ctl.memory.asked import Ask, Speculation, Switches
from dsv4ctl.memory.figures import total
from dsv4ctl.memory.layout import NOW
from dsv4ctl.memory.models import V4_FLASH, V4_PRO, V41_FLASH
from dsv4ctl.memory.pool import Pool
from dsv4ctl.memory.sizes import GIB, gib
from dsv4ctl.memory.weights import Experts, known
from tests.plans import DSPARK, EAGLE, VERSIONS, ask

RECORDED = json.loads(Path(__file__).with_name("recorded").joinpath("pools-0.5.23.json").read_text())
MODELS = {"V4-Flash": "fp4", "V4-Pro": "v4-pro"}


def pools(asked_for: Ask, budget_gib: float) -> Pool:
    return pool.of(asked_for, asked.flags(asked_for), gib(budget_gib))


@pytest.mark.parametrize(
    ("budget_gib", "plain", "with_eagle"),
    [
        (10, 1_415_936, 1_176_576),
        (20, 2_930_944, 2_529_024),
        (30, 4_446_208, 3_881_472),
        (40, 5_961_216, 5_233_920),
        (44, 6_567_424, 5_775_104),
        (60, 8_991_488, 7_939_072),
        (80, 12_021_760, 10_643_968),
    ],
)
def test_a_budget_buys_the_tokens_that_the_engine_makes_of_it(budget_gib: int, plain: int, with_eagle: int) -> None:
    assert pools(ask(), budget_gib).tokens == plain
    assert pools(ask(speculation=EAGLE), budget_gib).tokens == with_eagle


@pytest.mark.parametrize(
    ("kind", "weights_gib", "tp", "attention_dp", "millions"),
    [
        ("fp4", 39.3, 4, 1, (4.63, 5.34, 6.05, 6.76, 9.45, 5.17)),
        ("nvfp4", 41.3, 4, 1, (4.32, 5.04, 5.75, 6.46, 8.98, 4.90)),
        ("fp4", 21.5, 8, 1, (7.32, 8.04, 8.75, 9.46, 13.67, 7.63)),
        ("nvfp4", 22.5, 8, 1, (7.17, 7.89, 8.60, 9.31, 13.43, 7.49)),
        ("fp4", 26.1, 8, 8, (6.62, 7.34, 8.05, 8.76, 12.57, 6.97)),
    ],
)
def test_the_pools_of_rtx_pro_6000_are_those_of_the_configurator_for_each_layout_checkpoint_and_fraction(
    kind: str, weights_gib: float, tp: int, attention_dp: int, millions: tuple[float, ...]
) -> None:
    usual: dict[str, Any] = {"tp": tp, "attention_dp": attention_dp, "running_requests": 64 * attention_dp}

    def tokens(fraction: float, **flags: Any) -> float:
        asked_for = ask(checkpoint=kind, **usual, **flags)
        draft = weights.draft(asked_for.checkpoint, tp, stages=1).bytes / GIB if flags.get("speculation") else 0.0
        return pools(asked_for, 94.0 * fraction - weights_gib - draft).tokens / 1e6

    found = [*map(tokens, (0.75, 0.80, 0.85, 0.90)), tokens(0.85, window_ratio=0.02), tokens(0.85, speculation=EAGLE)]

    # The weights are told to a tenth of a GiB; those of a draft are estimates.
    assert found[:5] == pytest.approx(millions[:5], abs=0.01)
    assert found[5] == pytest.approx(millions[5], rel=0.006)


@pytest.mark.parametrize("case", RECORDED, ids=range(len(RECORDED)))
def test_random_budgets_and_flags_give_the_configurators_own_pools(case: dict[str, Any]) -> None:
    drafts = Speculation(algorithm="EAGLE", draft_tokens=case["draft_tokens"]) if case["draft_tokens"] else None
    asked_for = ask(
        checkpoint=MODELS[case["model"]],
        tp=8,
        running_requests=case["running"],
        window_ratio=case["ratio"],
        attention_dp=case["attention_dp"],
        speculation=drafts,
        switches=Switches(state_bytes=case["state_bytes"]),
    )

    made = pool.of(asked_for, asked.flags(asked_for), case["budget_bytes"])

    assert (made.tokens, made.window_tokens) == (case["tokens"], case["window_tokens"])
    assert made.bytes_per_token == pytest.approx(case["bytes_per_token"], abs=0.0001)


@pytest.mark.parametrize(
    ("ratio", "drafts", "bytes_per_token"),
    [(0.1, 0, 7086.75), (0.1, 1, 7939.19), (0.05, 0, 5493.00), (0.02, 0, 4536.75), (1.0, 0, 35_774.25)],
)
def test_a_token_of_v4_flash_costs_what_the_configurator_says(
    ratio: float, drafts: int, bytes_per_token: float
) -> None:
    costs = layout.per_token(NOW, V4_FLASH, state_bytes=4, speculative=drafts > 0)

    assert costs.full(ratio) == pytest.approx(bytes_per_token, abs=0.005)


def test_other_models_and_backends_cost_what_the_configurator_says() -> None:
    uniform = layout.uniform(NOW)

    assert layout.per_token(uniform, V4_FLASH, state_bytes=4, speculative=False).full(0.1) == pytest.approx(6334.60)
    assert layout.per_token(NOW, V4_PRO, state_bytes=4, speculative=False).full(0.1) == pytest.approx(10_115.25)
    assert layout.per_token(NOW, V4_PRO, state_bytes=4, speculative=True).full(0.1) == pytest.approx(
        11_256.81, abs=0.01
    )
    assert layout.per_token(NOW, V41_FLASH, state_bytes=4, speculative=False).full(0.0) == 1632.50
    assert layout.per_token(NOW, V41_FLASH, state_bytes=4, speculative=True).full(0.0) == pytest.approx(
        1673.31, abs=0.01
    )


def test_only_the_compressed_part_is_what_a_token_of_context_truly_costs() -> None:
    costs = layout.per_token(NOW, V4_FLASH, state_bytes=4, speculative=False)

    assert (costs.c4, costs.keys, costs.c128, costs.compressed) == (3071.25, 693.0, 135.0, 3899.25)


@pytest.mark.parametrize(
    ("slots", "plain_gib", "speculative_gib"),
    [
        (8, 0.107, 0.205),
        (16, 0.186, 0.361),
        (32, 0.342, 0.674),
        (64, 0.654, 1.299),
        (128, 1.279, 2.549),
        (256, 2.529, 5.049),
    ],
)
def test_the_state_of_requests_is_fixed_by_how_many_may_run(
    slots: int, plain_gib: float, speculative_gib: float
) -> None:
    found = [
        layout.state_of_requests_bytes(NOW, V4_FLASH, slots, state_bytes=4, speculative=speculative) / GIB
        for speculative in (False, True)
    ]

    assert found == pytest.approx([plain_gib, speculative_gib], abs=0.0005)


def test_v41_sizes_its_window_pool_from_the_requests() -> None:
    of_v41 = ask("h200", checkpoint="v4.1-flash", tp=8)
    with_drafts = ask("h200", checkpoint="v4.1-flash", tp=8, speculation=DSPARK)

    assert pools(of_v41, 20).window_tokens == 164_096
    assert pools(with_drafts, 20).window_tokens == 222_208


def test_dp_attention_divides_chunk_and_requests_but_not_the_price_of_a_token() -> None:
    plain, divided = ask(tp=8, running_requests=512), ask(tp=8, running_requests=512, attention_dp=8)

    assert asked.flags(divided).chunk_rank == asked.flags(plain).chunk_rank // 8 == 1024
    assert asked.flags(divided).running_rank == 64
    assert pools(divided, 30).bytes_per_token == pools(plain, 30).bytes_per_token


@pytest.mark.parametrize("version", [*VERSIONS.values(), "0.5.99"])
@pytest.mark.parametrize("checkpoint", ["fp4", "v4-pro", "v4.1-flash"])
@pytest.mark.parametrize("speculation", [None, EAGLE])
def test_the_sub_pools_are_together_what_the_pools_take(version: str, checkpoint: str, speculation: object) -> None:
    made = pools(ask(checkpoint=checkpoint, engine_version=version, speculation=speculation), 25)

    found = pool.figures(made)

    assert total(found) == made.used_bytes <= made.offered_bytes
    assert made.offered_bytes - made.used_bytes <= 256 * made.bytes_per_token + 1
    assert abs(found[-1].bytes) < 64 * 1024


def test_max_total_tokens_only_ever_makes_the_pool_smaller() -> None:
    assert pools(ask(max_total_tokens=1_000_000), 30).tokens == 999_936
    assert pools(ask(max_total_tokens=10**9), 30).tokens == pools(ask(), 30).tokens


def test_a_version_with_other_constants_is_named() -> None:
    assert layout.of("0.5.23") == (NOW, "")
    assert "costs more than in 0.5.23" in layout.of("0.5.17")[1]
    assert "SGLang 0.6.1 are not known" in layout.of("0.6.1")[1]
    assert "not known" in layout.of("0.5.14")[1]
    assert "this build" in layout.of("")[1]


def test_a_checkpoint_of_another_format_costs_the_same_per_token() -> None:
    assert {pools(ask(checkpoint=name), 30).tokens for name in ("fp4", "nvfp4", "fp8")} == {4_446_208}
    assert known(V4_FLASH, Experts.FP8).name == "V4-Flash FP8"
