"""The rows of status: who serves, and who is of no use although it does."""

from dataclasses import replace

import pytest

from dsv4ctl.findings import Row
from dsv4ctl.model import Release
from dsv4ctl.report import degraded
from tests.unit.test_plan_modes import asked
from tests.unit.test_screen import ROW


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


def test_a_pair_without_its_router_is_whole_and_whole_servers_do_not_need_each_other() -> None:
    assert all(row.well for name, row in rows(asked("pd"), "router").items() if name != "router")
    dual = rows(asked("dual-tp4"), "server-1")
    assert (dual["server-0"].well, dual["router"].health) == (True, "degraded: peer down (server-1)")


def test_all_that_serve_are_well() -> None:
    assert all(row.well and row.health == "ready" for row in rows(asked("pd")).values())
