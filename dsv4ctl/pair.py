"""A probe through the router -> who of the pair is at fault, from answers and counters. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from dsv4ctl.engine.counters import Counts, Queues

# DeepSeek-V4 has pages of 256 tokens; a line is some 15, so that the prompt crosses several of them.
LINES = 80
ANSWER_TOKENS = 24


class PairVerdict(StrEnum):
    """Where the pair is at fault, if it is."""

    OK = "ok"
    ROUTER = "router"
    PREFILL = "prefill"
    HAND_OFF = "hand-off"
    DECODE = "decode"
    GARBAGE = "garbage"


# What to type next about each verdict …
_OTHER_WAY = "dsv4ctl deploy --transfer-backend …"
_AT_FAULT = (PairVerdict.ROUTER, PairVerdict.PREFILL, PairVerdict.DECODE)

# … where the router never served, so that it is down: what to look at, and what to deploy instead.
UNPROVED: Mapping[PairVerdict, str] = {
    PairVerdict.OK: "",
    **{one: f"dsv4ctl logs {one}" for one in _AT_FAULT},
    PairVerdict.HAND_OFF: f"dsv4ctl logs prefill decode; or another way of handing KV over: {_OTHER_WAY}",
    PairVerdict.GARBAGE: f"{_OTHER_WAY}   tells whether it comes with the way of handing KV over;"
    " else look at the model and at switches of kernels in [engine]",
}

# … where all three are there.
ADVICE: Mapping[PairVerdict, str] = {
    **UNPROVED,
    **{one: f"{UNPROVED[one]}, then systemctl restart dsv4-{one}" for one in _AT_FAULT},
    PairVerdict.HAND_OFF: "systemctl restart dsv4-decode dsv4-prefill, then dsv4ctl probe; or another way of handing KV"
    f" over: {_OTHER_WAY}",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """What came back for one generation through the router. `error`: why nothing did, in words; `said`: what came
    instead of a completion."""

    status: int | None
    text: str = ""
    error: str = ""
    said: str = ""
    seconds: float = 0.0

    @property
    def came(self) -> bool:
        """Whether there is an answer at all."""
        return self.status == 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Half:
    """A prefill or a decode. `trouble`: why it is not ready by its own word, '' when it is.

    `before` and `after` the probe; `queues` at its end, while an answer that has not come is still waited for. None:
    it did not say.
    """

    trouble: str = ""
    before: Counts | None = None
    after: Counts | None = None
    queues: Queues | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Probed:
    """Everything that one probe saw. Without `first` nothing was asked, because somebody was not ready.

    `second` is the answer to the same prompt again, asked where `wants_second` says so. `must_repeat`: the model is one
    that goes on repeating; one of random weights does not, and is held to saying the same twice.
    """

    nonce: str
    must_repeat: bool = False
    router_trouble: str = ""
    prefill: Half
    decode: Half
    first: Generation | None = None
    second: Generation | None = None


@dataclass(frozen=True, slots=True)
class Judged:
    """The verdict, and why in words."""

    verdict: PairVerdict
    words: str


def prompt(nonce: str) -> str:
    """A text that begins with the nonce, so that no cache has any of it, and that a language model goes on repeating.

    What comes back can only be right where the decode got the prefill's KV: it never saw the prompt itself.
    """
    return "\n".join(f"{nonce} {line}" for line in range(1, LINES)) + "\n"


def payload(model: str, nonce: str) -> dict[str, object]:
    """The body of the request to /v1/completions."""
    return {"model": model, "prompt": prompt(nonce), "max_tokens": ANSWER_TOKENS, "temperature": 0, "stream": False}


def wants_second(first: Generation | None, nonce: str) -> bool:
    """Whether the answer alone does not show that it is right: a model that cannot repeat is asked the same again."""
    return first is not None and first.came and bool(first.text.strip()) and nonce not in first.text


def judge(probed: Probed) -> Judged:
    """Who is at fault. A half that is not ready is named before the router, which only passes it on."""
    if probed.prefill.trouble:
        return Judged(PairVerdict.PREFILL, f"the prefill is not ready: {probed.prefill.trouble}")
    if probed.decode.trouble:
        return Judged(PairVerdict.DECODE, f"the decode is not ready: {probed.decode.trouble}")
    if probed.router_trouble:
        return Judged(
            PairVerdict.ROUTER, f"prefill and decode are ready and the router is not: {probed.router_trouble}"
        )
    if probed.first is None:
        return Judged(PairVerdict.ROUTER, "nothing was asked of it")
    if not probed.first.came:
        return _silent(probed, probed.first)
    return _passed_by(probed) or _garbled(probed, probed.first) or _ok(probed, probed.first)


def judge_servers(first: Generation, second: Generation | None, nonce: str) -> Judged:
    """The answer of whole servers, of which no halves have to give account. ROUTER: whoever was asked is at fault."""
    if not first.came:
        return Judged(PairVerdict.ROUTER, _no_answer(first, "it"))
    probed = Probed(nonce=nonce, prefill=Half(), decode=Half(), first=first, second=second)
    return _garbled(probed, first) or Judged(PairVerdict.OK, _came(nonce, first))


def _came(nonce: str, first: Generation) -> str:
    how = "repeats the nonce" if nonce in first.text else "is the same twice"
    return f"an answer came in {first.seconds:.1f} s and {how}"


def _no_answer(first: Generation, whose: str) -> str:
    if first.status is not None:
        reason = f" ({first.said})" if first.said else ""
        return f"no answer: {whose} says status {first.status}{reason} after {first.seconds:.1f} s"
    return f"no answer within {first.seconds:.0f} s" + (f" ({first.error})" if first.error else "")


def _ok(probed: Probed, first: Generation) -> Judged:
    return Judged(PairVerdict.OK, f"{_came(probed.nonce, first)}; prefill and decode both counted it")


def _passed_by(probed: Probed) -> Judged | None:
    """An answer came: from somebody else, unless both halves have counted it."""
    idle = [name for name, half in _halves(probed) if _moved(half, "finished") == 0]
    if not idle:
        return None
    words = f"an answer came, and {' and '.join(idle)} did nothing for it: the router sends elsewhere"
    return Judged(PairVerdict.ROUTER, words)


def _garbled(probed: Probed, first: Generation) -> Judged | None:
    if not first.text.strip():
        what = f"no completion: {first.said!r}" if first.said else "empty"
        return Judged(PairVerdict.GARBAGE, f"the answer is {what}")
    if probed.nonce in first.text:
        return None
    if probed.must_repeat or probed.second is None or not probed.second.came:
        return Judged(PairVerdict.GARBAGE, f"the answer does not repeat what it was given: {first.text!r}")
    if probed.second.text != first.text:
        words = f"the same prompt at temperature 0 gave {first.text!r} and then {probed.second.text!r}"
        return Judged(PairVerdict.GARBAGE, words)
    return None


def _silent(probed: Probed, first: Generation) -> Judged:
    """No answer came: follow the request to where it is now. Seen on the real pair with either scheduler stopped."""
    verdict, words = _where(probed)
    return Judged(verdict, f"{_no_answer(first, 'the router')}: {words}")


def _where(probed: Probed) -> tuple[PairVerdict, str]:
    prefill, decode = probed.prefill, probed.decode
    # 1. A half that does not even say what it counts is gone, or hangs as a whole.
    for verdict, (name, half) in zip((PairVerdict.PREFILL, PairVerdict.DECODE), _halves(probed), strict=True):
        if half.after is None:
            return verdict, f"the {name} does not answer any more"
    # 2. The router sends every request to both halves at once.
    missed = [name for name, half in _halves(probed) if _moved(half, "arrived") == 0]
    if missed:
        return PairVerdict.ROUTER, f"the request never reached {' nor '.join(missed)}"
    # 3. They say themselves that the hand-over failed.
    if any(_moved(half, "failed") > 0 for half in (prefill, decode)):
        return PairVerdict.HAND_OFF, "the transfer of KV failed, by the engines' own count"
    return _holder(prefill, decode)


def _holder(prefill: Half, decode: Half) -> tuple[PairVerdict, str]:
    """In whose hands the request is; both have got it."""
    here, there = prefill.queues or Queues(), decode.queues or Queues()
    if there.running:
        return PairVerdict.DECODE, "the decode has the KV and does not finish"
    if here.running and there.has_any:
        return PairVerdict.PREFILL, "the prefill has taken the request up and does not finish its part"
    if here.has_any and there.has_any:
        return PairVerdict.HAND_OFF, "both halves wait for each other to hand the KV over"
    if here.has_any:
        return PairVerdict.DECODE, "the prefill waits for the decode, which does not take the request up"
    done = _moved(prefill, "finished") > 0
    if there.has_any and done:
        return PairVerdict.HAND_OFF, "the prefill says that it handed the KV over, and the decode waits for it"
    if there.has_any:
        return PairVerdict.PREFILL, "the decode waits for the prefill, which does not take the request up"
    if done:
        return PairVerdict.DECODE, "the prefill has done its part, and the decode has lost the request"
    return PairVerdict.PREFILL, "the request reached both halves, and neither has it any more"


def _halves(probed: Probed) -> tuple[tuple[str, Half], tuple[str, Half]]:
    return ("prefill", probed.prefill), ("decode", probed.decode)


def _moved(half: Half, count: str) -> int:
    """By how much a counter went up. An engine that was started again in between counts from 0: then by all it has."""
    after: int = getattr(half.after or Counts(), count)
    before: int = getattr(half.before or Counts(), count)
    return after - before if after >= before else after
