import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsv4ctl import modes
from dsv4ctl.model import Mode, Role, RoleShape


def server(tp: int, *gpus: int) -> RoleShape:
    return RoleShape(role=Role.SERVER, tp=tp, gpus=gpus)


def test_single_tp4_is_one_server_on_gpus_0_to_3() -> None:
    assert modes.find("single-tp4", {}) == Mode(name="single-tp4", roles=(server(4, 0, 1, 2, 3),))


def test_single_tp8_is_one_server_on_gpus_0_to_7() -> None:
    assert modes.find("single-tp8", {}).roles == (server(8, *range(8)),)


def test_a_mode_of_the_operator_is_found_beside_the_built_in_ones() -> None:
    mine = Mode(name="mine", roles=(server(1, 5),))
    assert modes.find("mine", {"mine": mine}) is mine


def test_pd_is_a_prefill_and_a_decode_on_one_half_each_behind_a_router() -> None:
    shapes = [(shape.role, shape.tp, shape.gpus) for shape in modes.find("pd", {}).roles]
    assert shapes == [(Role.PREFILL, 4, (0, 1, 2, 3)), (Role.DECODE, 4, (4, 5, 6, 7)), (Role.ROUTER, 0, ())]


def test_dual_tp4_is_two_servers_on_one_half_each_behind_a_router() -> None:
    assert modes.find("dual-tp4", {}).roles == (server(4, 0, 1, 2, 3), server(4, 4, 5, 6, 7), modes.ROUTER)


def test_a_mode_that_is_given_takes_the_place_of_the_built_in_one() -> None:
    mine = Mode(name="pd", roles=())
    assert modes.find("pd", {"pd": mine}) is mine


def test_an_unknown_mode_is_answered_with_the_nearest_and_all_names() -> None:
    with pytest.raises(
        ValueError, match=r"did you mean single-tp4\? the modes are single-tp4, single-tp8, pd, dual-tp4, mine"
    ):
        modes.find("singel-tp4", {"mine": Mode(name="mine", roles=())})


@pytest.mark.parametrize(
    ("written", "gpus"),
    [
        ("4-7", (4, 5, 6, 7)),
        ("0,2,4,6", (0, 2, 4, 6)),
        ("0-1, 6 - 7", (0, 1, 6, 7)),
        ("3", (3,)),
        ("none", ()),
        ("", ()),
        ([], ()),
        ([7, 6], (7, 6)),
    ],
)
def test_gpus_are_read_from_text_and_lists(written: object, gpus: tuple[int, ...]) -> None:
    assert modes.parse_gpus(written) == gpus


@pytest.mark.parametrize(
    "written",
    [
        "7-4",
        "0-",
        "-1",
        "0,,1",
        "a",
        "0,0",
        "0-3,2",
        "0-99999999",
        "1024",
        "٣",
        4,
        [True],
        [-1],
        [0, 0],
        ["0"],
        [1024],
        None,
        {},
    ],
)
def test_gpus_that_cannot_be_are_refused(written: object) -> None:
    with pytest.raises(ValueError, match="GPU indices from 0 to 1023, each once"):
        modes.parse_gpus(written)


@given(st.lists(st.integers(0, 1023), unique=True, max_size=12))
def test_gpus_as_shown_are_read_back_in_the_same_order(gpus: list[int]) -> None:
    assert modes.parse_gpus(modes.gpus_text(gpus)) == tuple(gpus)


def test_a_mode_is_placed_on_other_gpus() -> None:
    assert modes.place(modes.BUILT_IN["single-tp4"], (4, 5, 6, 7)).roles == (server(4, 4, 5, 6, 7),)


def test_a_mode_is_placed_on_no_gpu_for_an_engine_on_a_cpu() -> None:
    assert modes.place(modes.BUILT_IN["single-tp4"], ()).roles == (server(4),)


def test_a_mode_without_other_gpus_stays_as_it_is() -> None:
    assert modes.place(modes.BUILT_IN["single-tp8"], None) is modes.BUILT_IN["single-tp8"]


def test_a_mode_is_not_placed_on_more_or_fewer_gpus_than_it_has_ranks() -> None:
    with pytest.raises(ValueError, match=r"4 ranks \(tp\) need 4 GPUs and 2 are given"):
        modes.place(modes.BUILT_IN["single-tp4"], (0, 1))


def test_the_roles_of_a_pair_take_as_many_gpus_as_they_have_ranks_in_their_order() -> None:
    placed = modes.place(modes.BUILT_IN["pd"], (4, 5, 6, 7, 0, 1, 2, 3))
    assert [shape.gpus for shape in placed.roles] == [(4, 5, 6, 7), (0, 1, 2, 3), ()]
    assert [shape.gpus for shape in modes.place(modes.BUILT_IN["pd"], ()).roles] == [(), (), ()]


def test_a_pair_is_not_placed_on_the_gpus_of_one_half() -> None:
    with pytest.raises(ValueError, match=r"8 ranks \(tp\) need 8 GPUs and 4 are given"):
        modes.place(modes.BUILT_IN["pd"], (0, 1, 2, 3))


def test_a_prefill_and_a_decode_of_the_operators_own_get_a_router() -> None:
    pair = tuple(RoleShape(role=role, tp=1, gpus=()) for role in (Role.PREFILL, Role.DECODE))
    assert modes.complete(Mode(name="mine", roles=pair)).roles == (*pair, modes.ROUTER)
    assert modes.complete(Mode(name="mine", roles=(server(1),))).roles == (server(1),)


@pytest.mark.parametrize("roles", [(), (Role.PREFILL,), (Role.DECODE,), (Role.SERVER, Role.DECODE)])
def test_roles_that_do_not_go_together_are_refused(roles: tuple[Role, ...]) -> None:
    with pytest.raises(ValueError, match="it needs"):
        modes.complete(Mode(name="mine", roles=tuple(RoleShape(role=role, tp=1, gpus=()) for role in roles)))


def test_of_a_mode_one_role_is_changed_and_the_others_stay() -> None:
    changed = modes.change(modes.BUILT_IN["pd"], Role.DECODE, tp=2, gpus=(6, 7))
    assert changed.roles == (
        modes.BUILT_IN["pd"].roles[0], RoleShape(role=Role.DECODE, tp=2, gpus=(6, 7)), modes.ROUTER,
    )  # fmt: skip


def test_of_a_role_ranks_or_gpus_may_be_changed_alone() -> None:
    single = modes.BUILT_IN["single-tp4"]
    assert modes.change(single, Role.SERVER, tp=None, gpus=()).roles == (server(4),)
    assert modes.change(single, Role.SERVER, tp=1, gpus=None).roles == (server(1, 0, 1, 2, 3),)


def test_a_role_that_a_mode_has_not_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="mode pd has prefill and decode"):
        modes.change(modes.BUILT_IN["pd"], Role.SERVER, tp=1, gpus=())


def test_roles_that_share_a_gpu_are_refused() -> None:
    pair = tuple(RoleShape(role=role, tp=2, gpus=(0, 1)) for role in (Role.PREFILL, Role.DECODE))
    with pytest.raises(ValueError, match=r"GPUs 0,1 cannot be of prefill and decode both"):
        modes.check_apart(Mode(name="mine", roles=pair))
    for mode in modes.BUILT_IN.values():
        modes.check_apart(mode)
