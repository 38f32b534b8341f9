"""What answers of an engine or a router mean: WAIT, READY or FAILED, why, what to ask next. Asks nobody."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, assert_never

from dsv4ctl.engine.bodies import generated_text, own_reason, served_models
from dsv4ctl.engine.questions import Question
from dsv4ctl.model import Role
from dsv4ctl.pair import UNPROVED, Judged, PairVerdict


class Verdict(StrEnum):
    """What is to be made of the answers so far."""

    WAIT = "wait"
    READY = "ready"
    FAILED = "failed"


class Reply(Protocol):
    """An HTTP answer: `status` is None when no whole answer came, and `error` says why."""

    @property
    def status(self) -> int | None: ...

    @property
    def body(self) -> bytes: ...

    @property
    def error(self) -> str: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Want:
    """What the answers must name. `context_length` None: the engine's own is taken. `keyed`: a key is sent."""

    model: str
    role: Role = Role.SERVER
    context_length: int | None = None
    keyed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """The last answer to each question, and whether the engine has logged that it is ready.

    `judged`: what became of the generation behind a pair's router, and by whose fault. `busy`: who else probes, so that
    no generation was asked for.
    """

    ready: Reply | None = None
    readiness: Reply | None = None
    health: Reply | None = None
    route: Reply | None = None
    models: Reply | None = None
    generation: Reply | None = None
    judged: Judged | None = None
    busy: str = ""
    ready_line: bool = False


@dataclass(frozen=True, slots=True)
class Finding:
    """The verdict, its reason for people, while it is WAIT what to ask next, what to type if it comes to nothing."""

    verdict: Verdict
    words: str
    ask: Question | None = None
    advice: str = ""

    @property
    def proving(self) -> bool:
        """Whether it calls itself ready, so that it is our proof that is awaited and no longer the engine."""
        return self.ask not in (Question.READY, Question.READINESS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pulse:
    """What is known of a serving engine. `failing_since` (any clock's seconds) is None while it answers."""

    failing_since: float | None = None
    words: str = ""
    mark: tuple[object, ...] = ()


# /health takes 1.0 s by construction and up to 20 s before it turns into a 503 (SGLANG_HEALTH_CHECK_TIMEOUT).
HEALTH_TIMEOUT_S = 25.0
# A first generation may compile kernels, so it is given as long as the proof has; these bound the cheap questions only.
TIMEOUTS_S: Mapping[Question, float] = {
    **dict.fromkeys((Question.READY, Question.READINESS, Question.ROUTE, Question.MODELS), 5.0),
    Question.HEALTH: HEALTH_TIMEOUT_S,
}


def judge(want: Want, answers: Answers) -> Finding:
    """Judge a start by its role.

    1. any answer 401 or 403: FAILED, for the key is wrong and no waiting helps
    2. an engine's /ready 200, or, where the build has no /ready, the ready log line and then /health 200; a router's
       /readiness 200: a healthy prefill and a healthy decode are behind it (its /health says 200 without any)
    3. a prefill: all its ranks have registered, so that a decode can meet them
    4. /v1/models names the model asked for, with the context length asked for; a router does not tell that
    5. a server and a router: one generation gave text, and behind a pair's router it crossed both halves. A half is
       never sent one: without a partner it may die of it
    """
    if refused := _refused_key(want, answers):
        return refused
    match want.role:
        case Role.SERVER:
            return _engine_says(answers) or _serves(want, answers) or _generates(want, answers)
        case Role.PREFILL:
            return _engine_says(answers) or _registered(answers) or _serves(want, answers) or _whole_half()
        case Role.DECODE:
            return _engine_says(answers) or _serves(want, answers) or _whole_half()
        case Role.ROUTER:
            return _router_says(answers) or _serves(want, answers) or _generates(want, answers)
        case _:
            assert_never(want.role)


def _refused_key(want: Want, answers: Answers) -> Finding | None:
    asked = {Question.MODELS: answers.models, Question.GENERATION: answers.generation, Question.READY: answers.ready}
    for question, reply in asked.items():
        if reply is not None and reply.status in (401, 403):
            what = "refuses the key it is sent" if want.keyed else "asks for a key, and none is configured"
            words = f"key problem: the {want.role.program} {what} ({question} says {reply.status})"
            return Finding(Verdict.FAILED, words)
    return None


def _engine_says(answers: Answers) -> Finding | None:
    ready = answers.ready
    if ready is not None and ready.status == 200:
        return None
    if ready is None or ready.status != 404:
        return Finding(Verdict.WAIT, _said(Question.READY, ready), Question.READY)
    if not answers.ready_line:
        return Finding(Verdict.WAIT, "no /ready in this build, and its log does not say ready", Question.READY)
    return _once(Question.HEALTH, answers.health)


def _router_says(answers: Answers) -> Finding | None:
    return _once(Question.READINESS, answers.readiness)


def _registered(answers: Answers) -> Finding | None:
    return _once(Question.ROUTE, answers.route)


def _once(question: Question, reply: Reply | None) -> Finding | None:
    """None once the answer was 200."""
    if reply is not None and reply.status == 200:
        return None
    return Finding(Verdict.WAIT, _said(question, reply), question)


def _whole_half() -> Finding:
    return Finding(Verdict.READY, "it is ready by its own word; the generation comes through the router")


def _serves(want: Want, answers: Answers) -> Finding | None:
    reply = answers.models
    if reply is None or reply.status != 200:
        return _once(Question.MODELS, reply)
    served = served_models(reply.body)
    if want.model not in served:
        names = ", ".join(served) or "no model"
        return Finding(Verdict.FAILED, f"the {want.role.program} serves {names}, not {want.model}")
    context = served[want.model]
    if want.context_length is not None and want.role is not Role.ROUTER and context != want.context_length:
        return Finding(Verdict.FAILED, f"the engine serves context length {context}, not {want.context_length}")
    return None


def _generates(want: Want, answers: Answers) -> Finding:
    reply, program = answers.generation, want.role.program
    if answers.busy:
        return Finding(Verdict.WAIT, answers.busy, Question.GENERATION)
    if reply is not None and _is_final(reply):
        return Finding(Verdict.FAILED, f"the {program} refuses to generate: {_said(Question.GENERATION, reply)}")
    if answers.judged is not None:
        return _crosses(answers.judged)
    if reply is None or reply.status != 200:
        return Finding(Verdict.WAIT, _said(Question.GENERATION, reply), Question.GENERATION)
    if not generated_text(reply.body):
        return Finding(Verdict.WAIT, f"the {program} answers a generation without any text", Question.GENERATION)
    return Finding(Verdict.READY, "one generation came back with text")


def _is_final(reply: Reply) -> bool:
    """A 4xx to a generation will not change; 408 and 429 are about the moment, and 5xx may be."""
    return reply.status is not None and 400 <= reply.status < 500 and reply.status not in (408, 429)


def _crosses(judged: Judged) -> Finding:
    """Whoever is late may come yet; an answer that is wrong is no answer."""
    words = f"{judged.verdict}: {judged.words}"
    match judged.verdict:
        case PairVerdict.OK:
            return Finding(Verdict.READY, words)
        case PairVerdict.GARBAGE:
            return Finding(Verdict.FAILED, words, advice=UNPROVED[judged.verdict])
    return Finding(Verdict.WAIT, words, Question.GENERATION, UNPROVED[judged.verdict])


def generation_request(model: str) -> dict[str, object]:
    """The body of the one generation that proves an engine: greedy and short; `ignore_eos` is SGLang's own field."""
    return {"model": model, "prompt": "The capital of France is", "max_tokens": 8, "temperature": 0, "ignore_eos": True}


def beat(pulse: Pulse, complaint: str, mark: tuple[object, ...], now: float) -> Pulse:
    """Add one look at a serving engine to its pulse. `complaint` is '' when it answered well.

    A mark that changed since the last look is a sign of life: /health is known to fail under long prefills.
    """
    if not complaint:
        return Pulse(mark=mark)
    works = bool(mark and pulse.mark and mark != pulse.mark)
    since = now if pulse.failing_since is None or works else pulse.failing_since
    return Pulse(failing_since=since, words=complaint, mark=mark or pulse.mark)


def unhealthy(pulse: Pulse, now: float, limit_s: float) -> bool:
    """Whether an engine has failed its probes for `limit_s` without a sign of life between."""
    return pulse.failing_since is not None and now - pulse.failing_since >= limit_s


def complaint(question: str, reply: Reply) -> str:
    """What is wrong with an answer of a serving engine; '' for a 200."""
    return "" if reply.status == 200 else _said(question, reply)


def _said(question: str, reply: Reply | None) -> str:
    """An answer in words, with the engine's own reason where it gave one."""
    path = question.partition("?")[0]
    if reply is None:
        return f"{path} was not asked yet"
    if reply.status is None:
        return f"{path} does not answer: {reply.error}"
    return f"{path} says {reply.status}" + (f" ({reason})" if (reason := own_reason(reply.body)) else "")
