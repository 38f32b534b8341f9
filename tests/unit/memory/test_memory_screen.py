"""What people read of memory plans, whole, for the hosts that are asked about most."""

import json
from collections.abc import Callable

import pytest

from dsv4ctl import memory_screen, modes
from dsv4ctl.memory import answers, foresee, gpus, weights
from dsv4ctl.memory import spec as specs
from dsv4ctl.memory.answers import Answer, Question
from dsv4ctl.memory.spec import Known, Unplanned
from dsv4ctl.model import EngineSpec, HostSpec, MemorySpec, Mode, Role, RoleShape
from tests.plans import ask

Golden = Callable[[str, str], None]
CONTEXTS = (131_072, 524_288, 1_048_576)
PAIR = Mode(
    name="pd",
    roles=(
        RoleShape(role=Role.PREFILL, tp=4, gpus=(0, 1, 2, 3)),
        RoleShape(role=Role.DECODE, tp=4, gpus=(4, 5, 6, 7)),
        RoleShape(role=Role.ROUTER, tp=0, gpus=()),
    ),
)
HOSTS = (
    ("rtx-pro-6000", modes.BUILT_IN["single-tp4"]),
    ("rtx-pro-6000", modes.BUILT_IN["single-tp8"]),
    ("rtx-pro-6000", PAIR),
    ("h200", modes.BUILT_IN["single-tp4"]),
    ("b200", modes.BUILT_IN["single-tp4"]),
)


def answered(gpu: str, mode: Mode, context: int) -> tuple[Answer, ...]:
    spec = HostSpec(mode=mode, engine=EngineSpec(model="/models/V4"), memory=MemorySpec(context_length=context))
    known = Known(checkpoint=weights.find("fp4"), gpu=gpus.find(gpu), engine_version="0.5.23")
    question = Question(compared=CONTEXTS if context == CONTEXTS[-1] else ())
    return tuple(answers.of(shape, specs.ask(spec, shape, known), question) for shape in specs.with_gpus(spec))


@pytest.mark.parametrize(("gpu", "mode"), HOSTS, ids=lambda part: part.name if isinstance(part, Mode) else part)
def test_the_plans_of_the_usual_hosts(gpu: str, mode: Mode, golden: Golden) -> None:
    found = [one for context in CONTEXTS for one in answered(gpu, mode, context)]

    texts = [memory_screen.answer(one, explain=bool(one.rows)) for one in found]

    golden(f"memory/{gpu}-{mode.name}.txt", "\n\n\n".join(texts) + "\n")


def test_no_line_of_a_table_is_wider_than_a_terminal_of_120() -> None:
    for gpu, mode in HOSTS:
        for one in answered(gpu, mode, 1_048_576):
            table = memory_screen.answer(one, explain=False).partition("\n\n")[0]
            assert max(map(len, table.splitlines())) <= 120


def test_json_holds_every_figure_in_bytes_and_they_are_the_gpu() -> None:
    (one,) = answered("rtx-pro-6000", modes.BUILT_IN["single-tp4"], 1_048_576)

    told = json.loads(json.dumps(memory_screen.answer_values(one)))

    assert sum(figure["bytes"] for figure in told["figures"]) == told["total_bytes"] == 97_887 * 1024**2
    assert {figure["kind"] for figure in told["figures"]} == {"exact", "estimate"}
    assert [row["context_tokens"] for row in told["compared"]] == list(CONTEXTS)
    assert told["recommended"]["choices"][0]["option"] == "--mem-fraction-static"


def test_a_plan_in_one_line() -> None:
    line = memory_screen.line(foresee.of(ask(context_tokens=524_288)))

    assert line == (
        "memory of server: weights 39.3 GiB, KV 40.6 GiB = 6.05 M tokens (11 of 524288 (512k) at once), slack 14.1 GiB "
        "with mem-fraction-static 0.85 (auto): fits"
    )


def test_a_role_without_a_plan_says_why() -> None:
    found = Unplanned(role=Role.SERVER, why="it runs without GPUs")

    assert memory_screen.line(found) == (
        "memory of server: cannot be planned: it runs without GPUs; mem-fraction-static is left to the engine"
    )
    assert memory_screen.values(found) == {"role": "server", "planned": False, "why": "it runs without GPUs"}
