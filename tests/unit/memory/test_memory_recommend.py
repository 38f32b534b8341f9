"""The recommended flags are those that public logs and the limits of section by section arithmetic lead to."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from dsv4ctl.memory import budget, compare, explain, recommend, verdict
from dsv4ctl.memory.recommend import Advice
from dsv4ctl.memory.sizes import gib
from dsv4ctl.memory.verdict import Answer
from tests.plans import EAGLE, ask

CONTEXTS = (131_072, 524_288, 1_048_576)


def advised(gpu: str = "rtx-pro-6000", **flags: Any) -> dict[str, str]:
    return {one.option: one.value for one in advice(gpu, **flags).choices}


def advice(gpu: str = "rtx-pro-6000", **flags: Any) -> Advice:
    return recommend.advise(ask(gpu, **({"running_requests": None} | flags)))


@pytest.mark.parametrize(
    ("context", "chunk", "running", "expected"),
    [
        (131_072, 8192, 64, 0.88),
        (524_288, 4096, 64, 0.88),
        (524_288, 8192, 64, 0.85),
        (1_048_576, 2048, 32, 0.88),
        (1_048_576, 4096, 32, 0.86),
        (1_048_576, 8192, 64, 0.80),
    ],
)
def test_the_fraction_that_rtx_pro_6000_is_recommended(context: int, chunk: int, running: int, expected: float) -> None:
    flags: dict[str, Any] = {"context_tokens": context, "chunk_tokens": chunk, "running_requests": running}

    assert recommend.fraction(ask(**flags)) == expected


@pytest.mark.parametrize(
    ("context", "expected"),
    [
        (131_072, ("0.88", "8192", "64", "64", "0.1", "TileLang")),
        (524_288, ("0.88", "4096", "64", "64", "0.1", "TileLang")),
        (1_048_576, ("0.88", "2048", "32", "32", "0.1", "TileLang")),
    ],
)
def test_the_flags_for_a_context_on_rtx_pro_6000(context: int, expected: tuple[str, ...]) -> None:
    assert tuple(advised(context_tokens=context).values()) == expected
    assert tuple(advised(context_tokens=context, tp=8).values()) == expected


@pytest.mark.parametrize("gpu", ["rtx-pro-6000", "h20", "h100", "h200", "b200", "b300"])
@pytest.mark.parametrize("context", CONTEXTS)
@pytest.mark.parametrize("speculation", [None, EAGLE])
def test_what_is_recommended_fits_and_a_hundredth_more_would_take_of_the_named_slack(
    gpu: str, context: int, speculation: object
) -> None:
    made = advice(gpu, context_tokens=context, tp=8, speculation=speculation).budget

    more = budget.of(replace(made.ask, fraction=round(made.flags.fraction + 0.01, 2)))

    assert verdict.of(made).answer is Answer.FITS
    assert made.slack_bytes >= recommend.kept_slack_bytes(made)
    assert more.slack_bytes < recommend.kept_slack_bytes(more)


def test_speculation_keeps_more_free() -> None:
    plain, drafted = recommend.fraction(ask()), recommend.fraction(ask(speculation=EAGLE))

    assert plain is not None
    assert drafted is not None
    assert drafted <= plain - 0.02


def test_requests_that_shall_run_at_once_are_kept_and_the_rest_follows() -> None:
    assert advised(running_requests=128)["--max-running-requests"] == "128"
    assert advised(running_requests=128)["--cuda-graph-max-bs-decode"] == "128"


def test_the_window_pool_is_made_smaller_only_for_what_else_would_not_fit() -> None:
    few, many = (advised(context_tokens=1_048_576, requests=count, tp=2) for count in (1, 2))

    assert few["--swa-full-tokens-ratio"] == "0.1"
    assert many["--swa-full-tokens-ratio"] == "0.05"


def test_a_smaller_margin_is_taken_before_nothing_is_served() -> None:
    for_one = ask(tp=2, context_tokens=1_048_576, chunk_tokens=4096, running_requests=32)

    share = recommend.fraction(for_one)

    assert share is not None
    made = budget.of(replace(for_one, fraction=share))
    assert made.fitting >= 1
    assert made.slack_bytes - made.needed_slack_bytes < recommend.MARGIN_BYTES


def test_no_fraction_is_recommended_where_none_has_a_pool() -> None:
    assert recommend.fraction(ask(tp=1)) is None


def test_every_choice_has_its_reason() -> None:
    for choice in advice(context_tokens=1_048_576).choices:
        assert len(choice.why) > 30
        assert choice.key == (f"memory.{choice.option[2:].replace('-', '_')}" if choice.option[:2] == "--" else "")


def test_a_longer_context_costs_short_requests_concurrency_and_nothing_else() -> None:
    rows = compare.rows(ask(running_requests=None), CONTEXTS)

    assert [row.short for row in rows] == [64, 64, 32]
    assert [row.cost(rows[0]) for row in rows] == [0.0, 0.0, 0.5]
    assert all(before.budget.fitting > after.budget.fitting for before, after in pairwise(rows))


def test_the_three_questions_are_answered_with_numbers() -> None:
    asked_for = ask(context_tokens=524_288)

    large, long, others = explain.answers(budget.of(asked_for), recommend.advise(asked_for))

    assert "It could be 4% larger, 6,480,896 tokens, with --mem-fraction-static 0.88" in large
    assert "524288 (512k): yes, 12 at once" in long
    assert "1048576 (1M): yes, 6 at once" in long
    assert "it is prefill logits against slack" in long
    assert others.startswith("In compute, no:")
    assert "In concurrency:" in others


def test_an_answer_of_yes_is_given_when_nothing_larger_is_recommended() -> None:
    best = advice(context_tokens=131_072)

    assert "Yes: what is recommended holds 6,480,896" in explain.as_large(best.budget, best)


def test_a_gpu_of_48_gib_keeps_a_tenth() -> None:
    made = advice("l20", tp=8, context_tokens=32_768, running_requests=8).budget

    assert made.slack_bytes >= gib(4.4)
