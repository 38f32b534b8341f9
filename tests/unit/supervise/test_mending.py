"""What is done about a pair of which a half was started again: probed, and only if that fails mended, once."""

from dataclasses import replace

import pytest

from dsv4ctl.model import Phase
from dsv4ctl.pair import Judged, PairVerdict
from dsv4ctl.supervise import mending, rotation
from dsv4ctl.supervise.mending import Halves, Mending, Probe, Renew, Restart
from dsv4ctl.supervise.peers import Seen
from tests.unit.supervise.test_peers import DECODE, PREFILL, said

OK = Judged(PairVerdict.OK, "an answer came")
HAND_OFF = Judged(PairVerdict.HAND_OFF, "both halves wait")
NIXL = "nixl remembers"


def half(number: int, phase: Phase = Phase.READY, *, decode: bool = False) -> Seen:
    """A half whose supervisor is the `number`th of it."""
    peer = DECODE if decode else PREFILL
    return Seen(peer, said(peer.name, phase, start_ticks=number), lives=phase is not Phase.STOPPED)


def halves(prefill: int, decode: int, first: Phase = Phase.READY, second: Phase = Phase.READY) -> Halves:
    return half(prefill, first), half(decode, second, decode=True)


def of(prefill: int, decode: int) -> Mending:
    """A pair that is proved with these."""
    known = mending.supervisors(halves(prefill, decode))
    return Mending(met=known, proved=known)


PROVED = of(1, 1)


def test_a_pair_of_which_nothing_changed_is_left_alone() -> None:
    for together in ("", NIXL):
        assert mending.due(PROVED, halves(1, 1), together) is None
        assert mending.due(PROVED, halves(1, 1, second=Phase.STOPPED), together) is None


def test_b82_a_pair_is_probed_once_the_half_that_was_away_is_ready_again_and_not_before() -> None:
    for phase in (Phase.GATE, Phase.WEIGHTS, Phase.PROOF):
        assert mending.due(PROVED, halves(2, 1, first=phase), "") is None
    assert mending.due(PROVED, halves(2, 1), "") == Probe()


def test_b82_a_pair_that_answers_again_is_whole_and_nobody_is_restarted() -> None:
    after, action = mending.judged(PROVED, halves(2, 1), OK)
    assert (action, after) == (None, of(2, 1))
    assert mending.due(after, halves(2, 1), "") is None


@pytest.mark.parametrize(("prefill", "decode", "stayed"), [(2, 1, "decode"), (1, 2, "prefill")])
def test_b82_if_the_probe_fails_the_half_that_stayed_is_restarted_once(prefill: int, decode: int, stayed: str) -> None:
    now = halves(prefill, decode)
    after, action = mending.judged(PROVED, now, HAND_OFF)
    assert isinstance(action, Restart)
    assert action.half.peer.name == stayed
    assert "(hand-off): both halves wait" in action.because
    after = mending.asked(after, action.half)
    # It fails again with the same half still there, or with both started again: there is nothing left to try.
    for later in (now, halves(2, 2)):
        last, nothing = mending.judged(after, later, HAND_OFF)
        assert (nothing, last.trouble) == (None, "hand-off: both halves wait")


def test_a_pair_that_cannot_be_mended_is_probed_again_and_whole_when_that_comes_through() -> None:
    broken, action = mending.judged(PROVED, halves(2, 2), HAND_OFF)
    assert (action, broken.trouble) == (None, "hand-off: both halves wait")
    assert mending.due(broken, halves(2, 2), "") == Probe()
    assert mending.judged(broken, halves(2, 2), OK)[0] == of(2, 2)


def test_b82_a_pair_that_could_not_be_mended_is_mended_once_more_when_a_half_of_it_comes_back_anew() -> None:
    broken, _ = mending.judged(PROVED, halves(2, 2), HAND_OFF)
    _, action = mending.judged(broken, halves(3, 2), HAND_OFF)
    assert isinstance(action, Restart)
    assert action.half.peer.name == "decode"


def test_a_router_that_does_not_reach_two_halves_that_are_well_is_renewed_and_no_half_is() -> None:
    _, action = mending.judged(PROVED, halves(1, 2), Judged(PairVerdict.ROUTER, "never reached prefill"))
    assert isinstance(action, Renew)


@pytest.mark.parametrize("phase", [Phase.GATE, Phase.WEIGHTS, Phase.READY])
def test_where_the_transfer_demands_it_the_other_half_is_restarted_at_once_so_that_both_load_side_by_side(
    phase: Phase,
) -> None:
    now = halves(1, 2, second=phase)
    action = mending.due(PROVED, now, NIXL)
    assert action == Restart(now[0], "dsv4-decode was started again: nixl remembers", hurried=True)


@pytest.mark.parametrize("phase", [Phase.FAILED, Phase.PARKED, Phase.READY, Phase.WEIGHTS])
def test_where_the_transfer_demands_it_a_half_that_died_is_not_waited_for(phase: Phase) -> None:
    dead = replace(half(1, phase), lives=False)
    now = (dead, half(1, decode=True))
    # What a decode has got it can finish; what a prefill has nobody fetches any more.
    assert mending.due(PROVED, now, NIXL) == Restart(now[1], "dsv4-prefill died: nixl remembers", hurried=False)
    assert mending.due(mending.asked(PROVED, now[1]), now, NIXL) is None
    assert mending.due(PROVED, now, "") is None


def test_a_half_that_was_stopped_takes_the_other_one_with_it_only_once_it_is_started_again() -> None:
    assert mending.due(PROVED, halves(1, 1, second=Phase.DRAINING), NIXL) is None
    assert mending.due(PROVED, halves(1, 1, second=Phase.STOPPED), NIXL) is None
    assert isinstance(mending.due(PROVED, halves(1, 2, second=Phase.GATE), NIXL), Restart)


def test_a_new_half_is_not_started_again_for_one_that_stays_dead() -> None:
    dead = replace(half(1, Phase.FAILED), lives=False)
    assert mending.due(PROVED, (dead, half(2, decode=True)), NIXL) is None


def test_halves_know_each_other_from_the_first_request_on_and_not_only_from_the_first_answer() -> None:
    both_new = mending.meet(PROVED, halves(2, 2), NIXL)
    assert mending.due(both_new, halves(2, 2), NIXL) == Probe()
    # One dies before the probe of the two has come through.
    action = mending.due(both_new, halves(2, 3, second=Phase.WEIGHTS), NIXL)
    assert isinstance(action, Restart)
    assert action.half.peer.name == "prefill"


def test_a_half_that_must_not_meet_the_new_one_does_not() -> None:
    assert mending.meet(PROVED, halves(1, 2), NIXL) == PROVED
    assert mending.meet(PROVED, halves(1, 2), "").met == of(1, 2).met
    assert mending.meet(PROVED, halves(2, 2, first=Phase.WEIGHTS), NIXL) == PROVED


def test_a_pair_says_that_it_is_mended_until_a_generation_has_come_through() -> None:
    together = "both halves are restarted together, for dsv4-decode was started again"
    for now in (halves(1, 2, second=Phase.WEIGHTS), halves(1, 2), halves(1, 2, first=Phase.DRAINING)):
        assert mending.words(mending.asked(PROVED, now[0]), now, NIXL) == together
    assert mending.words(PROVED, halves(1, 2), "") == "the pair is being proved again"
    assert mending.words(PROVED, halves(2, 2), NIXL) == "the pair is being proved again"
    assert mending.words(of(2, 2), halves(2, 2), NIXL) == ""
    broken, _ = mending.judged(PROVED, halves(2, 2), HAND_OFF)
    assert mending.words(broken, halves(2, 2), NIXL) == "the pair does not answer (hand-off: both halves wait)"


def test_a_half_is_kept_out_before_the_new_one_is_taken_in() -> None:
    now = halves(1, 2)
    without = ("decode",)
    assert rotation.to_take_out(now, without, now[0]) == (PREFILL,)
    assert rotation.to_take_in(now, without, now[0]) == (DECODE,)
    both = ("prefill", "decode")
    assert rotation.to_take_out(now, both, now[0]) == ()
    assert rotation.to_take_in(now, both, now[0]) == (DECODE,)
    assert rotation.to_take_in(halves(2, 2), both, None) == (PREFILL, DECODE)


def test_where_the_transfer_demands_it_the_other_half_is_asked_once_and_the_pair_probed_when_both_are_back() -> None:
    now = halves(1, 2, second=Phase.WEIGHTS)
    asked = mending.asked(PROVED, now[0])
    assert mending.due(asked, now, NIXL) is None
    # It crashes while its other half is on its way: both are new by then.
    assert mending.due(asked, halves(1, 3, Phase.DRAINING, Phase.GATE), NIXL) is None
    assert mending.due(asked, halves(2, 3, first=Phase.WEIGHTS), NIXL) is None
    assert mending.due(asked, halves(2, 3), NIXL) == Probe()
    assert mending.judged(asked, halves(2, 3), OK)[0] == of(2, 3)


def test_a_half_that_nothing_was_ever_heard_of_has_not_changed() -> None:
    silent = replace(halves(1, 1)[0], state=None, lives=False)
    assert mending.due(PROVED, (silent, halves(1, 1)[1]), NIXL) is None
