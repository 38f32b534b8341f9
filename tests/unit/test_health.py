"""What an engine's answers mean."""

import json
from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsv4ctl import health
from dsv4ctl.engine import bodies
from dsv4ctl.engine.questions import Question
from dsv4ctl.health import Answers, Pulse, Verdict, Want
from dsv4ctl.model import Role
from dsv4ctl.pair import UNPROVED, Judged, PairVerdict


@dataclass(frozen=True)
class Answer:
    status: int | None
    body: bytes = b""
    error: str = ""


OK = Answer(200)
NO_PATH = Answer(404)
BUSY = Answer(503)
SILENT = Answer(None, error="connection refused")
WANT = Want(model="dsv4", context_length=524288)


def models(name: str = "dsv4", context: int | None = 524288) -> Answer:
    return Answer(200, json.dumps({"data": [{"id": name, "max_model_len": context}]}).encode())


def generation(text: str = " Paris") -> Answer:
    return Answer(200, json.dumps({"choices": [{"text": text}]}).encode())


def test_an_engine_that_was_not_asked_yet_is_asked_whether_it_is_ready() -> None:
    finding = health.judge(WANT, Answers())
    assert (finding.verdict, finding.ask) == (Verdict.WAIT, Question.READY)


@pytest.mark.parametrize("answer", [BUSY, SILENT, Answer(500), Answer(302)])
def test_anything_but_200_from_ready_is_waited_for(answer: Answer) -> None:
    finding = health.judge(WANT, Answers(ready=answer))
    assert (finding.verdict, finding.ask, finding.proving) == (Verdict.WAIT, Question.READY, False)


def test_ready_alone_is_not_ready() -> None:
    finding = health.judge(WANT, Answers(ready=OK))
    assert (finding.verdict, finding.ask, finding.proving) == (Verdict.WAIT, Question.MODELS, True)


def test_a_build_without_ready_needs_its_log_line_and_then_health() -> None:
    silent = health.judge(WANT, Answers(ready=NO_PATH))
    told = health.judge(WANT, Answers(ready=NO_PATH, ready_line=True))
    sick = health.judge(WANT, Answers(ready=NO_PATH, ready_line=True, health=BUSY))
    well = health.judge(WANT, Answers(ready=NO_PATH, ready_line=True, health=OK))
    assert [f.ask for f in (silent, told, sick, well)] == [
        Question.READY,
        Question.HEALTH,
        Question.HEALTH,
        Question.MODELS,
    ]


def test_health_is_given_longer_than_the_second_it_always_takes() -> None:
    assert health.TIMEOUTS_S[Question.HEALTH] > 20


@pytest.mark.parametrize("served", ["other", "DSV4", "dsv4-flash"])
def test_another_model_is_a_failure_that_names_what_is_served(served: str) -> None:
    finding = health.judge(WANT, Answers(ready=OK, models=models(served)))
    assert finding.verdict is Verdict.FAILED
    assert f"serves {served}, not dsv4" in finding.words


def test_another_context_length_is_a_failure_when_one_was_asked_for() -> None:
    answers = Answers(ready=OK, models=models(context=8192))
    assert "context length 8192, not 524288" in health.judge(WANT, answers).words
    assert health.judge(Want(model="dsv4"), answers).ask is Question.GENERATION


@pytest.mark.parametrize("status", [401, 403])
@pytest.mark.parametrize("where", ["ready", "models", "generation"])
def test_a_refused_key_is_a_key_problem_and_not_a_wait(status: int, where: str) -> None:
    asked: dict[str, Answer] = {"ready": OK, "models": models(), where: Answer(status)}
    answers = Answers(ready=asked["ready"], models=asked["models"], generation=asked.get("generation"))
    finding = health.judge(Want(model="dsv4", keyed=True), answers)
    assert finding.verdict is Verdict.FAILED
    assert "key problem" in finding.words
    assert "refuses the key" in finding.words


def test_a_key_that_is_asked_for_and_not_configured_is_told_apart() -> None:
    finding = health.judge(WANT, Answers(ready=OK, models=Answer(401)))
    assert "none is configured" in finding.words


def test_an_engine_is_ready_once_a_generation_gave_text() -> None:
    finding = health.judge(WANT, Answers(ready=OK, models=models(), generation=generation()))
    assert (finding.verdict, finding.ask) == (Verdict.READY, None)


@pytest.mark.parametrize("answer", [generation(""), BUSY, SILENT, Answer(429), Answer(200, b"not json"), Answer(200)])
def test_no_text_is_not_ready_and_asked_again(answer: Answer) -> None:
    finding = health.judge(WANT, Answers(ready=OK, models=models(), generation=answer))
    assert (finding.verdict, finding.ask) == (Verdict.WAIT, Question.GENERATION)


def test_a_refused_generation_is_a_failure_with_the_engines_own_reason() -> None:
    body = json.dumps({"error": {"message": "no bootstrap room id"}}).encode()
    finding = health.judge(WANT, Answers(ready=OK, models=models(), generation=Answer(400, body)))
    assert finding.verdict is Verdict.FAILED
    assert "says 400 (no bootstrap room id)" in finding.words


_bodies = st.one_of(
    st.binary(), st.recursive(st.none() | st.integers() | st.text(), st.lists).map(lambda v: json.dumps(v).encode())
)
_answers = st.none() | st.builds(Answer, st.none() | st.integers(100, 599), _bodies, st.text(max_size=5))


@given(ready=_answers, sick=_answers, served=_answers, made=_answers, line=st.booleans())
def test_whatever_comes_back_there_is_a_verdict_and_only_a_wait_asks(
    *, ready: Answer | None, sick: Answer | None, served: Answer | None, made: Answer | None, line: bool
) -> None:
    finding = health.judge(WANT, Answers(ready=ready, health=sick, models=served, generation=made, ready_line=line))
    assert (finding.ask is not None) == (finding.verdict is Verdict.WAIT)
    assert finding.words


def load(**counts: object) -> bytes:
    return json.dumps({"loads": [counts]}).encode()


def test_an_engine_that_fails_its_probes_for_the_limit_is_unhealthy() -> None:
    pulse = health.beat(Pulse(), "/health says 503", (), 100.0)
    pulse = health.beat(pulse, "/health says 503", (), 390.0)
    assert not health.unhealthy(pulse, 399.9, 300)
    assert health.unhealthy(pulse, 400.0, 300)


def test_one_good_answer_ends_a_bad_time() -> None:
    pulse = health.beat(Pulse(), "/health says 503", (), 0.0)
    pulse = health.beat(pulse, "", (), 200.0)
    pulse = health.beat(pulse, "/health says 503", (), 250.0)
    assert not health.unhealthy(pulse, 400.0, 300)


def test_tokens_that_are_made_are_a_sign_of_life_under_a_failing_health() -> None:
    pulse = Pulse()
    for now in range(0, 1000, 30):
        pulse = health.beat(pulse, "/health says 503", bodies.work_mark(load(num_used_tokens=now)), now)
    assert not health.unhealthy(pulse, 1000.0, 300)


def test_a_queue_that_grows_is_no_sign_of_life() -> None:
    pulse = Pulse()
    for now in range(0, 400, 30):
        mark = bodies.work_mark(load(num_used_tokens=7, num_waiting_reqs=now))
        pulse = health.beat(pulse, "/health says 503", mark, now)
    assert health.unhealthy(pulse, 390.0, 300)


def test_a_probe_that_could_not_read_the_loads_is_no_sign_of_life() -> None:
    mark = bodies.work_mark(load(num_used_tokens=7))
    pulse = health.beat(health.beat(health.beat(Pulse(), "x", mark, 0.0), "x", (), 100.0), "x", mark, 200.0)
    assert pulse.failing_since == 0.0


# ---- by role ---------------------------------------------------------------------------------------------------------


def test_b74_a_half_is_whole_without_a_generation() -> None:
    asked = Answers(ready=OK, models=models())
    assert health.judge(replace(WANT, role=Role.DECODE), asked).verdict is Verdict.READY
    assert health.judge(replace(WANT, role=Role.PREFILL), replace(asked, route=OK)).verdict is Verdict.READY


@pytest.mark.parametrize("route", [None, BUSY, SILENT])
def test_a_prefill_waits_until_all_its_ranks_have_registered(route: Answer | None) -> None:
    finding = health.judge(replace(WANT, role=Role.PREFILL), Answers(ready=OK, models=models(), route=route))
    assert (finding.verdict, finding.ask) == (Verdict.WAIT, Question.ROUTE)


def test_halves_of_builds_without_ready_are_asked_for_their_health() -> None:
    old = Answers(ready=NO_PATH, ready_line=True)
    assert health.judge(replace(WANT, role=Role.DECODE), old).ask is Question.HEALTH


@pytest.mark.parametrize("role", [Role.PREFILL, Role.DECODE, Role.ROUTER])
def test_another_model_fails_every_role(role: Role) -> None:
    answers = Answers(ready=OK, readiness=OK, route=OK, models=models("other"))
    finding = health.judge(replace(WANT, role=role), answers)
    assert finding.verdict is Verdict.FAILED
    assert f"the {role.program} serves other, not dsv4" in finding.words


def test_b79_a_router_is_ready_with_its_workers_and_one_generation_through_it_and_not_before() -> None:
    want = replace(WANT, role=Role.ROUTER)
    alone = Answer(503, b'{"status":"not ready","reason":"insufficient healthy workers"}')
    waits = health.judge(want, Answers(readiness=alone))
    assert (waits.ask, waits.proving) == (Question.READINESS, False)
    assert "insufficient healthy workers" in waits.words
    # It names no context length.
    fronts = Answers(readiness=OK, models=models(context=None))
    assert (health.judge(want, fronts).ask, health.judge(want, fronts).proving) == (Question.GENERATION, True)
    assert health.judge(want, replace(fronts, generation=generation())).verdict is Verdict.READY


@pytest.mark.parametrize(
    ("found", "verdict"),
    [
        (PairVerdict.OK, Verdict.READY),
        (PairVerdict.HAND_OFF, Verdict.WAIT),
        (PairVerdict.DECODE, Verdict.WAIT),
        (PairVerdict.GARBAGE, Verdict.FAILED),
    ],
)
def test_b79_a_pairs_router_is_ready_when_a_generation_has_crossed_and_says_whose_fault_it_is_when_not(
    found: PairVerdict, verdict: Verdict
) -> None:
    came = Answers(readiness=OK, models=models(), generation=Answer(200), judged=Judged(found, "so it is"))
    finding = health.judge(replace(WANT, role=Role.ROUTER), came)
    assert (finding.verdict, finding.words) == (verdict, f"{found}: so it is")
    assert (finding.ask is Question.GENERATION) == (verdict is Verdict.WAIT)
    assert finding.advice == UNPROVED[found]


def test_a_pairs_router_that_refuses_the_key_or_the_request_is_not_asked_again() -> None:
    for status, words in ((401, "key problem"), (400, "refuses to generate")):
        came = Answers(
            readiness=OK, models=models(), generation=Answer(status), judged=Judged(PairVerdict.ROUTER, "no answer")
        )
        finding = health.judge(replace(WANT, role=Role.ROUTER), came)
        assert finding.verdict is Verdict.FAILED
        assert words in finding.words
