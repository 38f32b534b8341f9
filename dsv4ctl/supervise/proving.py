"""The questions whose answers prove an engine, in order and at their pace. What they mean is judged in `health`."""

from dataclasses import dataclass, replace
from functools import partial
from typing import assert_never

from dsv4ctl import health, pair, pairing, probe
from dsv4ctl.engine import bodies
from dsv4ctl.engine.questions import Question
from dsv4ctl.health import Answers, Finding, Want
from dsv4ctl.pair import Judged
from dsv4ctl.pairing import Pair
from dsv4ctl.probe import Answer
from dsv4ctl.problems import Busy
from dsv4ctl.supervise import probes
from dsv4ctl.supervise.run import Run

# From the engine's first 200 to READY=1 at most this much is lost by waiting. A warm-up that compiles kernels takes
# minutes, and each question is a line in the engine's log: after a while its own ready line is waited for, at which it
# is asked at once, and the questions in between are only for builds and log levels without that line.
READY_EVERY_S = 0.04
OFTEN_FOR_S = 5.0
AGAIN_S = 0.25
SHORTEST_GENERATION_S = 5.0


@dataclass(frozen=True, slots=True)
class Asking:
    """One question's answer, as its errand brings it; of a generation that is to cross a pair, what became of it.

    `busy`: who else probes, so that it was not asked.
    """

    question: Question
    answer: Answer
    judged: Judged | None = None
    busy: str = ""


class Proving:
    """What an engine has answered so far. `since` is when it called itself ready (monotonic), None before."""

    def __init__(self, run: Run) -> None:
        instance = run.instance
        self.since: float | None = None
        self._run = run
        self._want = Want(
            model=instance.served_model_name,
            role=instance.role,
            context_length=instance.context_length,
            keyed=bool(run.key),
        )
        self._answers = Answers()

    @property
    def finding(self) -> Finding:
        """What is to be made of the answers so far."""
        return health.judge(self._want, self._answers)

    @property
    def context_length(self) -> int | None:
        """The context length that the engine serves the model with; a router does not tell."""
        models = self._answers.models
        return bodies.served_models(models.body).get(self._want.model) if models else None

    def heard_ready(self) -> None:
        """The engine has logged that it is ready."""
        self._answers = replace(self._answers, ready_line=True)

    def errand(self, question: Question) -> partial[Asking]:
        """What asks this question.

        A generation is given half of the time that is left: one request that an engine has lost must not take the
        chance from the next.
        """
        gone_s = 0.0 if self.since is None else self._run.clock.now() - self.since
        half_s = max(SHORTEST_GENERATION_S, (self._run.instance.limits.proof_s - gone_s) / 2)
        return partial(ask, self._run, question, health.TIMEOUTS_S.get(question, half_s))

    def take(self, asking: Asking) -> Finding:
        """Take an answer in."""
        self._answers = _answered(self._answers, asking)
        finding = self.finding
        if finding.proving and self.since is None:
            self.since = self._run.clock.now()
        return finding


def pace_s(question: Question | None, bound_for_s: float) -> float:
    """How long after one question the next is asked, at the least."""
    return READY_EVERY_S if question is Question.READY and bound_for_s < OFTEN_FOR_S else AGAIN_S


def ask(run: Run, question: Question, timeout_s: float) -> Asking:
    """Ask the engine one question, with the key."""
    if question is Question.GENERATION:
        return _generated(run, timeout_s)
    return Asking(question, probe.get(run.url(question), run.key, timeout_s=timeout_s))


def _generated(run: Run, timeout_s: float) -> Asking:
    """One generation, unless somebody else is sending one to the same end."""
    try:
        with probes.turn(run):
            if found := pairing.of((run.instance,)):
                return _through(run, found, timeout_s)
            request = health.generation_request(run.instance.served_model_name)
            answer = probe.post(run.url(Question.GENERATION), request, run.key, timeout_s=timeout_s)
            return Asking(Question.GENERATION, answer)
    except Busy as busy:
        return Asking(Question.GENERATION, Answer(None), busy=str(busy))


def _through(run: Run, found: Pair, timeout_s: float) -> Asking:
    """One generation through both halves; one that does not come is looked for while the router still is there."""
    looked = pairing.look(found, pairing.nonce(), run.key, run.clock, limit_s=timeout_s)
    status = looked.first.status if looked.first else None
    return Asking(Question.GENERATION, Answer(status), pair.judge(looked))


def _answered(answers: Answers, asking: Asking) -> Answers:
    match asking.question:
        case Question.READY:
            return replace(answers, ready=asking.answer)
        case Question.READINESS:
            return replace(answers, readiness=asking.answer)
        case Question.HEALTH:
            return replace(answers, health=asking.answer)
        case Question.ROUTE:
            return replace(answers, route=asking.answer)
        case Question.MODELS:
            return replace(answers, models=asking.answer)
        case Question.GENERATION:
            return replace(answers, generation=asking.answer, judged=asking.judged, busy=asking.busy)
        case _:
            assert_never(asking.question)
