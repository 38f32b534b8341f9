"""SGLang's own flags where none are given, against what its ServerArgs resolved when it was executed."""

from typing import Any

import pytest

from dsv4ctl.memory import asked, defaults
from dsv4ctl.memory.defaults import Given
from dsv4ctl.model import Role
from tests.plans import ask

MIB = {"rtx-pro-6000": 97_887, "h100": 81_559, "h200": 143_771, "b200": 183_359, "b300": 275_040}


def fraction(gpu: str, role: Role = Role.SERVER, **given: Any) -> float:
    return defaults.fraction(MIB[gpu], Given(role=role, **given))


@pytest.mark.parametrize(
    ("gpu", "tp4", "tp8", "tp8_of_64"),
    [
        ("rtx-pro-6000", 0.854, 0.848, 0.857),
        ("h100", 0.824, 0.818, None),
        ("h200", 0.900, 0.897, 0.903),
        ("b200", 0.855, 0.852, 0.857),
        ("b300", 0.903, 0.901, None),
    ],
)
def test_the_default_fractions_of_each_class(gpu: str, tp4: float, tp8: float, tp8_of_64: float | None) -> None:
    assert (fraction(gpu, tp=4), fraction(gpu, tp=8)) == (tp4, tp8)
    assert tp8_of_64 in (None, fraction(gpu, tp=8, running_requests=64))


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"tp": 2}, 0.861),
        ({"tp": 4, "running_requests": 64}, 0.863),
        ({"tp": 4, "running_requests": 32, "chunk_tokens": 4096}, 0.895),
        ({"tp": 4, "running_requests": 32, "chunk_tokens": 2048}, 0.895),
        ({"tp": 8, "attention_dp": 8}, 0.660),
        ({"tp": 8, "attention_dp": 8, "chunk_tokens": 16384, "running_requests": 256}, 0.665),
        ({"tp": 4, "attention_dp": 4, "running_requests": 128}, 0.846),
    ],
)
def test_the_default_fractions_of_rtx_pro_6000(given: dict[str, Any], expected: float) -> None:
    assert fraction("rtx-pro-6000", **given) == expected


def test_a_pair_has_other_fractions_than_a_server() -> None:
    given = {"tp": 4, "running_requests": 256}

    assert fraction("h200", Role.DECODE, **given) == 0.929
    assert fraction("h200", Role.PREFILL, **given) == 0.907
    assert fraction("h200", Role.SERVER, **given) == 0.904


@pytest.mark.parametrize(("gpu", "chunk"), [("rtx-pro-6000", 8192), ("h100", 8192), ("h200", 8192), ("b200", 16384)])
def test_the_default_chunk_follows_the_size_of_the_gpu(gpu: str, chunk: int) -> None:
    assert defaults.chunk_tokens(MIB[gpu]) == chunk


@pytest.mark.parametrize(("largest", "count"), [(64, 12), (256, 36), (512, 52)])
def test_so_many_graphs_are_captured(largest: int, count: int) -> None:
    found = defaults.captured(largest, speculative=False)

    assert (len(found), found[-1]) == (count, largest)


def test_what_is_not_given_is_what_the_engine_takes() -> None:
    found = asked.flags(ask(running_requests=None))

    assert (found.running_requests, found.graph_batch, found.chunk_tokens, found.window_ratio, found.fraction) == (
        256,
        256,
        8192,
        0.1,
        0.854,
    )
