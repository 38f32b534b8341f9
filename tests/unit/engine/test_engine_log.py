"""Recorded logs and single lines -> events. A case is a file: NAME.log with NAME.events, or a pair of lines."""

import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsv4ctl.engine import log
from dsv4ctl.engine.log import CapacitySeen, DrainSeen, Event, PhaseSeen, Progress, ReadyLine, TroubleSeen
from dsv4ctl.engine.troubles import cause_of
from dsv4ctl.model import Phase

RECORDED = Path(__file__).with_name("recorded")
LOGS = sorted(RECORDED.glob("*.log"))
LINES = sorted((RECORDED / "lines").glob("*.txt"))
DECODE = (
    "[2026-11-29 17:29:51 TP0] Decode batch, #running-req: 1, #token: 35, token usage: 0.01, cpu graph: False, "
    "gen throughput (token/s): 26.15, #queue-req: 0"
)


def said(event: Event | None) -> str:
    """An event in one line."""
    match event:
        case PhaseSeen(phase):
            return f"phase {phase}"
        case Progress(phase, done, total):
            return f"progress {phase} {done}/{total}"
        case CapacitySeen(capacity):
            numbers = (capacity.max_total_tokens, capacity.max_running_requests, capacity.context_length)
            return f"capacity {' '.join(map(str, numbers))} {capacity.available_gb}"
        case ReadyLine():
            return "ready"
        case DrainSeen(remaining):
            return f"drain {remaining}"
        case TroubleSeen(trouble):
            return f"{trouble.severity.name.lower()} {trouble.kind}: {trouble.cause} => {trouble.advice}"
    return "nothing"


def pairs(file: Path) -> list[tuple[str, str]]:
    """The log lines of a file with what is said below each, behind an arrow. Lines with a # in front are for people."""
    lines = [line for line in file.read_text().splitlines() if line and not line.startswith("#")]
    return list(zip(lines[::2], (line.removeprefix("-> ") for line in lines[1::2]), strict=True))


@pytest.mark.parametrize("file", LOGS, ids=lambda file: file.stem)
def test_a_recorded_log_tells_these_events_and_this_cause(file: Path) -> None:
    lines, rest = log.split(file.read_bytes())
    events = [event for line in lines if (event := log.parse_line(line))]
    cause = cause_of(event.trouble for event in events if isinstance(event, TroubleSeen))
    told = [*(said(event) for event in events), f"so: {cause.cause if cause else 'no cause'}"]
    assert told == file.with_suffix(".events").read_text().splitlines()
    assert rest == b""


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        pytest.param(line, wanted, id=f"{file.stem}-{at}")
        for file in LINES
        for at, (line, wanted) in enumerate(pairs(file))
    ],
)
def test_a_line_tells_what_is_written_below_it(line: str, wanted: str) -> None:
    assert said(log.parse_line(line)) == wanted


@pytest.mark.parametrize(
    "stamp",
    [
        "",
        "[2026-11-29 17:29:49] ",
        "[2026-11-29 17:29:49.123] ",
        "[2026-11-29 17:29:49 TP0] ",
        "[2026-11-29 17:29:49.123 DP0 PP1 ATTN_CP0 MOE_DP1 TP15 EP0] ",
        "\x1b[1;33m[2026-11-29 17:29:49 TP0] \x1b[0m",
    ],
)
def test_stamps_ranks_and_colours_change_nothing(stamp: str) -> None:
    assert log.parse_line(f"{stamp}Load weight begin. avail mem=94.02 GB") == PhaseSeen(Phase.WEIGHTS)
    assert said(log.parse_line(f"{stamp}RuntimeError: CUDA out of memory")).startswith("cause out-of-memory")


def test_a_bar_that_is_redrawn_is_split_at_its_carriage_returns() -> None:
    bar = "\rLoading safetensors checkpoint shards:  {}% Completed | {}/46 [00:01<00:02,  9.9it/s]"
    stream = (bar.format(2, 1) + bar.format(4, 2) + "\r\n" + "[2026-11-29 17:29:49 TP0] Load weight end.\n").encode()
    lines, rest = log.split(stream)
    assert [log.parse_line(line) for line in lines] == [
        Progress(Phase.WEIGHTS, 1, 46),
        Progress(Phase.WEIGHTS, 2, 46),
        PhaseSeen(Phase.WEIGHTS),
    ]
    assert rest == b""


def test_broken_bytes_do_not_hide_a_line() -> None:
    lines, _ = log.split(b"\xff\xfe garbage\nThe server is fired up and ready to roll!\xc3\n")
    assert [log.parse_line(line) for line in lines] == [None, ReadyLine()]


@given(st.binary(max_size=200), st.lists(st.integers(0, 200), max_size=5))
def test_wherever_a_stream_is_cut_the_lines_are_the_same(stream: bytes, cuts: list[int]) -> None:
    whole, rest = log.split(stream)
    lines: list[str] = []
    left = b""
    for begin, end in zip([0, *sorted(cuts)], [*sorted(cuts), len(stream)], strict=True):
        found, left = log.split(left + stream[begin:end])
        lines += found
    assert (lines, left) == (whole, rest)


@given(st.text(max_size=300))
def test_no_text_whatever_breaks_the_parser(line: str) -> None:
    assert said(log.parse_line(line))


def test_a_line_without_end_is_not_kept_for_ever() -> None:
    lines, rest = log.split(b"x" * (log.LONGEST_LINE + 1))
    assert (len(lines), rest) == (1, b"")


def test_what_users_say_is_not_taken_for_the_engines_word() -> None:
    words = "The server is fired up and ready to roll! RuntimeError: CUDA out of memory"
    for line in (f"Receive: obj=GenerateReqInput(text='{words}')", f"Finish: obj=GenerateReqInput(text='{words}')"):
        assert log.parse_line(f"[2026-11-29 17:29:49] {line}") is None


def test_what_the_arguments_hold_is_not_taken_for_trouble() -> None:
    line = "[2026-11-29 17:29:49] server_args={'served_model_name': 'RuntimeError: CUDA out of memory', 'x': '3/4 ['}"
    assert log.parse_line(line) == PhaseSeen(Phase.STARTING)


@pytest.mark.parametrize("line", [DECODE, "[2026-11-29 17:29:49 TP0] Tree cache initialized: " + "x=y " * 400])
def test_200_000_ordinary_lines_are_parsed_in_seconds(line: str) -> None:
    begun = time.process_time()
    for _ in range(20_000):
        assert log.parse_line(line) is None
    assert (time.process_time() - begun) * 10 < 10
