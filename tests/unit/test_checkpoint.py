"""A checkpoint's folder is measured without loading it."""

import json
from pathlib import Path
from typing import Any

import pytest

from dsv4ctl import checkpoint
from dsv4ctl.memory.sizes import GIB, gib

CONFIG: dict[str, Any] = {
    "architectures": ["DeepseekV4ForCausalLM"],
    "num_hidden_layers": 43,
    "hidden_size": 4096,
    "n_routed_experts": 256,
    "moe_intermediate_size": 2048,
}


def shard(file: Path, tensors: dict[str, int]) -> None:
    """A file whose header promises these sizes; nothing of it is there, and nothing of it is read."""
    header, at = {}, 0
    for name, size in tensors.items():
        header[name] = {"dtype": "I8", "shape": [size], "data_offsets": [at, at + size]}
        at += size
    text = json.dumps({"__metadata__": {"format": "pt"}, **header}).encode()
    file.write_bytes(len(text).to_bytes(8, "little") + text)


def folder(path: Path, total_gib: float, *tensors: dict[str, int], names: tuple[str, ...] = ()) -> Path:
    (path / "config.json").write_text(json.dumps(CONFIG))
    for number, each in enumerate(tensors):
        shard(path / f"model-{number}.safetensors", each)
    files = dict.fromkeys(names, "model-0.safetensors") | {
        name: f"model-{number}.safetensors" for number, each in enumerate(tensors) for name in each
    }
    index = {"metadata": {"total_size": gib(total_gib)}, "weight_map": files}
    (path / "model.safetensors.index.json").write_text(json.dumps(index))
    return path


def test_the_tensors_of_a_size_that_is_not_published_are_summed_by_their_headers(tmp_path: Path) -> None:
    first = {"model.layers.3.mlp.experts.0.down_proj.weight": gib(120.0), "model.layers.3.self_attn.q.weight": gib(5)}
    second = {"mtp.0.ffn.experts.1.w1.weight": gib(3.2), "model.layers.0.mlp.shared_experts.up.weight": gib(3.2)}

    found = checkpoint.read(folder(tmp_path, 131.4, first, second))

    assert found is not None
    assert (found.experts_bytes, found.draft_bytes) == (gib(120.0), gib(3.2))
    assert found.dense_bytes == pytest.approx(1.1 * gib(8.2), rel=1e-6)
    assert found.name == "V4-Flash FP4"


def test_files_that_hold_less_than_their_index_says_are_not_believed(tmp_path: Path) -> None:
    found = checkpoint.read(folder(tmp_path, 131.4, {"model.layers.3.mlp.experts.0.w1.weight": gib(1.0)}))

    assert found is not None
    assert found.source == "its 131.4 GiB"


def test_an_index_alone_is_enough(tmp_path: Path) -> None:
    found = checkpoint.read(folder(tmp_path, 148.66, names=("model.layers.0.a", "mtp.0.b")))

    assert found is not None
    assert (found.name, found.fitted) == ("V4-Flash FP4", True)
    assert "148.7 GiB agree" in found.source


def test_three_draft_stages_in_the_index_explain_a_larger_checkpoint(tmp_path: Path) -> None:
    found = checkpoint.read(folder(tmp_path, 155.4, names=("mtp.0.b", "mtp.1.b", "mtp.2.b")))

    assert found is not None
    assert (found.name, found.fitted, round(found.experts_bytes / GIB, 1)) == ("V4-Flash FP4", True, 137.1)


def test_a_layer_behind_the_last_is_a_draft() -> None:
    assert checkpoint.draft_layer("model.layers.43.mlp.experts.0.w", 43) == 0
    assert checkpoint.draft_layer("model.layers.42.mlp.experts.0.w", 43) is None
    assert checkpoint.draft_layer("mtp.2.x", 43) == 2
    assert checkpoint.draft_layer("model.embed_tokens.weight", 43) is None


def test_without_an_index_the_files_are_as_large_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    (tmp_path / "model.safetensors").write_bytes(b"\xff" * 1000)

    found = checkpoint.read(tmp_path)

    assert found is not None
    assert found.experts_bytes == 0


@pytest.mark.parametrize("text", ["", "[]", "{", '{"architectures": ["LlamaForCausalLM"]}'])
def test_anything_else_is_no_checkpoint_of_ours(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.json").write_text(text)

    assert checkpoint.read(tmp_path) is None
    assert checkpoint.read(tmp_path / "missing") is None
