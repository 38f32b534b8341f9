"""A checkpoint's folder -> its sizes: from config.json, the index and the headers of its files. Nothing is loaded.

Knows the form of safetensors files: eight bytes of length, then a JSON header that says where each tensor lies.
"""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from dsv4ctl.memory import weights
from dsv4ctl.memory.weights import Checkpoint, Contents

_LARGEST_JSON_BYTES = 256 * 1024 * 1024
_EXPERT = re.compile(r"(?:^|\.)experts\.\d+\.")
_DRAFT = re.compile(r"(?:^|\.)(?:mtp|nextn|dspark)\.(\d+)\.")
_LAYER = re.compile(r"(?:^|\.)layers\.(\d+)\.")


@dataclass(frozen=True, slots=True)
class Tensor:
    """One tensor of the files and its size."""

    name: str
    size_bytes: int


def read(folder: Path) -> Checkpoint | None:
    """What the planner knows of the checkpoint in a folder; None where it is no DeepSeek-V4 of a known build.

    Where the index gives the size of a published checkpoint, that is it; else every tensor is looked up.
    """
    config, index = _object(folder / "config.json"), _object(folder / "model.safetensors.index.json")
    if not config:
        return None
    layers = config.get("num_hidden_layers")
    last = layers if isinstance(layers, int) else 0
    said = _by_index(folder, index, last)
    found = weights.of_files(config, said)
    if found is None or found.fitted:
        return found
    counted = _by_tensors(_files(folder, index), last)
    # A file whose download has not ended, or one that holds no weights, tells less than the index.
    return weights.of_files(config, counted) if counted.total_bytes >= said.total_bytes / 2 else found


def stamp(folder: Path) -> str:
    """What tells a checkpoint from another that took its place: a digest of its config and index; '' without any."""
    found = hashlib.sha256()
    for name in ("config.json", "model.safetensors.index.json"):
        with suppress(OSError):
            found.update((folder / name).read_bytes())
    return "" if found.digest() == hashlib.sha256().digest() else found.hexdigest()[:12]


def _by_index(folder: Path, index: Mapping[str, object], layers: int) -> Contents:
    named = index.get("weight_map")
    names = list(named) if isinstance(named, dict) else []
    size = _total(index) or sum(_size(file) for file in _files(folder, index))
    return Contents(total_bytes=size, draft_layers=len({draft_layer(name, layers) for name in names} - {None}))


def _by_tensors(files: list[Path], layers: int) -> Contents:
    """By the headers of the tensor files."""
    tensors = [tensor for file in files for tensor in _tensors(file)]
    own = [tensor for tensor in tensors if draft_layer(tensor.name, layers) is None]
    whole = sum(tensor.size_bytes for tensor in tensors)
    return Contents(
        total_bytes=whole,
        experts_bytes=sum(tensor.size_bytes for tensor in own if _EXPERT.search(tensor.name)),
        engram_bytes=sum(tensor.size_bytes for tensor in own if "engram" in tensor.name.lower()),
        draft_bytes=whole - sum(tensor.size_bytes for tensor in own),
        draft_layers=len({draft_layer(tensor.name, layers) for tensor in tensors} - {None}),
    )


def _files(folder: Path, index: Mapping[str, object]) -> list[Path]:
    named = index.get("weight_map")
    names = sorted({str(file) for file in named.values()}) if isinstance(named, dict) else []
    return [folder / name for name in names] or sorted(folder.glob("*.safetensors"))


def draft_layer(name: str, layers: int) -> int | None:
    """The number of the draft layer that a tensor belongs to; None for the model's own.

    They are called mtp.0 and so on, or stand behind the last layer of the model.
    """
    if match := _DRAFT.search(name):
        return int(match[1])
    match = _LAYER.search(name)
    number = int(match[1]) if match else 0
    return number - layers if layers and number >= layers else None


def _tensors(file: Path) -> Iterator[Tensor]:
    """The tensors that a file's header names; none where it is no such file."""
    try:
        with file.open("rb") as opened:
            length = int.from_bytes(opened.read(8), "little")
            header = json.loads(opened.read(length)) if 0 < length <= _LARGEST_JSON_BYTES else {}
    except (OSError, ValueError, RecursionError):
        return
    for name, said in header.items() if isinstance(header, dict) else ():
        offsets = said.get("data_offsets") if isinstance(said, dict) else None
        if isinstance(offsets, list) and len(offsets) == 2 and all(isinstance(at, int) for at in offsets):
            yield Tensor(name, offsets[1] - offsets[0])


def _total(index: Mapping[str, object]) -> int:
    metadata = index.get("metadata")
    size = metadata.get("total_size") if isinstance(metadata, dict) else None
    return size if isinstance(size, int) else 0


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:
        return 0


def _object(file: Path) -> dict[str, object]:
    """An object in a JSON file; {} for anything else."""
    try:
        if file.stat().st_size > _LARGEST_JSON_BYTES:
            return {}
        said = json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return said if isinstance(said, dict) else {}
