"""A plan is held against what the engine then said, and the next plan learns from it."""

import json
from dataclasses import replace
from typing import Any

import pytest

from dsv4ctl import modes
from dsv4ctl.memory import budget, forecast, foresee, gpus, learnt, marks, recommend, weights
from dsv4ctl.memory.forecast import Forecast
from dsv4ctl.memory.foresee import Foreseen
from dsv4ctl.memory.marks import Amounts, Key, Mark
from dsv4ctl.memory.sizes import gib
from dsv4ctl.memory.spec import Known, Unplanned
from dsv4ctl.model import Capacity, EngineSpec, HostSpec, MemorySpec, Mode, Role, RoleShape
from tests.plans import ask

KEY = Key(host="h", engine_version="0.5.23", model="/models/V4", gpu="rtx-pro-6000", flags="[]")
PAIR = Mode(
    name="pd",
    roles=(
        RoleShape(role=Role.PREFILL, tp=4, gpus=(0, 1, 2, 3)),
        RoleShape(role=Role.DECODE, tp=4, gpus=(4, 5, 6, 7)),
    ),
)
KNOWN = Known(checkpoint=weights.find("fp4"), gpu=gpus.find("rtx-pro-6000"), engine_version="0.5.23")
INFO = {
    "max_total_num_tokens": 6_020_096,
    "internal_states": [
        {
            "memory_usage": {
                "weight": 39.1,
                "kvcache": 40.0,
                "startup_available": 9.5,
                "graph": {"decode": 1.5, "x": 0.5},
            }
        }
    ],
}


def mark(**values: Any) -> Mark:
    usual: dict[str, Any] = {
        "key": KEY,
        "digest": "0123456789ab",
        "fraction": 0.88,
        "planned": Amounts(tokens=6_050_000),
        "reported": Amounts(
            tokens=6_020_000, free_at_start_bytes=gib(93.5), weights_bytes=gib(39.5), graphs_bytes=gib(2.5)
        ),
        "at": 1_700_000_000.0,
        "auto": True,
    }
    return Mark(**(usual | values))


def forecasted(mode: Mode, known: Known = KNOWN, earlier: Mark | None = None, **memory: Any) -> Forecast:
    spec = HostSpec(mode=mode, engine=EngineSpec(model="/models/V4"), memory=MemorySpec(**memory))
    roles = [shape.role for shape in mode.roles]
    return forecast.of(spec, dict.fromkeys(roles, known), dict.fromkeys(roles, earlier) if earlier else {})


def test_plan_and_report_stand_side_by_side() -> None:
    assert marks.words(mark()) == "planned 6.05 M tokens, engine reports 6.02 M, -0.5 %"
    assert marks.words(mark(planned=Amounts(tokens=0))) == "planned 0 tokens, engine reports 6.02 M, +0.0 %"


def test_a_mark_is_read_as_it_was_written() -> None:
    assert marks.load(marks.dump(mark())) == mark()


@pytest.mark.parametrize(
    ("path", "value"),
    [(("reported", "tokens"), None), (("reported", "tokens"), "6"), (("planned",), 3), (("at",), "x"), (("key",), {})],
)
def test_what_is_no_mark_is_none(path: tuple[str, ...], value: object) -> None:
    said = json.loads(marks.dump(mark()))
    place = said
    for name in path[:-1]:
        place = place[name]
    place[path[-1]] = value

    assert marks.load(json.dumps(said)) is None
    assert marks.load("") is None


def test_log_lines_win_over_server_info_and_both_are_gib() -> None:
    heard = Capacity(max_total_tokens=6_020_000, available_gb=9.7, free_at_start_gb=93.5, weights_gb=39.5)

    found = marks.reported(heard, INFO)

    assert found == Amounts(
        tokens=6_020_000,
        free_at_start_bytes=gib(93.5),
        weights_bytes=gib(39.5),
        graphs_bytes=gib(2.0),
        left_bytes=gib(9.7),
    )
    assert marks.reported(Capacity(max_total_tokens=0), INFO).tokens == 6_020_096
    assert marks.reported(Capacity(max_total_tokens=0), INFO).weights_bytes == gib(39.1)


@pytest.mark.parametrize("said", [None, [], {}, {"internal_states": []}, {"internal_states": [{"memory_usage": 3}]}])
def test_an_engine_that_tells_nothing_leaves_nothing(said: object) -> None:
    assert marks.reported(Capacity(max_total_tokens=5), said) == Amounts(tokens=5)


def test_what_was_measured_takes_the_place_of_estimates() -> None:
    made = foresee.of(ask(), mark()).budget

    assert (made.free_at_start_bytes, made.weights_bytes) == (gib(93.5), gib(39.5))
    assert made.bytes_of("decode graphs") == gib(2.5)


def test_what_was_free_while_others_held_memory_is_not_taken() -> None:
    made = foresee.of(ask(), mark(occupied_bytes=gib(10))).budget

    assert made.free_at_start_bytes == gib(94.0)
    assert made.weights_bytes == gib(39.5)


def test_an_automatic_fraction_that_served_is_kept_while_it_fits() -> None:
    for_128k = ask()
    fresh = foresee.of(for_128k)

    again = foresee.of(for_128k, mark(fraction=0.86))

    assert fresh.budget.flags.fraction == recommend.fraction(for_128k) == 0.88
    assert (again.budget.flags.fraction, again.auto, again.from_mark) == (0.86, True, True)


def test_a_fraction_that_does_not_fit_what_was_measured_is_not_kept() -> None:
    greedy = Amounts(tokens=1, graphs_bytes=gib(12))

    again = foresee.of(ask(), mark(fraction=0.88, reported=greedy))

    assert again.budget.flags.fraction < 0.88
    assert again.budget.left_bytes > 0


def test_a_fraction_that_is_given_is_never_changed() -> None:
    given = foresee.of(ask(fraction=0.5), mark())

    assert (given.budget.flags.fraction, given.auto) == (0.5, False)


def test_what_others_hold_now_does_not_change_the_automatic_fraction() -> None:
    assert foresee.of(ask(occupied_bytes=gib(30))).budget.flags.fraction == 0.88


def test_a_fraction_that_a_person_gave_once_is_not_taken_for_an_automatic_one() -> None:
    assert foresee.of(ask(), mark(fraction=0.7, auto=False)).budget.flags.fraction != 0.7


def test_the_key_is_of_everything_but_the_fraction() -> None:
    shape = modes.BUILT_IN["single-tp4"].roles[0]
    spec = HostSpec(mode=modes.BUILT_IN["single-tp4"], memory=MemorySpec(context_length=524_288))

    plain = learnt.key(spec, shape, KNOWN, host="h")
    other_fraction = replace(spec, memory=replace(spec.memory, mem_fraction_static=0.8))
    others = (
        learnt.key(replace(spec, memory=MemorySpec(context_length=1024)), shape, KNOWN, host="h"),
        learnt.key(spec, replace(shape, tp=8), KNOWN, host="h"),
        learnt.key(spec, shape, replace(KNOWN, checkpoint=weights.find("fp8")), host="h"),
        learnt.key(spec, shape, replace(KNOWN, engine_version="0.5.24"), host="h"),
        learnt.key(spec, shape, KNOWN, host="another"),
    )

    assert learnt.key(other_fraction, shape, KNOWN, host="h") == plain
    assert len({plain, *others}) == 6


def test_a_pair_has_one_fraction_the_smaller_of_the_two() -> None:
    found = forecasted(PAIR, context_length=1_048_576)

    assert found.spec.memory.mem_fraction_static == 0.8
    assert [one.budget.flags.fraction for one in found.plans if isinstance(one, Foreseen)] == [0.8, 0.8]
    assert all(isinstance(one, Foreseen) and one.auto for one in found.plans)


def test_a_role_that_cannot_be_planned_leaves_the_fraction_to_the_engine() -> None:
    found = forecasted(modes.BUILT_IN["single-tp4"], replace(KNOWN, gpu=None))

    assert found.spec.memory.mem_fraction_static is None
    assert isinstance(found.plans[0], Unplanned)
    assert found.refusals([Role.SERVER]) == ()
    assert found.warnings() == ()


def test_only_what_is_certain_and_about_to_start_is_refused() -> None:
    impossible = forecasted(modes.BUILT_IN["single-tp4"], mem_fraction_static=0.3)
    doubtful = forecasted(
        modes.BUILT_IN["single-tp8"], context_length=1_048_576, mem_fraction_static=0.86, max_running_requests=64
    )

    (refusal,) = impossible.refusals([Role.SERVER])

    assert str(refusal) == (
        "cannot deploy server: its memory does not fit: mem-fraction-static 0.3 is below the weights: they take 39.3 "
        "of 94.0 GiB, so it must be above 0.418"
    )
    assert refusal.hint.startswith("dsv4ctl deploy --mem-fraction-static 0.")
    assert impossible.refusals([]) == ()
    assert doubtful.refusals([Role.SERVER]) == ()
    assert doubtful.warnings()[0].startswith("memory of server: by its estimates it does not fit: it is prefill logits")
    assert "; try --mem-fraction-static 0." in doubtful.warnings()[0]


def test_faults_of_gpus_are_refused_with_the_roles_that_need_them() -> None:
    found = replace(forecasted(modes.BUILT_IN["single-tp4"]), faults=((Role.SERVER, "GPU 3 is small"),))

    assert [str(one) for one in found.refusals([Role.SERVER])] == ["cannot deploy server: GPU 3 is small"]
    assert found.refusals([Role.DECODE]) == ()


def test_planned_amounts_are_those_that_an_engine_reports() -> None:
    made = budget.of(ask(fraction=0.85))

    found = learnt.planned(made)

    assert found.tokens == made.tokens
    assert found.free_at_start_bytes == made.free_at_start_bytes
    assert found.left_bytes == pytest.approx(made.slack_bytes, abs=2_000_000)
