"""The rows of status: who serves, and who is of no use although it does."""

from dataclasses import replace

import pytest

from dsv4ctl.findings import Row
from dsv4ctl.model import LoadState, Release, Role
from dsv4ctl.report import degraded, missing, missing_words
from tests.unit.test_plan_modes import asked
from tests.unit.test_screen import ROW
from tests.unit.test_standing import UNIT


def rows(made: Release, *down: str) -> dict[str, Row]:
    """Every instance as it is shown, with some of them down."""
    instances = made.instances
    seen = (replace(ROW, unit=one.unit, serves=one.name not in down, well=one.name not in down) for one in instances)
    return {row.unit.removeprefix("dsv4-").removesuffix(".service"): row for row in degraded(tuple(seen), instances)}


@pytest.mark.parametrize(("down", "other"), [("prefill", "decode"), ("decode", "prefill")])
def test_a_half_whose_other_half_is_down_is_degraded_and_so_is_their_router(down: str, other: str) -> None:
    found = rows(asked("pd"), down)

    assert {name for name, row in found.items() if row.health == f"degraded: peer down ({down})"} == {other, "router"}
    assert not any(row.well for row in found.values())


@pytest.mark.parametrize("mode", ["pd", "dual-tp4"])
def test_engines_whose_router_is_down_serve_nobody(mode: str) -> None:
    found = rows(asked(mode), "router")

    assert {row.health for name, row in found.items() if name != "router"} == {"degraded: peer down (router)"}
    assert not any(row.well for row in found.values())


@pytest.mark.parametrize("mode", ["pd", "dual-tp4"])
def test_a_router_that_is_no_unit_of_ours_any_more_is_missing_for_all_that_need_it(mode: str) -> None:
    instances = asked(mode).instances
    left = tuple(one for one in instances if one.role is not Role.ROUTER)

    assert missing(left, ()) == {"dsv4-router.service": tuple(one.unit for one in left)}
    assert not missing(instances, ())
    assert not missing(left, ("dsv4-router.service",)), "one of which nothing is known is told of otherwise"


def test_a_masked_unit_and_one_that_is_gone_say_how_they_come_back() -> None:
    router = replace(UNIT, name="dsv4-router.service", load=LoadState.MASKED)

    assert missing_words(router, ("a", "b"), "dsv4ctl rollback 3") == (
        "dsv4-router.service is masked, and a and b need it: "
        "systemctl unmask dsv4-router.service, then dsv4ctl rollback 3"
    )
    assert missing_words(replace(router, load=LoadState.NOT_FOUND), ("a",), "dsv4ctl rollback 3") == (
        "dsv4-router.service is not installed any more, and a needs it: dsv4ctl rollback 3   writes it anew"
    )


def test_whole_servers_do_not_need_each_other() -> None:
    dual = rows(asked("dual-tp4"), "server-1")
    assert (dual["server-0"].well, dual["router"].health) == (True, "degraded: peer down (server-1)")


def test_all_that_serve_are_well() -> None:
    assert all(row.well and row.health == "ready" for row in rows(asked("pd")).values())
