"""What cannot be is said in a sentence with the way out, and only what is certain is refused."""

from dataclasses import replace
from typing import Any

import pytest

from dsv4ctl.memory import budget, remedy, verdict
from dsv4ctl.memory.asked import Ask, Indexer, Speculation, Switches
from dsv4ctl.memory.sizes import gib
from dsv4ctl.memory.verdict import Answer, Verdict
from tests.plans import EAGLE, ask

MILLION = 1_048_576


def judged(**flags: Any) -> Verdict:
    return verdict.of(budget.of(ask(**flags)))


def change(asked_for: Ask) -> str:
    found = remedy.of(asked_for)
    assert found is not None
    assert verdict.of(budget.of(found.ask)).answer is not Answer.DOES_NOT_FIT
    return found.words


def test_a_usual_config_fits_even_at_the_worst_of_all_estimates() -> None:
    found = judged(fraction=0.88)

    assert found.answer is Answer.FITS
    assert found.reasons[0].startswith("49 requests of 131072 (128k) tokens at once")


def test_a_config_that_only_fits_if_the_estimates_are_right_is_tight() -> None:
    found = judged(fraction=0.92)

    assert (found.answer, found.certain) == (Answer.TIGHT, False)
    assert "would be missing if every estimate were at its high end" in found.reasons[0]


def test_the_limit_at_1m_on_rtx_pro_6000_is_named_as_prefill_logits_against_slack() -> None:
    found = judged(tp=8, context_tokens=MILLION)

    assert found.answer is Answer.DOES_NOT_FIT
    assert found.reasons == (
        "it is prefill logits against slack: 14.6 GiB are needed (prefill logits 8.58 GB) and mem-fraction-static "
        "0.857 leaves 13.4 GiB",
    )
    assert not found.certain


@pytest.mark.parametrize(("context", "chunk"), [(524_288, 4096), (MILLION, 4096)])
def test_what_lifts_the_limit_is_a_chunk_size_or_the_other_indexer(context: int, chunk: int) -> None:
    asked_for = ask(tp=8, context_tokens=context)

    assert "prefill logits against slack" in verdict.limit(budget.of(asked_for))
    assert [one.words for one in remedy.lifts(asked_for)] == [
        f"--chunked-prefill-size {chunk}",
        "SGLANG_OPT_USE_TILELANG_INDEXER=0 and SGLANG_FP8_PAGED_MQA_LOGITS_TORCH=0 in [engine.environment]",
    ]


def test_where_deepgemm_cuts_logits_the_limit_is_the_pool() -> None:
    assert verdict.limit(budget.of(ask("h200", context_tokens=524_288))).startswith("the KV pool")
    assert remedy.lifts(ask("h200", context_tokens=524_288)) == ()


def test_a_context_above_the_models_is_refused() -> None:
    found = judged(context_tokens=2 * MILLION, fraction=0.80)

    assert found.certain
    assert found.reasons == (
        "context 2097152 (2M) is above the model's 1048576 (1M): ask for --context-length 1048576 at most",
    )
    assert change(ask(context_tokens=2 * MILLION, fraction=0.80)) == "--context-length 1048576"


def test_a_longer_context_may_be_forced_as_with_the_engine() -> None:
    assert "above the model's" not in str(judged(context_tokens=2 * MILLION, switches=Switches(longer_context=True)))


def test_a_pool_smaller_than_the_context_is_refused() -> None:
    flags: dict[str, Any] = {"tp": 2, "context_tokens": MILLION, "running_requests": None, "fraction": 0.83}

    found = judged(**flags)

    assert found.certain
    assert found.reasons[0].startswith("the KV pool holds ")
    assert found.reasons[0].endswith("tokens, fewer than one request of 1048576 (1M)")
    assert change(ask(**flags)) == "--chunked-prefill-size 2048 --mem-fraction-static 0.90"


def test_a_pool_that_may_be_large_enough_within_its_range_is_not_refused() -> None:
    # Served a prompt of 780k: https://github.com/ormandj/sglang-deepseek-v4-flash-sm120
    flags: dict[str, Any] = {"tp": 2, "fraction": 0.93, "running_requests": 48, "graph_batch": 32}
    switches = Switches(indexer=Indexer.DEEPGEMM, logits_share=0.8)
    dspark = Speculation(algorithm="DSPARK", draft_tokens=5)

    made = budget.of(
        ask(**flags, context_tokens=786_432, speculation=dspark, switches=switches, engine_version="0.5.19")
    )

    assert made.tokens_range[0] < 801_536 < made.tokens_range[1]
    assert not verdict.of(made).certain


def test_more_requests_at_once_than_the_pool_holds_do_not_fit() -> None:
    found = judged(context_tokens=MILLION, chunk_tokens=2048, fraction=0.88, requests=7)

    assert found.reasons == ("the KV pool holds 6 requests of 1048576 (1M) at once, and 7 are asked for",)


def test_a_window_pool_too_small_for_one_request_is_refused() -> None:
    found = judged(window_ratio=0.00005, fraction=0.8)

    assert found.certain
    assert found.reasons == (
        "the window pool holds 256 tokens, and one request needs more than 384: raise --swa-full-tokens-ratio to "
        "0.0001",
    )


def test_a_window_pool_smaller_than_the_running_requests_need_is_warned_about() -> None:
    found = judged(window_ratio=0.005, fraction=0.8)

    assert found.answer is Answer.FITS
    assert "fewer will run at once" in found.warnings[0]


def test_a_fraction_below_the_weights_is_refused() -> None:
    found = judged(fraction=0.35)

    assert found.certain
    assert found.reasons == (
        "mem-fraction-static 0.35 is below the weights: they take 39.3 of 94.0 GiB, so it must be above 0.418",
    )
    assert change(ask(fraction=0.35)) == "--mem-fraction-static 0.44"


def test_weights_above_the_gpu_want_more_ranks() -> None:
    found = judged(tp=1)

    assert found.certain
    assert found.reasons == (
        "the weights take 146.1 GiB and rtx-pro-6000 has 94.0 GiB free: use more ranks, or a smaller checkpoint",
    )
    assert change(ask(tp=1)) == "--mode single-tp4"


def test_nothing_fits_a_model_above_eight_gpus() -> None:
    assert remedy.of(ask("l20", checkpoint="v4-pro", tp=8)) is None


def test_the_torch_indexer_is_refused_beyond_64k() -> None:
    found = judged(switches=Switches(indexer=Indexer.TORCH), fraction=0.5)

    assert found.certain
    assert "leave SGLANG_OPT_USE_TILELANG_INDEXER unset" in found.reasons[0]


def test_the_fp4_indexer_needs_deepgemm() -> None:
    assert "needs DeepGEMM" in judged(fp4_indexer=True).reasons[0]
    assert judged(fp4_indexer=True, fraction=0.85, switches=Switches(indexer=Indexer.DEEPGEMM)).answer is Answer.FITS


def test_what_others_hold_is_missing() -> None:
    plain, occupied = (budget.of(ask(occupied_bytes=amount)) for amount in (0, gib(20)))

    assert plain.free_at_start_bytes - occupied.free_at_start_bytes == gib(20)
    assert occupied.tokens < plain.tokens
    assert occupied.bytes_of("held by others") == gib(20)


def test_a_budget_below_5_gib_is_called_imprecise() -> None:
    found = judged(tp=2, fraction=0.83, running_requests=8, context_tokens=8192)

    assert any("the budget of the KV pool is 3.1 GiB: below 5.0 GiB" in warning for warning in found.warnings)


def test_an_nvfp4_checkpoint_off_sm100_is_told_which_kernels_to_take() -> None:
    assert any("flashinfer_cutlass" in warning for warning in judged(checkpoint="nvfp4").warnings)
    assert not any("flashinfer_cutlass" in w for w in judged(gpu="b200", checkpoint="nvfp4").warnings)


def test_what_no_log_confirms_is_said() -> None:
    found = judged(gpu="b200", tp=8, checkpoint="v4-pro")

    assert any("no log of V4-Pro FP4 confirms its weights" in warning for warning in found.warnings)
    assert any("what is free on b200" in warning for warning in found.warnings)


@pytest.mark.parametrize("speculation", [None, EAGLE])
def test_a_remedy_changes_one_thing_and_perhaps_the_fraction(speculation: Speculation | None) -> None:
    asked_for = ask(tp=8, context_tokens=MILLION, fraction=0.90, speculation=speculation)

    found = remedy.of(asked_for)

    assert found is not None
    assert found.ask == replace(asked_for, fraction=found.ask.fraction)
    assert found.words == f"--mem-fraction-static {found.ask.fraction:.2f}"
