"""The judge of whole servers behind a router: each has to answer itself, and to be reached through the router."""

from dataclasses import replace

import pytest

from dsv4ctl import servers
from dsv4ctl.engine.counters import Counts
from dsv4ctl.model import Role
from dsv4ctl.pair import Generation
from dsv4ctl.servers import Asked
from tests import releases

NONCE = "k7-3f9a51"
CAME = Generation(status=200, text=f"{NONCE} 80", seconds=0.4)
LOST = Generation(status=None, seconds=8)
BEFORE, AFTER = Counts(arrived=4), Counts(arrived=5)
MADE = releases.render(releases.spec("dual-tp4")).instances
ROUTER = next(one for one in MADE if one.role is Role.ROUTER)
FIRST, SECOND = (
    Asked(server=one, nonce=NONCE, first=CAME, before=BEFORE, after=AFTER) for one in MADE if one.role is Role.SERVER
)


def test_servers_that_answer_themselves_and_have_counted_what_came_through_the_router_are_ok() -> None:
    found = servers.judge(ROUTER, (FIRST, SECOND), (CAME, CAME))
    assert found.verdict == "ok"
    assert "each of 2 servers answered itself and has counted one of 2 generations" in found.words
    assert (found.answer_s, found.advice) == (0.4, "")


def test_a_server_that_the_router_never_picked_is_not_proved_by_the_other_ones_answers() -> None:
    found = servers.judge(ROUTER, (FIRST, replace(SECOND, after=BEFORE)), (CAME,) * 20)
    assert found.verdict == "router"
    assert found.words == "none of 20 generations through the router reached dsv4-server-1.service (port 20012)"
    assert "systemctl restart dsv4-router" in found.advice


@pytest.mark.parametrize(
    ("broken", "verdict", "words"),
    [
        (replace(SECOND, first=LOST), "server-1", "dsv4-server-1.service itself: no answer within 8 s"),
        (replace(SECOND, first=Generation(status=500, said="boom", seconds=0.1)), "server-1", "status 500 (boom)"),
        (replace(SECOND, first=replace(CAME, text="the the")), "garbage", "dsv4-server-1.service itself: the answer"),
    ],
)
def test_a_server_that_does_not_answer_itself_is_named_though_the_router_hides_it(
    broken: Asked, verdict: str, words: str
) -> None:
    found = servers.judge(ROUTER, (FIRST, broken), (CAME, CAME))
    assert found.verdict == verdict
    assert words in found.words
    assert "dsv4ctl logs server-1" in found.advice


@pytest.mark.parametrize("lost", [LOST, Generation(status=503, said="no workers", seconds=0.1), replace(CAME, text="")])
def test_with_servers_that_answer_it_is_the_router_that_does_not(lost: Generation) -> None:
    found = servers.judge(ROUTER, (FIRST, SECOND), (CAME, lost))
    assert found.verdict == "router"
    assert found.words.startswith("each server answers itself, and through the router there is this: ")


def test_servers_that_count_nothing_are_taken_at_their_answers_and_that_is_said() -> None:
    silent = tuple(replace(one, before=None, after=None) for one in (FIRST, SECOND))
    found = servers.judge(ROUTER, silent, (CAME, CAME))
    assert found.verdict == "ok"
    assert "metrics are off" in found.words
