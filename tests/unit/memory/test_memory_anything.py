"""Whatever is asked: every byte is accounted for, and more of one thing never gives more of another."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from dsv4ctl.memory import budget, gpus, recommend, remedy, verdict, weights
from dsv4ctl.memory.asked import Ask, Indexer, Measured, Speculation, Switches
from dsv4ctl.memory.figures import Part, total
from dsv4ctl.memory.sizes import gib
from dsv4ctl.memory.verdict import Answer
from dsv4ctl.model import Role

SPECULATIONS = st.none() | st.builds(
    Speculation, algorithm=st.sampled_from(("EAGLE", "DSPARK")), draft_tokens=st.integers(1, 8)
)
SWITCHES = st.builds(
    Switches,
    indexer=st.sampled_from((None, *Indexer)),
    state_bytes=st.sampled_from((2, 4)),
    direct_window=st.booleans(),
)
MEASURED = st.builds(
    Measured,
    free_at_start_bytes=st.none() | st.integers(gib(20), gib(90)),
    weights_bytes=st.none() | st.integers(gib(10), gib(200)),
    graphs_bytes=st.none() | st.integers(0, gib(10)),
)


@st.composite
def asks(draw: st.DrawFn) -> Ask:
    tp = draw(st.sampled_from((1, 2, 4, 8)))
    return Ask(
        role=draw(st.sampled_from((Role.SERVER, Role.PREFILL, Role.DECODE))),
        checkpoint=draw(st.sampled_from(tuple(weights.CHECKPOINTS.values()))),
        gpu=draw(st.sampled_from(gpus.CLASSES)),
        tp=tp,
        context_tokens=draw(st.integers(1, 2**21)),
        fraction=draw(st.none() | st.floats(0.05, 0.99)),
        chunk_tokens=draw(st.none() | st.sampled_from((-1, 512, 4096, 8192, 16384))),
        running_requests=draw(st.none() | st.integers(1, 2048)),
        graph_batch=draw(st.none() | st.integers(1, 512)),
        window_ratio=draw(st.none() | st.floats(0.0001, 1.0)),
        max_total_tokens=draw(st.none() | st.integers(1, 2**30)),
        attention_dp=draw(st.sampled_from([size for size in (1, 2, 4, 8) if size <= tp])),
        speculation=draw(SPECULATIONS),
        decode_graphs=draw(st.booleans()),
        switches=draw(SWITCHES),
        engine_version=draw(st.sampled_from(("0.5.23", "0.5.17", "0.5.10", "1.0"))),
        occupied_bytes=draw(st.integers(0, gib(10))),
        measured=draw(MEASURED),
    )


@given(asks())
@settings(max_examples=300, deadline=None)
def test_every_byte_of_a_gpu_belongs_to_one_figure(asked_for: Ask) -> None:
    made = budget.of(asked_for)

    assert total(made.figures) == asked_for.gpu.total_bytes
    assert made.free_at_start_bytes == made.weights_bytes + total(made.figures, Part.POOL) + made.slack_bytes
    assert made.slack_bytes == made.needed_slack_bytes + made.left_bytes


@given(asks())
@settings(max_examples=200, deadline=None)
def test_an_amount_lies_within_its_range(asked_for: Ask) -> None:
    for one in budget.of(asked_for).figures:
        assert one.low_bytes <= one.bytes <= one.high_bytes, one


@given(asks())
@settings(max_examples=200, deadline=None)
def test_only_left_and_the_rest_of_a_page_are_ever_negative(asked_for: Ask) -> None:
    for one in budget.of(asked_for).figures:
        assert one.bytes >= 0 or one.part is Part.LEFT or (one.name == "less than a page" and one.bytes > -65_536), one


@given(asks(), st.floats(0.05, 0.94))
@settings(max_examples=200, deadline=None)
def test_a_larger_fraction_never_makes_a_smaller_pool(asked_for: Ask, fraction: float) -> None:
    less, more = (budget.of(replace(asked_for, fraction=share)) for share in (fraction, fraction + 0.05))

    assert less.tokens <= more.tokens
    assert less.slack_bytes >= more.slack_bytes


@given(asks())
@settings(max_examples=200, deadline=None)
def test_a_verdict_always_has_a_reason_and_what_is_certain_does_not_fit(asked_for: Ask) -> None:
    found = verdict.of(budget.of(asked_for))

    assert found.reasons
    assert found.answer is Answer.DOES_NOT_FIT or not found.certain


@given(asks())
@settings(max_examples=40, deadline=None)
def test_what_a_remedy_says_fits(asked_for: Ask) -> None:
    if (found := remedy.of(asked_for)) is not None:
        assert verdict.of(budget.of(found.ask)).answer is not Answer.DOES_NOT_FIT


@given(asks())
@settings(max_examples=40, deadline=None)
def test_what_is_recommended_leaves_what_is_needed(asked_for: Ask) -> None:
    share = recommend.fraction(asked_for)

    if share is not None:
        made = budget.of(replace(asked_for, fraction=share))
        assert made.tokens > 0
        assert made.left_bytes >= min(recommend.SMALLER_MARGINS_BYTES)
