"""What an engine's log tells of its memory, rank by rank."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from dsv4ctl.engine import memory_lines
from dsv4ctl.engine.memory_lines import MOST_RANKS, Rank
from dsv4ctl.model import Capacity

RECORDED = Path(__file__).with_name("recorded")
PLAIN = Capacity(max_total_tokens=1)


def lines_of(name: str) -> list[str]:
    return (RECORDED / name).read_text(errors="replace").splitlines()


def test_the_real_engine_on_a_cpu_tells_what_was_free_and_what_its_weights_took() -> None:
    assert memory_lines.heard({}, lines_of("serve-and-stop.log")) == {
        "": Rank(free_at_start_gb=21.29, weights_gb=0.0),
    }


def test_both_generations_of_lines_are_understood() -> None:
    old = memory_lines.heard({}, lines_of("lines/phases-0.5.3.txt"))
    new = memory_lines.heard({}, lines_of("lines/phases.txt"))

    assert old == {" TP0": Rank(free_at_start_gb=138.61, weights_gb=39.7, graphs_gb=1.31)}
    assert new[" TP1"] == Rank(free_at_start_gb=138.61, weights_gb=39.7)
    assert new[" TP2"] == Rank(graphs_gb=1.31)


def test_a_draft_model_adds_to_weights_and_graphs_and_not_to_what_was_free() -> None:
    found = memory_lines.heard(
        {},
        (
            "[2026-11-29 12:00:04 TP0] Load weight begin. avail mem=94.00 GB",
            "[2026-11-29 12:01:04 TP0] Load weight end. elapsed=60 s, avail mem=54.70 GB, mem usage=39.30 GB.",
            "[2026-11-29 12:01:05 TP0] Load weight begin. avail mem=54.70 GB",
            "[2026-11-29 12:01:15 TP0] Load weight end. elapsed=10 s, avail mem=53.60 GB, mem usage=1.10 GB.",
            "[2026-11-29 12:02:04 TP0] Capture target verify CUDA graph end. mem usage=1.20 GB, avail mem=9.0 GB.",
            "[2026-11-29 12:03:04 TP0] Capture draft decode CUDA graph end. mem usage=0.30 GB, avail mem=8.7 GB.",
        ),
    )

    assert found == {" TP0": Rank(free_at_start_gb=94.0, weights_gb=40.4, graphs_gb=1.5)}


def test_the_rank_with_least_free_and_those_that_took_most_are_told() -> None:
    ranks = {
        " TP0": Rank(free_at_start_gb=94.0, weights_gb=39.3, graphs_gb=1.2),
        " TP1": Rank(free_at_start_gb=93.5, weights_gb=39.4),
    }

    found = memory_lines.told(ranks, PLAIN)

    assert (found.free_at_start_gb, found.weights_gb, found.graphs_gb) == (93.5, 39.4, 1.2)
    assert memory_lines.told({}, PLAIN) == PLAIN


@given(st.lists(st.text() | st.sampled_from(("[2026-11-29 12:00:04 TP0] Load weight begin. avail mem=1e GB",))))
def test_any_line_is_survived(lines: list[str]) -> None:
    assert memory_lines.heard({}, lines) == {}


def test_a_log_full_of_ranks_does_not_grow_without_end() -> None:
    lines = [f"[2026-11-29 12:00:04 TP{n}] Load weight begin. avail mem=1.0 GB" for n in range(MOST_RANKS + 100)]

    assert len(memory_lines.heard({}, lines)) == MOST_RANKS
