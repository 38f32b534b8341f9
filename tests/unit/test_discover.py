"""A made host below tmp_path: environments, checkpoints, and things that only look like them."""

import json
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from dsv4ctl import discover
from dsv4ctl.clock import RealClock
from dsv4ctl.discover.servers import Serving, interpreter, running
from dsv4ctl.discover.within import Item, within
from dsv4ctl.engine import readback
from dsv4ctl.found import CheckpointFound, EngineFound
from dsv4ctl.model import GpuView

DSV4 = {"architectures": ["DeepseekV4ForCausalLM"], "model_type": "deepseek_v4"}


def make_python(file: Path, *, sglang: str = "") -> Path:
    """An environment: bin/python, as a link like that of a virtual environment, and site-packages."""
    packages = file.parent.parent / "lib/python3.11/site-packages"
    packages.mkdir(parents=True, exist_ok=True)
    file.parent.mkdir(exist_ok=True)
    file.symlink_to(sys.executable)
    (packages / "sglang_router-0.3.2.dist-info").mkdir(exist_ok=True)
    if sglang:
        (packages / f"sglang-{sglang}.dist-info").mkdir()
    return file


def make_checkpoint(folder: Path, *, described: object = DSV4, shards: int = 2, there: int = 2) -> Path:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(described))
    names = [f"model-{number:05}.safetensors" for number in range(shards)]
    index = {"weight_map": {f"layer.{number}": name for number, name in enumerate(names)}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    for name in names[:there]:
        (folder / name).write_bytes(b"x" * 1000)
    return folder


def engines(root: Path, **environment: str) -> tuple[EngineFound, ...]:
    return discover.look(environment, GpuView(), root=root).engines


def checkpoints(root: Path, **environment: str) -> tuple[CheckpointFound, ...]:
    return discover.look(environment, GpuView(), root=root).checkpoints


def test_a_bare_host_has_nothing(tmp_path: Path) -> None:
    found = discover.look({}, GpuView(problem="no driver"), root=tmp_path)
    assert (found.engines, found.checkpoints, found.notes) == ((), (), ())
    assert found.gpus == GpuView(problem="no driver")


def test_an_environment_in_a_common_folder_is_found_with_its_version(tmp_path: Path) -> None:
    python = make_python(tmp_path / "opt/sglang/bin/python", sglang="0.5.23")
    assert engines(tmp_path) == (EngineFound(path=str(python), signs=("in a common folder",), version="0.5.23"),)


def test_an_environment_without_sglang_is_not_an_engine_though_the_router_is_there(tmp_path: Path) -> None:
    make_python(tmp_path / "opt/router/bin/python")
    assert engines(tmp_path) == ()


def test_the_active_environment_is_found(tmp_path: Path) -> None:
    make_python(tmp_path / "x/bin/python", sglang="0.5.23")
    (found,) = engines(tmp_path, VIRTUAL_ENV=str(tmp_path / "x"))
    assert found.signs == ("the active environment",)


def test_an_environment_on_path_is_found_once_under_its_plain_name(tmp_path: Path) -> None:
    python = make_python(tmp_path / "x/bin/python", sglang="0.5.23")
    python.with_name("python3").symlink_to("python")
    assert [(e.path, e.signs) for e in engines(tmp_path, PATH=str(python.parent))] == [(str(python), ("on PATH",))]


def test_the_sglang_script_on_path_leads_to_the_interpreter_of_its_first_line(tmp_path: Path) -> None:
    python = make_python(tmp_path / "x/bin/python", sglang="0.5.23")
    script = tmp_path / "bin/sglang"
    script.parent.mkdir()
    script.write_text(f"#!{python}\nimport sglang\n")
    script.chmod(0o755)
    assert [found.path for found in engines(tmp_path, PATH=str(script.parent))] == [str(python)]


def test_an_engine_found_in_two_ways_has_both_signs_the_stronger_first(tmp_path: Path) -> None:
    make_python(tmp_path / "opt/sglang/bin/python", sglang="0.5.23")
    (found,) = engines(tmp_path, VIRTUAL_ENV=str(tmp_path / "opt/sglang"))
    assert found.signs == ("the active environment", "in a common folder")


def test_an_interpreter_that_cannot_be_executed_is_not_an_engine(tmp_path: Path) -> None:
    python = make_python(tmp_path / "opt/sglang/bin/python", sglang="0.5.23")
    python.unlink()
    python.write_text("")
    assert engines(tmp_path) == ()


@pytest.mark.parametrize("place", ["models/a", "models/deepseek-ai/a", "data/x/y/a", "mnt/a", "srv/a", "opt/models/a"])
def test_a_checkpoint_in_a_model_folder_is_found_with_its_size(tmp_path: Path, place: str) -> None:
    folder = make_checkpoint(tmp_path / place)
    (found,) = checkpoints(tmp_path)
    assert (found.path, found.weights_bytes, found.missing) == (str(folder), 2000, 0)


@pytest.mark.parametrize(
    "described",
    [
        {"model_type": "deepseek_v4"},
        {"model_type": "deepseek_v41"},
        {"architectures": ["DeepseekV4ForCausalLM"]},
        {"architectures": [None, "DeepseekV4ForCausalLMNextN"]},
    ],
)
def test_a_deepseek_v4_is_known_by_its_type_or_its_architecture(tmp_path: Path, described: object) -> None:
    make_checkpoint(tmp_path / "models/a", described=described)
    assert len(checkpoints(tmp_path)) == 1


@pytest.mark.parametrize(
    "described",
    [
        {"model_type": "llama"},
        {"model_type": "deepseek_v3"},
        {"architectures": "DeepseekV4"},
        {"model_type": 4},
        [],
        None,
        "x",
    ],
)
def test_another_model_is_not_found(tmp_path: Path, described: object) -> None:
    make_checkpoint(tmp_path / "models/DeepSeek-V4-Flash", described=described)
    assert checkpoints(tmp_path) == ()


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b"[" * 100000])
def test_a_config_that_cannot_be_read_is_no_checkpoint(tmp_path: Path, content: bytes) -> None:
    make_checkpoint(tmp_path / "models/a")
    (tmp_path / "models/a/config.json").write_bytes(content)
    assert checkpoints(tmp_path) == ()


def test_a_checkpoint_without_all_files_of_its_index_is_incomplete(tmp_path: Path) -> None:
    make_checkpoint(tmp_path / "models/a", shards=5, there=3)
    assert [found.missing for found in checkpoints(tmp_path)] == [2]


def test_a_checkpoint_without_any_weights_is_incomplete(tmp_path: Path) -> None:
    folder = make_checkpoint(tmp_path / "models/a", there=0)
    (folder / "model.safetensors.index.json").unlink()
    assert [found.missing for found in checkpoints(tmp_path)] == [1]


def test_a_checkpoint_without_index_counts_the_weight_files_that_are_there(tmp_path: Path) -> None:
    folder = make_checkpoint(tmp_path / "models/a")
    (folder / "model.safetensors.index.json").unlink()
    assert [(found.weights_bytes, found.missing) for found in checkpoints(tmp_path)] == [(2000, 0)]


@pytest.mark.parametrize(
    ("hub", "variable", "value"),
    [
        ("hf/hub", "HF_HOME", "hf"),
        ("cache", "HF_HUB_CACHE", "cache"),
        ("home/me/.cache/huggingface/hub", "", ""),
        ("root/.cache/huggingface/hub", "", ""),
    ],
)
def test_a_snapshot_in_the_hugging_face_cache_is_found(tmp_path: Path, hub: str, variable: str, value: str) -> None:
    folder = make_checkpoint(tmp_path / hub / "models--deepseek-ai--DeepSeek-V4-Flash/snapshots/0123abc")
    (found,) = checkpoints(tmp_path, **({variable: str(tmp_path / value)} if variable else {}))
    assert (found.path, found.signs) == (str(folder), ("in the Hugging Face cache",))


def test_a_snapshot_whose_download_has_not_ended_is_incomplete(tmp_path: Path) -> None:
    folder = make_checkpoint(tmp_path / "hf/hub/models--x--y/snapshots/0123abc", there=1)
    (folder / "model-00001.safetensors").symlink_to("../../blobs/not-there-yet")
    assert [found.missing for found in checkpoints(tmp_path, HF_HOME=str(tmp_path / "hf"))] == [1]


def test_a_cache_kept_in_a_data_folder_is_found_without_being_named(tmp_path: Path) -> None:
    make_checkpoint(tmp_path / "data/hf/hub/models--x--y/snapshots/0123abc")
    assert len(checkpoints(tmp_path)) == 1


def test_folders_that_link_to_each_other_are_looked_into_once(tmp_path: Path) -> None:
    make_checkpoint(tmp_path / "data/a/b")
    (tmp_path / "data/a/loop").symlink_to(tmp_path / "data")
    (tmp_path / "data/again").symlink_to(tmp_path / "data/a")
    assert len(checkpoints(tmp_path)) == 1


def test_a_checkpoint_that_a_link_leads_to_from_another_place_is_one_checkpoint(tmp_path: Path) -> None:
    folder = make_checkpoint(tmp_path / "data/a")
    (tmp_path / "srv").mkdir()
    (tmp_path / "srv/current").symlink_to(folder)
    make_checkpoint(tmp_path / "srv/b")

    found = {one.path: one.signs for one in checkpoints(tmp_path)}

    assert found == {str(folder): ("below /data", "below /srv"), str(tmp_path / "srv/b"): ("below /srv",)}


def test_folders_are_looked_into_to_a_limited_depth(tmp_path: Path) -> None:
    make_checkpoint(tmp_path / "data/1/2/3/4/5/6")
    assert checkpoints(tmp_path) == ()


def test_a_running_server_leads_to_its_engine_and_its_model(tmp_path: Path) -> None:
    python = make_python(tmp_path / "x/bin/python", sglang="0.5.23")
    model = make_checkpoint(tmp_path / "y/model")
    serving = (Serving(pid=42, python=str(python), model=str(model)),)
    found = discover.look({}, GpuView(), root=tmp_path, serving=serving)
    assert [(e.path, e.serving, e.signs) for e in found.engines] == [
        (str(python), True, ("the server with pid 42 uses it",))
    ]
    assert [(c.path, c.serving) for c in found.checkpoints] == [(str(model), True)]


@pytest.mark.parametrize(
    ("command", "python", "model"),
    [
        ("/opt/x/bin/python -m sglang.launch_server --model-path /m/a --port 1", "/opt/x/bin/python", "/m/a"),
        ("/opt/x/bin/python3 -m sglang.launch_server --model=/m/a", "/opt/x/bin/python3", "/m/a"),
        ("/opt/x/bin/python3 /opt/y/bin/sglang serve /m/a --tp-size 4", "/opt/y/bin/python", "/m/a"),
        ("python3 /opt/y/bin/sglang serve --model-path /m/a", "/opt/y/bin/python", "/m/a"),
        ("python -m sglang.launch_server", "/active/bin/python", ""),
        ("python -m sglang.launch_server --model-path", "/active/bin/python", ""),
    ],
)
def test_a_servers_command_line_tells_its_interpreter_and_its_model(command: str, python: str, model: str) -> None:
    found = readback.launch(command.split(" "))
    assert found is not None
    assert (interpreter(found, {"VIRTUAL_ENV": "/active"}), found.get("--model-path") or "") == (python, model)


def test_a_bare_interpreter_is_looked_for_on_the_path_of_its_own_environment(tmp_path: Path) -> None:
    python = make_python(tmp_path / "x/bin/python")
    found = readback.launch(("python", "-m", "sglang.launch_server"))
    assert found is not None
    assert interpreter(found, {"PATH": str(python.parent)}) == str(python)


def test_looking_at_the_processes_of_this_machine_disturbs_nobody() -> None:
    assert all(server.pid != os.getpid() for server in running())


def test_a_search_that_hangs_is_left_behind_and_named_and_the_others_count() -> None:
    let_go = threading.Event()

    def hangs(_: threading.Event) -> Iterator[Item]:
        yield CheckpointFound(path="/early", signs=())
        let_go.wait(60)

    def answers(_: threading.Event) -> Iterator[Item]:
        yield CheckpointFound(path="/a", signs=())

    clock = RealClock()
    began = clock.now()
    items, late = within(0.2, {"/mnt": hangs, "/models": answers}, clock)
    took = clock.now() - began
    let_go.set()
    assert "/a" in [item.path for item in items]
    assert late == ["/mnt"]
    assert took < 5


def test_a_search_that_is_refused_by_the_system_keeps_what_it_found() -> None:
    def refused(_: threading.Event) -> Iterator[Item]:
        yield CheckpointFound(path="/a", signs=())
        raise PermissionError

    items, late = within(5, {"/mnt": refused}, RealClock())
    assert (late, len(items)) == ([], 1)
