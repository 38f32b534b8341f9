"""The rehearsal's engine reports what the planner plans for it: both follow the same arithmetic, written twice."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from dsv4ctl import checkpoint
from dsv4ctl.memory import budget, gpus
from dsv4ctl.memory.sizes import GIB
from dsv4ctl.rehearsal import environment
from dsv4ctl.rehearsal.standin.sglang.standin import figures
from dsv4ctl.rehearsal.standin.sglang.standin.figures import Figures
from tests.plans import ask

STAND_IN = next(one for one in gpus.CLASSES if one.name == "stand-in")


class Settings(dict[str, Any]):
    """What the figures look at of a stand-in's settings."""

    on_gpu = True
    model = SimpleNamespace(max_positions=1_048_576)
    tp = 4
    mode = "null"


def played(tp: int, fraction: float, running: int) -> Figures:
    nothing = dict.fromkeys(("context_length", "max_total_tokens", "disable_cuda_graph", "disable_decode_cuda_graph"))
    flags = {"mem_fraction_static": fraction, "max_running_requests": running, "swa_full_tokens_ratio": 0.1}
    settings = Settings({**nothing, **flags})
    settings.tp = tp
    return figures.work_out(cast("Any", settings))


@pytest.mark.parametrize("tp", [2, 4, 8])
@pytest.mark.parametrize("fraction", [0.83, 0.88])
@pytest.mark.parametrize("running", [16, 256])
def test_the_standin_has_the_tokens_that_are_planned(tmp_path: Path, tp: int, fraction: float, running: int) -> None:
    found = checkpoint.read(environment.make_model(tmp_path / "model"))
    assert found is not None
    asked_for = ask(checkpoint="fp4", tp=tp, fraction=fraction, running_requests=running)

    planned = budget.of(replace(asked_for, gpu=STAND_IN, checkpoint=found))
    reported = played(tp, fraction, running)

    assert reported.weights_gib == pytest.approx(planned.weights_bytes / GIB, rel=1e-6)
    assert reported.tokens == pytest.approx(planned.tokens, rel=0.001)


@pytest.mark.parametrize(("chunk", "running"), [(8192, None), (2048, 32), (16384, 256)])
def test_the_standin_takes_the_default_fraction_that_is_planned(chunk: int, running: int | None) -> None:
    asked_for = ask(chunk_tokens=chunk, running_requests=running)

    planned = budget.of(replace(asked_for, gpu=STAND_IN)).flags.fraction

    assert figures.fraction(4, chunk, running) == planned
