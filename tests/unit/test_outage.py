"""The expected outage: from which stop to which proof, how long by earlier starts, or why nobody can tell."""

from dataclasses import replace

from dsv4ctl import outage, plan
from dsv4ctl.blame import Blame, Tree
from dsv4ctl.free import Found
from dsv4ctl.model import ActiveState, HostView, Identity, Process, Release
from dsv4ctl.outage import Outage
from dsv4ctl.starts import PastStart
from dsv4ctl.steps import Step
from tests.unit.test_plan import taken
from tests.unit.test_plan_modes import DECODE, PREFILL, ROUTER, asked, serving

SERVER = "dsv4-server.service"


def past(**seconds: float) -> dict[str, tuple[PastStart, ...]]:
    """One earlier start of each, of other digests."""
    starts = {name: PastStart(at=1.0, digest="old", seconds={"weights": took}) for name, took in seconds.items()}
    return {f"dsv4-{name}.service": (start,) for name, start in starts.items()}


def found(want: Release, view: HostView, known: dict[str, tuple[PastStart, ...]]) -> Outage | None:
    return outage.of(want, view, plan.deploy(want, view), known)


def test_a_switch_is_an_outage_from_the_routers_stop_to_the_servers_proof() -> None:
    view = replace(serving(asked("pd")), ports={30001: taken(30001, ROUTER)})

    away = found(asked("single-tp4"), view, past(server=240))

    assert away is not None
    assert away.words == (
        f"port 30001 does not answer from the stop of {ROUTER} to the proof of {SERVER}, about 4 min after the drain"
    )


def test_halves_load_side_by_side_so_the_slower_counts_and_the_router_comes_on_top() -> None:
    away = found(asked("pd"), HostView(), past(prefill=100, decode=240, router=3))

    assert away is not None
    assert (away.since, away.until, away.seconds) == ("", ROUTER, 243)


def test_what_was_never_started_here_makes_it_unknown_and_is_named() -> None:
    away = found(asked("pd"), HostView(), past(prefill=100, router=3))

    assert away is not None
    assert away.words == (
        f"port 30001 does not answer before the proof of {ROUTER}, "
        f"for how long is not known: {DECODE} was never started here"
    )


def test_earlier_starts_of_the_same_digest_count_before_others() -> None:
    want = asked("single-tp4")
    mine = PastStart(at=2.0, digest=want.instances[0].digest, seconds={"weights": 30.0})

    away = found(want, HostView(), {SERVER: (*past(server=500)[SERVER], mine)})

    assert away is not None
    assert away.seconds == 30


def test_nothing_to_do_is_no_outage_and_neither_is_a_server_behind_a_router_that_has_another() -> None:
    dual = serving(asked("dual-tp4"))
    half = replace(dual, running={**dual.running, "dsv4-server-1.service": "old"}, ports={30001: taken(30001, ROUTER)})

    assert found(asked("dual-tp4"), dual, {}) is None
    assert found(asked("dual-tp4"), half, {}) is None


def test_over_mooncake_the_port_is_away_while_one_half_loads() -> None:
    pair = serving(asked("pd", "mooncake"))
    half = replace(pair, running={**pair.running, PREFILL: "old"}, ports={30001: taken(30001, ROUTER)})

    away = found(asked("pd", "mooncake"), half, past(prefill=90, router=2))

    assert away is not None
    assert (away.since, away.until, away.seconds) == (ROUTER, ROUTER, 92)


def test_a_router_that_has_lost_a_half_answers_nobody_before_that_half_is_back() -> None:
    pair = serving(asked("pd", "mooncake"))
    units = {**pair.units, DECODE: replace(pair.units[DECODE], active=ActiveState.FAILED)}
    view = replace(pair, units=units, running={**pair.running, DECODE: ""}, ports={30001: taken(30001, ROUTER)})

    away = found(asked("pd", "mooncake"), view, past(decode=240))

    assert away is not None
    assert away.words == f"port 30001 does not answer before the proof of {DECODE}, about 4 min"


def test_an_adopted_router_answers_until_the_deploy_ends_it() -> None:
    scope = "dsv4-adopted-router-30001.scope"
    router = process(7, cgroup=f"/dsv4.slice/{scope}")

    away = outage.of(asked("pd"), on_30001(router, scope), ended(asked("pd"), router), {})

    assert away is not None
    assert away.words.startswith(f"port 30001 does not answer from the end of {scope} to the proof of {ROUTER}, ")


def test_a_stray_answers_until_the_deploy_ends_it_and_is_named_by_its_pid() -> None:
    stray = process(7, cgroup="/user.slice/session-3.scope")
    want = asked("single-tp4")

    away = outage.of(want, on_30001(stray, "session-3.scope"), ended(want, stray), past(server=240))

    assert away is not None
    assert away.words == (
        f"port 30001 does not answer from the end of pid 7 (python) to the proof of {SERVER}, about 4 min after that"
    )


def on_30001(holder: Process, unit: str) -> HostView:
    seen = taken(30001, unit)
    return HostView(ports={30001: replace(seen, holders=(replace(seen.holders[0], processes=(holder,)),))})


def ended(want: Release, stray: Process) -> tuple[Step, ...]:
    """A deploy that ends the stray first."""
    tree = Tree(root=stray, members=(stray.identity,), unit="", holds=("port 30001",), signs=())
    return plan.deploy(want, HostView(), Found(blame=Blame(trees=(tree,))))


def process(pid: int, cgroup: str) -> Process:
    return Process(
        identity=Identity("boot", pid, 1), parent_pid=1, session=pid, group=pid, uid=0, user="root", comm="python",
        command="", state="S", cgroup=cgroup, started_at=0.0,
    )  # fmt: skip
