"""What people read: tables, durations, plans."""

from dataclasses import replace

import pytest

from dsv4ctl import screen
from dsv4ctl.asking import parse_loads
from dsv4ctl.findings import Check, Row, Status, Work
from dsv4ctl.problems import Status as ExitStatus

ROW = Row(
    unit="dsv4-server.service",
    role="server",
    state="active",
    since=1000.0,
    pid=4242,
    port=30001,
    health="ready",
    model="deepseek-v4-flash",
    context_length=524288,
    kv_tokens=6_050_000,
    running=3,
    waiting=0,
    gpus=(0, 1, 2, 3),
    gpu_used_bytes=4 * 90 * 1024**3,
    restarts=0,
    words="ready: serves",
)


def test_the_status_table_is_one_line_an_instance_and_its_own_words_below() -> None:
    assert screen.status(Status(rows=(ROW,)), now=1000.0 + 7200).splitlines() == [
        "UNIT         ROLE    STATE   SINCE  PID   PORT   HEALTH  MODEL              "
        "CONTEXT  KV TOKENS  RUN/WAIT  GPU MEMORY",
        "dsv4-server  server  active  2 h    4242  30001  ready   deepseek-v4-flash  "
        "524288   6.05 M     3/0       360.0 GiB on 4",
        "dsv4-server.service: ready: serves",
    ]


def test_what_nobody_tells_is_a_dash_and_never_a_zero() -> None:
    row = replace(ROW, pid=0, since=None, context_length=None, kv_tokens=None, running=None, gpu_used_bytes=None)

    cells = screen.status(Status(rows=(row,)), now=0.0).splitlines()[1].split()

    assert cells.count("-") == 6


@pytest.mark.parametrize(
    ("well", "serves", "at_work", "status"),
    [
        (True, True, True, ExitStatus.OK),
        (True, False, False, ExitStatus.OK),
        (False, False, True, ExitStatus.BUSY),
        (False, True, True, ExitStatus.NOT_READY),
        (False, False, False, ExitStatus.NOT_READY),
    ],
)
def test_whoever_watches_is_told_apart_what_is_amiss_and_what_somebody_is_at_work_on(
    *, well: bool, serves: bool, at_work: bool, status: ExitStatus
) -> None:
    work = Work(what="deploy", who="alice", reason="", since=1.0, pid=7, command="dsv4ctl deploy", words="")
    found = Status(rows=(replace(ROW, serves=serves),), well=well, work=work if at_work else None)

    assert found.exit_status == status


def test_an_engine_without_gpus_says_so() -> None:
    assert screen.status(Status(rows=(replace(ROW, gpus=()),)), now=0.0).splitlines()[1].endswith("no GPUs")


def test_an_empty_host_says_what_to_type() -> None:
    assert screen.status(Status(rows=()), now=0.0) == (
        "nothing is deployed here; dsv4ctl deploy --mode single-tp4 --port 30001"
    )


def test_notes_of_rows_and_of_the_host_stand_below() -> None:
    found = Status(rows=(replace(ROW, notes=("edited",)),), notes=("GPU memory is unknown: no driver",))

    assert screen.status(found, now=0.0).splitlines()[-2:] == ["note: edited", "note: GPU memory is unknown: no driver"]


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0, "0 s"), (119, "119 s"), (120, "2 min"), (7199, "119 min"), (7200, "2 h"), (172800, "2 d"), (400000, "4 d")],
)
def test_a_duration_has_one_unit(seconds: int, words: str) -> None:
    assert screen.duration(seconds) == words


@pytest.mark.parametrize(
    ("done", "total", "text"),
    [
        (0, 46, "[....................] 0/46"),
        (23, 46, "[##########..........] 23/46"),
        (50, 46, f"[{'#' * 20}] 50/46"),
        (1, 0, ""),
    ],
)
def test_a_bar_has_a_fixed_width_whatever_it_counts(done: int, total: int, text: str) -> None:
    assert screen.bar(done, total) == text


def test_a_check_that_failed_stands_out() -> None:
    found = (Check(what="port 30001", ok=True, words="free"), Check(what="processes", ok=False, words="pid 7"))

    assert screen.checks(found) == "gone  port 30001: free\nLEFT  processes: pid 7"


def test_loads_are_summed_over_data_parallel_ranks() -> None:
    rank = {"max_total_num_tokens": 100, "num_running_reqs": 2, "num_waiting_reqs": 1}

    load = parse_loads({"loads": [rank, rank]})

    assert (load.kv_tokens, load.running, load.waiting) == (200, 4, 2)


@pytest.mark.parametrize("body", [None, {}, {"loads": []}, {"loads": [{}]}, {"loads": "x"}, []])
def test_an_engine_that_says_nothing_of_its_load_has_none(body: object) -> None:
    load = parse_loads(body)

    assert (load.kv_tokens, load.running, load.waiting) == (None, None, None)
