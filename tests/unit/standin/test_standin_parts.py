"""The parts of the stand-in engine that need no server: its environment, behaviour files and figures."""

import importlib.util
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest

from dsv4ctl.rehearsal import environment
from dsv4ctl.rehearsal.standin.sglang.standin import behaviour, figures, options
from tests.contract.engines import CLOCK, Build


def test_the_environment_tells_its_version_and_serves_by_both_names(build: Build) -> None:
    ask = "import importlib.metadata as m, sglang; print(m.version('sglang'), sglang.__version__)"
    assert _run(str(build.python), "-c", ask) == "0.5.23 0.5.23\n"
    assert _run(str(build.python.with_name("sglang")), "version") == "sglang version: 0.5.23\n"


def _run(*argv: str) -> str:
    return subprocess.run(argv, capture_output=True, text=True, check=True, timeout=20).stdout


def test_installing_twice_is_quick_and_the_checkout_is_not_needed(build: Build) -> None:
    folder = build.python.parent.parent
    before = CLOCK.now()
    assert environment.install(folder, base_python=str(build.python)) == build.python
    assert CLOCK.now() - before < 0.5
    assert _run(str(build.python), "-P", "-c", "import sglang; print(sglang.__file__)").startswith(str(folder))


def test_every_key_of_a_behaviour_is_explained() -> None:
    text = behaviour.__doc__ or ""
    missing = [field.name for field in fields(behaviour.Behaviour) if f"\n  {field.name} " not in text]
    assert missing == []


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        ([], "a JSON object is expected"),
        ({"stall_in": "lunch"}, "stall_in must be one of import, dist, weights, pools, kernels, graphs, warmup"),
        ({"exit": 4}, "exit must be one of 1, 2, 3"),
        ({"ignore_sigterm": 1}, "ignore_sigterm must be bool"),
        ({"lose_port": True}, "lose_port must be float or null"),
        ({"chatty_lines": 1.5}, "chatty_lines must be int"),
    ],
)
def test_a_behaviour_that_cannot_be_meant_is_refused(keys: object, problem: str) -> None:
    with pytest.raises(behaviour.BadBehaviour, match=problem):
        behaviour.parse(keys)


def test_token_counts_are_read_as_by_the_real_engine() -> None:
    assert [options.human(word) for word in ("512", "128k", "128Ki", "1.5M")] == [512, 128_000, 131_072, 1_500_000]


def test_the_tokens_of_a_played_gpu_are_those_of_the_real_pool_configurator() -> None:
    # 20 GiB of budget, 256 requests: worked out with SGLang 0.5.23's own classes.
    assert figures.COMPRESSED_BYTES == 3899.25
    assert round(figures.COMPRESSED_BYTES + 0.1 * figures.WINDOW_BYTES, 2) == 7086.75


def test_the_standin_needs_nothing_but_the_standard_library() -> None:
    folder = Path(environment.__file__).with_name("standin") / "sglang"
    words = {line.split()[1].split(".")[0] for file in folder.rglob("*.py") for line in _imports(file)}
    known = sys.stdlib_module_names | {""}
    assert words <= known, words - known
    assert importlib.util.find_spec("sglang") is None


def _imports(file: Path) -> Iterator[str]:
    for line in file.read_text(encoding="utf-8").splitlines():
        if line.lstrip().startswith(("import ", "from ")):
            yield line.strip()
