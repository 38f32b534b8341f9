"""`dsv4ctl memory` as a person types it; nothing of the machine is needed but the name of a GPU."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from dsv4ctl import foresight
from dsv4ctl.cli import root
from dsv4ctl.cli.memory_bars import WIDTH, bar
from dsv4ctl.memory import budget
from dsv4ctl.memory.sizes import GIB
from dsv4ctl.model import Gpu, GpuProcess
from dsv4ctl.problems import BadConfig, GpuProblem
from tests.plans import ask

FILE = "[memory]\ncontext_length = '512k'\nmax_running_requests = 16\n"


def ran(folder: Path, *words: str, config: str = FILE) -> Result:
    (folder / "etc/dsv4ctl").mkdir(parents=True, exist_ok=True)
    (folder / "etc/dsv4ctl/config.toml").write_text(config)
    return CliRunner().invoke(root, ["memory", "--root", str(folder), *words])


def status(folder: Path, *words: str) -> object:
    ran(folder)
    argv = ["memory", "--root", str(folder), *words]
    return CliRunner().invoke(root, argv, standalone_mode=False).return_value


def plans(folder: Path, *words: str) -> list[dict[str, Any]]:
    done = ran(folder, "--json", *words)
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)["plans"]
    assert isinstance(found, list)
    return found


def test_the_config_is_planned_and_options_override_it(tmp_path: Path) -> None:
    (as_configured,) = plans(tmp_path, "--gpu", "rtx-pro-6000")
    (overridden,) = plans(tmp_path, "--gpu", "h200", "--context-length", "1M", "--tp", "8", "--checkpoint", "fp8")

    assert (as_configured["context_tokens"], as_configured["flags"]["running_requests"]) == (524_288, 16)
    assert (overridden["context_tokens"], overridden["tp"], overridden["checkpoint"]) == (
        1_048_576,
        8,
        "V4-Flash FP8",
    )


def test_several_contexts_are_planned_one_after_another(tmp_path: Path) -> None:
    found = plans(tmp_path, "--gpu", "b200", "--context-length", "128k, 512k,1M")

    assert [one["context_tokens"] for one in found] == [131_072, 524_288, 1_048_576]


def test_contexts_are_compared_side_by_side(tmp_path: Path) -> None:
    (one,) = plans(tmp_path, "--gpu", "h200", "--compare", "128k,1M")

    assert [row["context_tokens"] for row in one["compared"]] == [131_072, 1_048_576]


def test_speculation_and_more_requests_at_once_are_asked_for(tmp_path: Path) -> None:
    (one,) = plans(tmp_path, "--gpu", "rtx-pro-6000", "--speculative", "eagle:4", "--requests", "3")

    assert any(figure["name"] == "draft weights" for figure in one["figures"])
    assert one["requests_at_once"] >= 3


@pytest.mark.parametrize("how", [(), ("--json",)])
def test_what_does_not_fit_ends_with_status_2_whether_people_or_programs_read_it(
    tmp_path: Path, how: tuple[str, ...]
) -> None:
    assert status(tmp_path, "--gpu", "h200", *how) == 0
    assert status(tmp_path, "--gpu", "h200", "--tp", "1", *how) == 2


def test_nothing_is_recommended_for_the_impossible(tmp_path: Path) -> None:
    impossible = ran(tmp_path, "--gpu", "h200", "--tp", "1", "--json")
    badly_set = ran(tmp_path, "--gpu", "h200", "--mem-fraction-static", "0.2", "--json")

    assert json.loads(impossible.stdout)["plans"][0]["recommended"] is None
    assert json.loads(badly_set.stdout)["plans"][0]["verdict"]["answer"] == "does not fit"
    assert json.loads(badly_set.stdout)["plans"][0]["recommended"] is not None
    assert "recommended" not in ran(tmp_path, "--gpu", "h200", "--tp", "1").stdout


def test_the_recommended_lines_of_the_config_give_what_was_recommended(tmp_path: Path) -> None:
    (asked,) = plans(tmp_path, "--gpu", "rtx-pro-6000")
    config = asked["recommended"]["config"]

    (again,) = json.loads(ran(tmp_path, "--gpu", "rtx-pro-6000", "--json", config=config).stdout)["plans"]

    assert (again["context_tokens"], again["flags"]) == (524_288, asked["recommended"]["budget"]["flags"])
    assert all(f"  {line}\n" in ran(tmp_path, "--gpu", "rtx-pro-6000").stdout for line in config.splitlines())


def test_what_is_assumed_is_said_beside_the_plan(tmp_path: Path) -> None:
    done = ran(tmp_path, "--gpu", "rtx-pro-6000")

    assert "note: no model is configured; V4-Flash FP4 is taken" in done.stderr
    assert "note: no engine is configured; SGLang 0.5.23 is taken" in done.stderr
    assert done.stdout.startswith("server: V4-Flash FP4 on 4 x rtx-pro-6000 (GPUs 0-3), context 524288 (512k)")


def test_an_engine_version_with_other_constants_is_warned_about(tmp_path: Path) -> None:
    done = ran(tmp_path, "--gpu", "h20", config='[engine]\nversion = "0.5.18"\n')

    assert "warning: SGLang 0.5.18 lays its pools out as 0.5.15 to 0.5.22 did" in done.stdout


def test_the_three_questions_are_answered(tmp_path: Path) -> None:
    done = ran(tmp_path, "--gpu", "rtx-pro-6000", "--explain")

    for question in ("Is the KV cache as large as it can be?", "Can we serve 512k, or 1M?", "Does a longer context"):
        assert question in done.stdout


def test_a_role_without_gpus_has_no_plan(tmp_path: Path) -> None:
    done = ran(tmp_path, "--gpu", "h200", "--gpus", "none")

    assert "server: cannot be planned: it runs without GPUs" in done.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--gpu", "h300"), "cannot plan for GPU h300: did you mean h200? known are"),
        (("--gpu", "h200", "--checkpoint", "v5"), "cannot plan for checkpoint v5: known are v4-flash-fp4"),
        (("--gpu", "h200", "--checkpoint", "/nowhere"), "it is no folder of a DeepSeek-V4"),
    ],
)
def test_names_that_are_not_known_are_refused_with_the_known_ones(
    tmp_path: Path, words: tuple[str, ...], said: str
) -> None:
    done = ran(tmp_path, *words)

    assert isinstance(done.exception, BadConfig)
    assert said in str(done.exception)


@pytest.mark.parametrize(
    "words",
    [("--speculative", "eagle"), ("--compare", "128k,x"), ("--context-length", "1M,0"), ("--requests", "0")],
)
def test_options_that_cannot_be_read_are_wrong_usage(tmp_path: Path, words: tuple[str, ...]) -> None:
    done = ran(tmp_path, "--gpu", "h200", *words)

    assert done.exit_code == 2
    assert words[0] in done.stderr


def test_without_gpus_a_kind_must_be_named(tmp_path: Path) -> None:
    done = ran(tmp_path)

    if done.exit_code == 0:
        pytest.skip("this host has GPUs")
    assert isinstance(done.exception, GpuProblem)
    assert done.exception.hint == "name a kind: dsv4ctl memory --gpu h200"


def test_a_bar_shows_the_parts_of_a_gpu_in_proportion() -> None:
    drawn = bar(budget.of(ask(fraction=0.85)))

    spans = {str(span.style): span.end - span.start for span in drawn.spans}
    assert len(drawn.plain) == WIDTH
    assert spans["blue"] == pytest.approx(WIDTH * 39.3 / 95.6, abs=1)
    assert spans["green"] == pytest.approx(WIDTH * 40.6 / 95.6, abs=1)
    assert drawn.plain.count("░") >= 3


def test_a_bar_of_what_does_not_fit_ends_in_red() -> None:
    drawn = bar(budget.of(ask(tp=8, context_tokens=1_048_576)))

    assert "red" in {str(span.style) for span in drawn.spans}
    assert len(drawn.plain) == WIDTH


def gpu(used_gib: float | None, *processes: GpuProcess) -> Gpu:
    return Gpu(
        index=0,
        uuid="GPU-0",
        name="NVIDIA H200",
        pci_address="0000:01:00.0",
        total_bytes=140 * GIB,
        used_bytes=None if used_gib is None else round(used_gib * GIB),
        reserved_bytes=0,
        processes=processes,
    )


def test_what_others_hold_of_a_gpu_is_what_none_of_our_units_does() -> None:
    # This test runs in no unit of ours.
    me = GpuProcess(pid=os.getpid(), used_bytes=20 * GIB)

    assert foresight.others_bytes(gpu(20, me)) == 20 * GIB
    assert foresight.others_bytes(gpu(0.1)) == 0
    assert foresight.others_bytes(gpu(None)) == 0
