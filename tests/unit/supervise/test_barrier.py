"""The pause and the brake as the supervisor keeps them: hours by a clock that is handed in, seconds by a real one."""

import os
import signal
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from dsv4ctl import brake, maintenance, record, systemd
from dsv4ctl.clock import RealClock
from dsv4ctl.model import Failure, Limits, Pause, Phase, RunState, SuperviseExit, Tally, Unit
from dsv4ctl.store import Paths, files
from dsv4ctl.supervise.barrier import Barrier
from dsv4ctl.supervise.inbox import Inbox
from dsv4ctl.supervise.journal import Journal
from dsv4ctl.supervise.lull import LOOK_EVERY_S, Lull
from dsv4ctl.supervise.notify import Voice
from dsv4ctl.supervise.outcome import Asked, Failed
from tests.unit.supervise.conftest import Bench, marked

NOON = 1_795_953_600.0
HOUR = 3600.0


@dataclass
class TurningClock:
    """A clock that turns a quarter of an hour at each look at it."""

    at: float = 0.0

    def now(self) -> float:
        self.at += 900.0
        return self.at

    def wall(self) -> float:
        return NOON + self.at

    def sleep(self, seconds: float) -> None:
        raise AssertionError(f"nothing here sleeps, not even {seconds} s")


class Told:
    """A systemd that keeps what it is told."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def send(self, *assignments: str) -> None:
        self.said += assignments


@dataclass
class Post:
    """A barrier of the server with a clock of the test's, the paths it reads and writes, and what systemd was told."""

    barrier: Barrier
    paths: Paths
    told: Told
    signals: socket.socket

    def pause(self, for_s: float) -> None:
        since = self.barrier.clock.wall()
        pause = Pause(who="alice", reason="a fan is swapped", since=since, until=since + for_s)
        maintenance.keep_pause(self.paths, pause)

    def tally(self, name: str = "server") -> Tally:
        return maintenance.tally(self.paths.all_starts / name / maintenance.TALLY)


@pytest.fixture
def post(tmp_path: Path) -> Iterator[Post]:
    clock, told, paths = TurningClock(), Told(), Paths(tmp_path)
    state = RunState(
        name="server", digest="d1", phase=Phase.READY, words="ready", since=NOON, started_at=NOON, pid=os.getpid()
    )
    reader, writer = socket.socketpair()
    with reader, writer:
        barrier = Barrier(
            folder=paths.all_starts / "server",
            unit=lambda: None,
            limits=Limits(starts=3, window_s=3600),
            lull=Lull(paths.pause, clock),
            inbox=Inbox(reader),
            journal=Journal(),
            voice=Voice(state, clock, told, journal=Journal(), file=None),
            clock=clock,
        )
        yield Post(barrier, paths, told, writer)


# ---- hours ---------------------------------------------------------------------------------------------------------


def test_a_crash_within_a_pause_is_reported_not_restarted_and_handled_when_it_ends(post: Post) -> None:
    post.barrier.until_open()
    post.pause(2 * HOUR)
    voice = post.barrier.voice
    words = "the engine was killed by SIGKILL while it served"
    voice.tell(replace(voice.state, phase=Phase.FAILED, words=words, exit=int(SuperviseExit.DIED_SERVING)))
    died_at = post.barrier.clock.wall()

    status = post.barrier.passed(SuperviseExit.DIED_SERVING)

    assert status is SuperviseExit.DIED_SERVING, "with this status systemd restarts it"
    assert post.barrier.clock.wall() >= died_at + 1.5 * HOUR
    paused = next(line for line in post.told.said if line.startswith("STATUS=paused until"))
    assert paused.endswith(f"by alice: a fan is swapped; {words}; nothing is restarted before it ends")
    assert post.told.said[-1] == f"STATUS=the pause is over; before, {words}"
    assert not any("STOPPING" in line for line in post.told.said)
    assert [failure.words for failure in post.tally().failed] == [words]


def test_a_start_within_a_pause_waits_for_its_end_and_asks_systemd_for_the_time(post: Post) -> None:
    post.pause(HOUR)

    assert post.barrier.until_open() is None

    assert any("the engine is started when it ends" in line for line in post.told.said)
    assert any(line.startswith("EXTEND_TIMEOUT_USEC=") for line in post.told.said)
    assert post.tally().open_since is not None


def test_who_waits_for_the_end_of_a_pause_can_be_stopped(post: Post) -> None:
    post.pause(1000 * HOUR)
    post.signals.send(bytes([signal.SIGTERM]))

    assert post.barrier.until_open() == Asked("SIGTERM")
    assert post.tally() == Tally(), "nothing was started, so nothing counts"


def test_a_stop_within_a_pause_after_a_crash_is_no_failure(post: Post) -> None:
    post.pause(1000 * HOUR)
    post.signals.send(bytes([signal.SIGTERM]))

    assert post.barrier.passed(SuperviseExit.DIED_SERVING) is SuperviseExit.OK
    assert post.told.said[-2] == "STOPPING=1"


def test_a_failed_stop_is_not_held_by_a_pause_for_systemd_waits_for_its_end(post: Post) -> None:
    post.barrier.voice.tell(post.barrier.voice.state, "STOPPING=1")
    post.pause(1000 * HOUR)

    assert post.barrier.passed(SuperviseExit.LEFT_OVER) is SuperviseExit.LEFT_OVER


def test_the_brake_parks_once_the_starts_of_all_roles_are_too_many_and_stays_closed(post: Post) -> None:
    died = (Failure(at=NOON, words="died"), Failure(at=NOON, words="died again"))
    maintenance.keep_tally(post.paths.all_starts / "decode" / maintenance.TALLY, Tally(failed=died))
    assert post.barrier.until_open() is None
    post.barrier.passed(SuperviseExit.DIED_LOADING)

    first = post.barrier.until_open()
    for _ in range(20):  # hours go by, and the window with them
        post.barrier.clock.now()
    later = post.barrier.until_open()

    assert isinstance(first, Failed)
    assert isinstance(later, Failed)
    assert (first.exit, first.advice) == (SuperviseExit.PARKED, "dsv4ctl resume")
    assert "3 starts failed within 1h on this host (decode 2, server 1)" in first.words == later.words
    assert post.tally("decode").parked is None, "only who would start again is parked"


def shown(*, restarts: int, steps: int = 0) -> Unit:
    """Our unit in the words of systemd, which before 254 has none for the steps."""
    known = f"RestartSteps={steps}\n" if steps else ""
    text = f"Id=a.service\nLoadState=loaded\nActiveState=activating\nNRestarts={restarts}\n{known}"
    return systemd.parse_show(text, wall_minus_monotonic_s=0.0)["a.service"]


def slowed(post: Post, *, restarts: int, steps: int = 0) -> Barrier:
    """The barrier of a server whose third start has failed long enough ago for a restart by systemd."""
    limits = Limits(restart_s=900, restart_max_s=100_000, starts=6)
    tally = Tally(failed=tuple(Failure(at=NOON - 3000 + 1000 * n, words="the engine died") for n in range(3)))
    maintenance.keep_tally(post.paths.all_starts / "server" / maintenance.TALLY, tally)
    return replace(post.barrier, limits=limits, unit=lambda: shown(restarts=restarts, steps=steps))


def waits(post: Post) -> list[str]:
    return [line for line in post.told.said if line.startswith("STATUS=waiting")]


def test_a_restart_waits_its_turn_says_so_and_asks_systemd_for_the_time(post: Post) -> None:
    barrier = slowed(post, restarts=3)
    turn = NOON - 1000 + brake.restart_delay_s(3, barrier.limits)

    assert barrier.until_open() is None

    assert post.barrier.clock.wall() >= turn
    (said,) = waits(post)
    assert said.endswith(" with this restart: 3 starts failed within 4h; the last: the engine died")
    assert any(line.startswith("EXTEND_TIMEOUT_USEC=") for line in post.told.said)
    assert barrier.voice.state.words == "ready", "what it said before holds again"
    assert post.tally().open_since is not None


@pytest.mark.parametrize(
    ("restarts", "steps"), [(0, 0), (3, 5)], ids=["a start by hand or at boot", "systemd slows restarts down itself"]
)
def test_no_other_start_waits(post: Post, restarts: int, steps: int) -> None:
    assert slowed(post, restarts=restarts, steps=steps).until_open() is None
    assert waits(post) == []


def test_whoever_waits_his_turn_starts_at_once_when_the_brake_is_released_as_by_a_deploy(post: Post) -> None:
    barrier = slowed(post, restarts=3)
    far = replace(barrier, limits=replace(barrier.limits, restart_max_s=10**8))

    def released() -> Unit:
        # Between the first look and the next, as a deploy would.
        threading.Timer(0.2, maintenance.release, args=(post.paths,)).start()
        return shown(restarts=3)

    assert replace(far, unit=released).until_open() is None

    assert len(waits(post)) == 1


def test_whoever_waits_his_turn_hears_a_stop_at_once_and_nothing_counts(post: Post) -> None:
    barrier = slowed(post, restarts=3)
    before = post.tally()
    post.signals.send(bytes([signal.SIGTERM]))

    assert barrier.until_open() == Asked("SIGTERM")
    assert post.tally() == before


def test_the_brake_parks_without_a_wait(post: Post) -> None:
    barrier = slowed(post, restarts=3)

    assert isinstance(replace(barrier, limits=replace(barrier.limits, starts=3)).until_open(), Failed)
    assert waits(post) == []


def test_a_released_brake_lets_start(post: Post) -> None:
    parked = Tally(parked=Failure(at=NOON, words="too often"))
    maintenance.keep_tally(post.paths.all_starts / "server" / maintenance.TALLY, parked)
    assert isinstance(post.barrier.until_open(), Failed)

    maintenance.release(post.paths)

    assert post.barrier.until_open() is None


def test_a_pause_stops_the_limits_and_they_begin_anew_after_it(post: Post) -> None:
    lull = post.barrier.lull
    assert lull.began_or(5.0) == 5.0
    post.pause(HOUR)
    assert lull.now() is not None
    while lull.now():
        assert lull.began_or(5.0) > post.barrier.clock.now() - 3000
    last = lull.began_or(5.0)
    assert last > 5.0
    assert lull.began_or(5.0) == last, "the pause is over: the limit runs"
    assert lull.began_or(last + 7.0) == last + 7.0


def test_a_damaged_pause_or_tally_holds_nobody(post: Post) -> None:
    for file in (post.paths.pause, post.paths.all_starts / "server" / maintenance.TALLY):
        files.write_atomic(file, '{"half', mode=0o644)

    assert post.barrier.until_open() is None


def test_a_tally_that_cannot_be_kept_is_told_and_keeps_nobody_from_starting(
    post: Post, capfd: pytest.CaptureFixture[str]
) -> None:
    (post.paths.all_starts / "server" / maintenance.TALLY).mkdir(parents=True)

    assert replace(post.barrier, journal=Journal()).until_open() is None

    assert "cannot write" in capfd.readouterr().err


# ---- seconds -------------------------------------------------------------------------------------------------------


def pause(bench: Bench, for_s: float) -> None:
    """Pause the bench's host: the supervisor looks two folders above that of its starts."""
    now = RealClock().wall()
    wanted = Pause(who="alice", reason="a fan is swapped", since=now, until=now + for_s)
    files.write_atomic(bench.folder / "lib/pause.json", record.dump(wanted), mode=0o644)


def paused_until(bench: Bench) -> float:
    found = maintenance.pause(bench.folder / "lib/pause.json")
    assert found is not None
    return found.until


def test_a_pause_is_told_while_it_lasts_and_an_engine_that_dies_in_it_is_held(bench: Bench) -> None:
    bench.start(dies_after_s=3.0, death=9).wait_ready()
    pause(bench, 8.0)
    bench.wait_status("ready: dsv4")
    bench.wait_for(lambda: any(s.startswith("ready: ") and "paused until" in s for s in bench.statuses))
    bench.wait_for(lambda: bench.state.phase is Phase.PAUSED)
    assert "the engine was killed by SIGKILL while it served" in bench.statuses[-1]
    assert marked(bench.folder) == [bench.pid]
    assert bench.process is not None
    assert bench.process.poll() is None

    assert bench.end() == SuperviseExit.DIED_SERVING
    assert not bench.said("STOPPING=1")


def test_an_engine_that_is_sick_within_a_pause_is_left_alone_and_judged_after_it(bench: Bench) -> None:
    sick = bench.folder / "sick"
    bench.limit(watch_s=1, unhealthy_s=1).start(health_file=str(sick)).wait_ready()
    pause(bench, 7.0)
    bench.wait_status("paused until")
    sick.touch()
    bench.wait_status("left alone, paused until")

    assert bench.end() == SuperviseExit.UNHEALTHY
    assert bench.state.since >= paused_until(bench)


def test_a_start_that_stalls_within_a_pause_is_ended_after_it(bench: Bench) -> None:
    bench.limit(stall_s=1).start(log=["Load weight begin. avail mem=90.0 GB"], hang=True)
    pause(bench, 4.0)
    bench.wait_status("paused until")

    assert bench.end() == SuperviseExit.STALLED
    assert bench.state.since >= paused_until(bench)


def test_a_look_at_the_pause_costs_a_supervisor_one_a_second(tmp_path: Path) -> None:
    paths, now = Paths(tmp_path), RealClock().wall()
    lull = Lull(paths.pause, RealClock())
    assert lull.now() is None

    maintenance.keep_pause(paths, Pause(who="alice", reason="a fan", since=now, until=now + 60))

    assert lull.now() is None
    assert LOOK_EVERY_S >= 1
