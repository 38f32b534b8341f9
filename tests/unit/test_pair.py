"""The judge of the pair: each verdict from what a probe saw, the real pair's own figures among them."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsv4ctl import pair
from dsv4ctl.engine.counters import Counts, Queues, parse_counts, parse_queues
from dsv4ctl.pair import Generation, Half, PairVerdict, Probed, judge, wants_second

NONCE = "k7-3f9a51"
RECORDED = Path(__file__).parent / "engine" / "recorded" / "pair"
CAME = Generation(status=200, text=f"{NONCE} 80\n{NONCE} 81", seconds=0.4)
STRANGE = Generation(status=200, text="5ox5ox5ox5ox", seconds=0.8)
TIMED_OUT = Generation(status=None, error="timed out", seconds=30)
IDLE = Counts(arrived=1, finished=1, generated_tokens=8)
ARRIVED = replace(IDLE, arrived=2)
DONE = replace(ARRIVED, finished=2, generated_tokens=16)
FAILED = replace(ARRIVED, failed=1)
NOWHERE, MEETING, HANDING, RUNNING = Queues(), Queues(meeting=1), Queues(handing=1), Queues(running=1)
WELL = Half(before=IDLE, after=DONE, queues=NOWHERE)
GOOD = Probed(nonce=NONCE, prefill=WELL, decode=WELL, first=CAME)


def recorded(moment: str, half: str) -> Half:
    """A half of the real pair at that moment, and one request earlier."""
    after = parse_counts((RECORDED / f"{moment}-{half}.metrics").read_text())
    queues = parse_queues((RECORDED / f"{moment}-{half}.json").read_bytes())
    assert after is not None
    answered = moment == "asked"
    before = replace(after, arrived=after.arrived - 1, finished=after.finished - answered)
    return Half(before=before, after=after, queues=queues)


def silent(prefill: tuple[Counts | None, Queues], decode: tuple[Counts | None, Queues]) -> Probed:
    halves = [Half(before=IDLE, after=after, queues=queues) for after, queues in (prefill, decode)]
    return Probed(nonce=NONCE, prefill=halves[0], decode=halves[1], first=TIMED_OUT)


def test_an_answer_that_repeats_the_nonce_and_that_both_have_counted_is_ok() -> None:
    assert judge(GOOD).verdict is PairVerdict.OK


def test_the_real_pair_is_ok_by_the_same_answer_twice_for_its_model_cannot_repeat() -> None:
    halves = {half: recorded("asked", half) for half in ("prefill", "decode")}
    asked = Probed(nonce=NONCE, prefill=halves["prefill"], decode=halves["decode"], first=STRANGE, second=STRANGE)
    assert wants_second(STRANGE, NONCE)
    assert judge(asked).verdict is PairVerdict.OK


@pytest.mark.parametrize("stuck", [PairVerdict.PREFILL, PairVerdict.DECODE])
def test_the_half_of_the_real_pair_whose_scheduler_was_stopped_is_at_fault(stuck: PairVerdict) -> None:
    halves = {half: recorded(f"stuck-{stuck}", half) for half in ("prefill", "decode")}
    asked = Probed(nonce=NONCE, prefill=halves["prefill"], decode=halves["decode"], first=TIMED_OUT)
    assert judge(asked).verdict is stuck


@pytest.mark.parametrize(
    ("probed", "verdict"),
    [
        (replace(GOOD, prefill=Half(trouble="refused"), decode=Half(trouble="refused")), PairVerdict.PREFILL),
        (replace(GOOD, decode=Half(trouble="status 503"), router_trouble="status 503"), PairVerdict.DECODE),
        (replace(GOOD, router_trouble="status 503"), PairVerdict.ROUTER),
    ],
)
def test_b79_whoever_is_not_ready_is_named_and_a_half_before_the_router(probed: Probed, verdict: PairVerdict) -> None:
    assert judge(replace(probed, first=None)).verdict is verdict


@pytest.mark.parametrize("idle", ["prefill", "decode"])
def test_an_answer_that_one_half_has_not_counted_came_from_elsewhere(idle: str) -> None:
    untouched = Half(before=IDLE, after=IDLE, queues=NOWHERE)
    found = judge(replace(GOOD, prefill=untouched) if idle == "prefill" else replace(GOOD, decode=untouched))
    assert found.verdict is PairVerdict.ROUTER
    assert f"{idle} did nothing for it" in found.words


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (replace(CAME, text=""), None),
        (replace(CAME, text=" \n"), None),
        (STRANGE, None),
        (STRANGE, replace(STRANGE, text="5ox6ox")),
        (STRANGE, TIMED_OUT),
    ],
)
def test_an_answer_that_is_nothing_or_not_the_same_twice_is_garbage(first: Generation, second: Generation) -> None:
    assert judge(replace(GOOD, first=first, second=second)).verdict is PairVerdict.GARBAGE


def test_a_model_that_must_repeat_is_not_excused_by_the_same_nonsense_twice() -> None:
    same = replace(GOOD, first=STRANGE, second=STRANGE)
    assert judge(same).verdict is PairVerdict.OK
    assert judge(replace(same, must_repeat=True)).verdict is PairVerdict.GARBAGE


@pytest.mark.parametrize(
    ("prefill", "decode", "verdict"),
    [
        ((None, NOWHERE), (ARRIVED, HANDING), PairVerdict.PREFILL),
        ((ARRIVED, HANDING), (None, NOWHERE), PairVerdict.DECODE),
        ((IDLE, NOWHERE), (IDLE, NOWHERE), PairVerdict.ROUTER),
        ((IDLE, NOWHERE), (ARRIVED, MEETING), PairVerdict.ROUTER),
        ((ARRIVED, MEETING), (IDLE, NOWHERE), PairVerdict.ROUTER),
        ((FAILED, NOWHERE), (ARRIVED, HANDING), PairVerdict.HAND_OFF),
        ((ARRIVED, MEETING), (FAILED, NOWHERE), PairVerdict.HAND_OFF),
        ((ARRIVED, HANDING), (ARRIVED, HANDING), PairVerdict.HAND_OFF),
        ((ARRIVED, MEETING), (ARRIVED, MEETING), PairVerdict.HAND_OFF),
        ((DONE, NOWHERE), (ARRIVED, HANDING), PairVerdict.HAND_OFF),
        ((DONE, NOWHERE), (ARRIVED, RUNNING), PairVerdict.DECODE),
        ((DONE, NOWHERE), (ARRIVED, NOWHERE), PairVerdict.DECODE),
        ((ARRIVED, MEETING), (ARRIVED, NOWHERE), PairVerdict.DECODE),
        ((ARRIVED, NOWHERE), (ARRIVED, HANDING), PairVerdict.PREFILL),
        ((ARRIVED, NOWHERE), (ARRIVED, NOWHERE), PairVerdict.PREFILL),
    ],
)
def test_a_request_without_an_answer_is_followed_to_where_it_is(
    prefill: tuple[Counts | None, Queues], decode: tuple[Counts | None, Queues], verdict: PairVerdict
) -> None:
    found = judge(silent(prefill, decode))
    assert found.verdict is verdict
    assert found.words.startswith("no answer within 30 s (timed out): ")


def test_a_status_of_the_router_is_told() -> None:
    refused = replace(silent((IDLE, NOWHERE), (IDLE, NOWHERE)), first=Generation(status=503, seconds=0.4))
    assert judge(refused).verdict is PairVerdict.ROUTER
    assert "the router says status 503" in judge(refused).words


def test_a_half_that_was_started_again_counts_from_its_start() -> None:
    again = Half(before=Counts(arrived=90, finished=90), after=Counts(arrived=1, finished=1), queues=NOWHERE)
    assert judge(replace(GOOD, prefill=again)).verdict is PairVerdict.OK


def test_the_prompt_is_new_from_its_first_word_on_and_crosses_several_pages() -> None:
    text = pair.prompt(NONCE)
    assert text.startswith(NONCE)
    # No tokenizer makes one token of more than a whole word; pages are of 256 tokens.
    assert len(text.split()) / 2 * 6 > 256
    assert text.count(NONCE) == pair.LINES - 1
    assert pair.payload("dsv4", NONCE)["temperature"] == 0


@pytest.mark.parametrize(("first", "wants"), [(CAME, False), (STRANGE, True), (TIMED_OUT, False), (None, False)])
def test_only_an_answer_that_shows_nothing_is_asked_for_again(first: Generation | None, wants: bool) -> None:  # noqa: FBT001 -- a parameter
    assert wants_second(first, NONCE) is wants


counted = st.builds(
    Counts, arrived=st.integers(0, 3), finished=st.integers(0, 3), generated_tokens=st.just(0), failed=st.integers(0, 1)
)
queued = st.builds(Queues, running=st.integers(0, 1), meeting=st.integers(0, 1), handing=st.integers(0, 1))
half = st.builds(
    Half,
    trouble=st.sampled_from(["", "refused"]),
    before=st.none() | counted,
    after=st.none() | counted,
    queues=st.none() | queued,
)
answer = st.none() | st.sampled_from([CAME, STRANGE, TIMED_OUT, replace(CAME, text="")])


@given(st.builds(Probed, nonce=st.just(NONCE), prefill=half, decode=half, first=answer, second=answer))
def test_ok_is_never_said_without_an_answer_and_both_counters_moved(probed: Probed) -> None:
    found = judge(probed)
    assert found.words
    if found.verdict is PairVerdict.OK:
        assert probed.first in (CAME, STRANGE)
        for one in (probed.prefill, probed.decode):
            assert one.after is not None
            assert one.after.finished > 0
            assert not one.trouble


SAME = "no nonce in it"


@pytest.mark.parametrize(
    ("first", "second", "verdict", "words"),
    [
        (Generation(status=200, text=f"{NONCE} 80"), None, "ok", "repeats the nonce"),
        (Generation(status=200, text=SAME), Generation(status=200, text=SAME), "ok", "is the same twice"),
        (Generation(status=200, text=SAME), Generation(status=200, text="another"), "garbage", "and then 'another'"),
        (Generation(status=200, text=" "), None, "garbage", "the answer is empty"),
        (Generation(status=500, seconds=1), None, "router", "it says status 500"),
        (Generation(status=None, error="it was given up", seconds=5), None, "router", "no answer within 5 s"),
    ],
)
def test_whole_servers_are_judged_by_their_answer_alone(
    first: Generation, second: Generation | None, verdict: str, words: str
) -> None:
    judged = pair.judge_servers(first, second, NONCE)

    assert judged.verdict == verdict
    assert words in judged.words


def test_every_verdict_but_ok_says_what_to_type() -> None:
    assert {verdict for verdict in PairVerdict if not pair.ADVICE[verdict]} == {PairVerdict.OK}
