"""What is told to systemd, to state.json and to the journal, and how often."""

import os
import select
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsv4ctl import record
from dsv4ctl.model import Capacity, Instance, Limits, Phase, Role, RunState
from dsv4ctl.supervise import progress, words
from dsv4ctl.supervise.errands import Brought, Errands
from dsv4ctl.supervise.hearing import Hearing
from dsv4ctl.supervise.journal import Journal, is_journald
from dsv4ctl.supervise.notify import ToTerminal, Voice
from tests.unit.supervise.conftest import Bench


@dataclass
class HandClock:
    """Time that is turned by hand."""

    at: float = 1000.0

    def now(self) -> float:
        return self.at

    def wall(self) -> float:
        return self.at

    def sleep(self, seconds: float) -> None:
        self.at += seconds


@dataclass
class Systemd:
    """Somebody who keeps what it is told."""

    told: list[tuple[str, ...]] = field(default_factory=list)

    def send(self, *assignments: str) -> None:
        self.told.append(assignments)


STATE = RunState(
    name="server", digest="d", phase=Phase.WEIGHTS, words="loading weights 1/46", since=0, started_at=0, pid=1
)
INSTANCE = Instance(
    name="server", role=Role.SERVER, unit="dsv4-server.service", argv=(), environment=(), host="::", port=30001,
    rendezvous_port=20001, tp=1, gpus=(), gpu_uuids=(), model="m", served_model_name="dsv4", context_length=None,
    user=None, api_key_file=None, secrets_file=None, limits=Limits(),
)  # fmt: skip


@contextmanager
def stderr_to(file: Path) -> Iterator[None]:
    """Our stderr, as a file descriptor, into a file."""
    sys.stderr.flush()
    kept = os.dup(sys.stderr.fileno())
    with file.open("wb") as out:
        os.dup2(out.fileno(), sys.stderr.fileno())
        try:
            yield
        finally:
            os.dup2(kept, sys.stderr.fileno())
            os.close(kept)


@pytest.fixture
def spoken(tmp_path: Path) -> tuple[Voice, HandClock, Systemd]:
    clock, systemd = HandClock(), Systemd()
    return Voice(STATE, clock, systemd, journal=Journal(), file=tmp_path / "state.json"), clock, systemd


# ---- the voice -------------------------------------------------------------------------------------------------------


def test_a_state_that_has_not_changed_is_told_once(spoken: tuple[Voice, HandClock, Systemd]) -> None:
    voice, clock, systemd = spoken
    for _ in range(100):
        voice.tell(STATE)
        clock.sleep(1)
    assert systemd.told == [("STATUS=loading weights 1/46",)]


def test_a_fast_count_is_told_now_and_then_and_a_new_phase_at_once(
    spoken: tuple[Voice, HandClock, Systemd], tmp_path: Path
) -> None:
    voice, clock, systemd = spoken
    for done in range(46):
        voice.tell(replace(STATE, words=f"loading weights {done}/46", done=done))
        clock.sleep(0.01)
    assert len(systemd.told) == 2
    voice.tell(replace(STATE, phase=Phase.GRAPHS, words="capturing graphs"))
    assert systemd.told[-1] == ("STATUS=capturing graphs",)
    assert record.load_state((tmp_path / "state.json").read_text()).phase is Phase.GRAPHS


def test_a_change_that_was_not_told_for_it_came_too_soon_is_owed(
    spoken: tuple[Voice, HandClock, Systemd],
) -> None:
    voice, clock, systemd = spoken
    voice.tell(replace(STATE, words="degraded"))
    clock.sleep(0.01)
    voice.tell(replace(STATE, words="ready"))
    assert (systemd.told[-1], voice.is_behind) == (("STATUS=degraded",), True)
    clock.sleep(1)
    voice.tell(voice.state)
    assert (systemd.told[-1], voice.is_behind) == (("STATUS=ready",), False)


def test_the_time_of_a_phase_is_when_it_began(spoken: tuple[Voice, HandClock, Systemd]) -> None:
    voice, clock, _ = spoken
    voice.tell(replace(STATE, phase=Phase.GRAPHS))
    clock.sleep(5)
    voice.tell(replace(voice.state, words="more"))
    assert voice.state.since == 1000.0


def test_the_file_is_there_before_systemd_hears_of_it(tmp_path: Path) -> None:
    seen: list[str] = []

    class Looks:
        def send(self, *assignments: str) -> None:
            seen.append(record.load_state((tmp_path / "state.json").read_text()).words + " " + assignments[0])

    Voice(STATE, HandClock(), Looks(), journal=Journal(), file=tmp_path / "state.json").tell(STATE, "READY=1")
    assert seen == ["loading weights 1/46 READY=1"]


def test_a_status_is_one_line_of_a_length_that_systemctl_shows(spoken: tuple[Voice, HandClock, Systemd]) -> None:
    voice, _, systemd = spoken
    voice.tell(replace(STATE, words="first\nsecond " + "x" * 500))
    assert systemd.told[0][0].startswith("STATUS=first second xxx")
    assert len(systemd.told[0][0]) == len("STATUS=") + 255


def test_the_key_is_in_nothing_that_is_told(spoken: tuple[Voice, HandClock, Systemd], tmp_path: Path) -> None:
    voice, _, systemd = spoken
    voice.hide("top-secret")
    voice.tell(replace(STATE, words="refused: --api-key top-secret", advice="try top-secret"))
    assert "top-secret" not in str(systemd.told) + (tmp_path / "state.json").read_text()


def test_systemd_is_asked_for_time_once_a_second_at_most(spoken: tuple[Voice, HandClock, Systemd]) -> None:
    voice, clock, systemd = spoken
    for _ in range(100):
        voice.extend(900)
        clock.sleep(0.05)
    assert systemd.told == [("EXTEND_TIMEOUT_USEC=900000000",)] * 5


def test_more_time_is_asked_for_at_once(spoken: tuple[Voice, HandClock, Systemd]) -> None:
    voice, _, systemd = spoken
    voice.extend(10)
    voice.extend(100)
    assert len(systemd.told) == 2


def test_a_folder_that_is_gone_ends_nothing(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    systemd = Systemd()
    Voice(STATE, HandClock(), systemd, journal=Journal(), file=file / "state.json").tell(STATE)
    assert systemd.told == [("STATUS=loading weights 1/46",)]


def test_a_name_in_any_script_reaches_systemd_as_utf8(bench: Bench) -> None:
    bench.instance = replace(bench.instance, served_model_name="модель-é")
    bench.start(model="модель-é").wait_ready()
    assert bench.statuses[-1].startswith("ready: модель-é on ")


def test_on_a_terminal_a_line_with_new_figures_only_comes_now_and_then(tmp_path: Path) -> None:
    clock = HandClock()
    with stderr_to(tmp_path / "out"):
        terminal = ToTerminal(Journal(), clock)
        for left in range(30):
            terminal.send(f"STATUS=about {30 - left} s left")
            clock.sleep(1)
        terminal.send("STATUS=ready")
    assert len((tmp_path / "out").read_text().splitlines()) == 4


# ---- the journal -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("plain", "shown"),
    [(False, b"\x1b[33mwarn\x1b[0m\n1/3\r2/3\r"), (True, b"warn\n1/3\n2/3\n")],
)
def test_journald_gets_lines_that_it_can_show_and_a_terminal_the_bytes_as_they_are(
    tmp_path: Path,
    plain: bool,  # noqa: FBT001
    shown: bytes,
) -> None:
    with stderr_to(tmp_path / "out"):
        journal = Journal(plain=plain)
        journal.forward(b"\x1b[33mwarn\x1b[0m\n1/3\r2/3\r")
        journal.finish()
    assert (tmp_path / "out").read_bytes() == shown


@given(cuts=st.sets(st.integers(1, 45), max_size=8))
def test_however_the_output_was_read_no_line_of_the_engines_is_cut_by_ours(
    tmp_path_factory: pytest.TempPathFactory, cuts: set[int]
) -> None:
    said = b"\x1b[33mfirst\x1b[0m\r\nsecond\rthird \x1b[1mline\x1b[0m\nlast"
    out = tmp_path_factory.mktemp("journal") / "out"
    places = sorted(cuts)
    with stderr_to(out):
        journal = Journal(plain=True)
        for start, end in pairwise([0, *places, len(said)]):
            journal.forward(said[start:end])
            journal.note("ours")
        journal.finish()
    lines = [line for line in out.read_text().splitlines() if line != "dsv4ctl: ours"]
    assert lines == ["first", "second", "third line", "last"]


def test_a_line_without_end_is_passed_on_when_journald_would_break_it_too(tmp_path: Path) -> None:
    with stderr_to(tmp_path / "out"):
        journal = Journal(plain=True)
        journal.forward(b"x" * 50_000)
        journal.note("ours")
    assert (tmp_path / "out").read_bytes() == b"x" * 50_000 + b"\ndsv4ctl: ours\n"


def test_our_own_line_does_not_stick_to_a_bar_of_the_engines(tmp_path: Path) -> None:
    with stderr_to(tmp_path / "out"):
        journal = Journal()
        journal.forward(b"\rloading 3/46")
        journal.note("ours")
        journal.note("again")
    assert (tmp_path / "out").read_bytes() == b"\rloading 3/46\ndsv4ctl: ours\ndsv4ctl: again\n"


def test_stderr_is_journald_only_where_systemd_says_so_of_this_very_stream(tmp_path: Path) -> None:
    with stderr_to(tmp_path / "out"):
        here = (tmp_path / "out").stat()
        assert is_journald({"JOURNAL_STREAM": f"{here.st_dev}:{here.st_ino}"})
        assert not is_journald({"JOURNAL_STREAM": f"{here.st_dev}:{here.st_ino + 1}"})
        assert not is_journald({})


def test_a_bar_is_heard_while_it_still_stands_without_a_line_end(tmp_path: Path) -> None:
    with stderr_to(tmp_path / "out"):
        hearing = Hearing(Journal(), "", HandClock())
        heard = hearing.hear(b"\rMulti-thread loading shards:   6% Completed | 3/46 [00:01<00:20,  2.0it/s]")
    assert [(event.event.done, event.event.total) for event in heard] == [(3, 46)]  # type: ignore[union-attr]


def test_a_trouble_that_was_survived_long_ago_is_no_cause(tmp_path: Path) -> None:
    clock = HandClock()
    with stderr_to(tmp_path / "out"):
        hearing = Hearing(Journal(), "", clock)
        hearing.hear(b"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20 GiB.\nlast words\n")
        assert "memory" in hearing.cause()[0]
        clock.sleep(3600)
        assert hearing.cause() == ("its last line was: last words", "")


# ---- errands ---------------------------------------------------------------------------------------------------------


def collected(errands: Errands) -> list[Brought]:
    select.select([errands.ready], [], [], 10)
    return errands.collect()


def test_an_errand_is_not_sent_again_while_it_is_out() -> None:
    errands, (reader, writer) = Errands(), os.pipe()
    assert errands.send("slow", lambda: os.read(reader, 1))
    assert not errands.send("slow", lambda: b"")
    os.write(writer, b"x")
    assert collected(errands) == [Brought("slow", b"x")]
    assert not errands.is_out("slow")


def test_what_an_errand_did_not_expect_is_raised_where_it_is_collected() -> None:
    errands = Errands()
    errands.send("bad", lambda: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        collected(errands)


# ---- words -----------------------------------------------------------------------------------------------------------


def test_the_words_for_the_operator() -> None:
    weights = progress.counted(progress.begun(0.0), Phase.WEIGHTS, (31, 46), 1.0)
    assert words.loading(weights, Role.SERVER, 40) == "loading weights 31/46, about 40 s left"
    assert words.loading(weights, Role.SERVER, 300) == "loading weights 31/46, about 5 min left"
    assert words.loading(progress.begun(0.0), Role.SERVER, None) == "starting the engine"
    assert words.place(weights) == "weights 31/46"
    assert words.draining(3, 96.4) == "draining, 3 requests left, at most 97 s"
    assert words.draining(1, -5) == "draining, 1 request left, at most 0 s"
    assert words.draining(None, 5) == "draining, at most 5 s"
    capacity = Capacity(max_total_tokens=6_050_000, context_length=524288)
    assert words.ready(INSTANCE, capacity) == "ready: dsv4 on [::]:30001, context 524288, 6.05 M KV tokens"
    assert words.ready(INSTANCE, Capacity(max_total_tokens=0)) == "ready: dsv4 on [::]:30001"
    assert [words.tokens(n) for n in (980, 48_200, 6_050_000)] == ["980", "48.2 k", "6.05 M"]
