"""DeepSeek-V4 checkpoints on disk, known by their config.json; looked for to a limited depth and until told to stop."""

import contextlib
import json
import os
import re
import threading
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path

from dsv4ctl import there
from dsv4ctl.found import CheckpointFound

MODEL_FOLDERS = ("models", "data", "mnt", "srv", "opt/models")
_HUB_FOLDERS = ("root/.cache/huggingface/hub", "home/*/.cache/huggingface/hub")
# Deep enough for a Hugging Face cache kept in a folder of /data: FOLDER/hub/models--NAME/snapshots/COMMIT.
_DEEPEST = 5
_LARGEST_JSON = 64 * 1024 * 1024


def checkpoint(folder: Path, sign: str, *, serving: bool = False) -> CheckpointFound | None:
    """The DeepSeek-V4 checkpoint in this very folder, by its config.json; None when there is none."""
    described = _json(folder / "config.json")
    names = [described.get("model_type"), *_list(described.get("architectures"))]
    if not any(re.search("deepseek_?v4", name, re.IGNORECASE) for name in names if isinstance(name, str)):
        return None
    if not str(folder).isprintable():
        return None
    weights = _weights(folder)
    sizes = [file.stat().st_size for file in weights if there.is_file(file)]
    missing = len(weights) - len(sizes) or int(not weights)
    status = folder.stat()
    return CheckpointFound(
        path=str(folder),
        signs=(sign,),
        serving=serving,
        weights_bytes=sum(sizes),
        missing=missing,
        folder=(status.st_dev, status.st_ino),
    )


def _weights(folder: Path) -> list[Path]:
    """The weight files that the index names, or those that are there when there is no index."""
    named = _json(folder / "model.safetensors.index.json").get("weight_map")
    if isinstance(named, dict) and named:
        return [folder / name for name in sorted({name for name in named.values() if isinstance(name, str)})]
    return sorted(folder.glob("*.safetensors"))


def _json(file: Path) -> dict[str, object]:
    """An object in a JSON file; {} for anything else: it is not a checkpoint of ours then."""
    try:
        if not file.is_file() or file.stat().st_size > _LARGEST_JSON:
            return {}
        said = json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return said if isinstance(said, dict) else {}


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def hubs(environment: Mapping[str, str], root: Path) -> Iterator[Path]:
    """The folders of Hugging Face's cache: those that the environment names, then every user's own."""
    if environment.get("HF_HUB_CACHE"):
        yield Path(environment["HF_HUB_CACHE"])
    if environment.get("HF_HOME"):
        yield Path(environment["HF_HOME"]) / "hub"
    yield from chain.from_iterable(sorted(root.glob(pattern)) for pattern in _HUB_FOLDERS)


def in_hubs(folders: Iterable[Path], stop: threading.Event) -> Iterator[CheckpointFound]:
    """The snapshots in these caches. A file whose download has not ended is missing from its snapshot."""
    for snapshot in chain.from_iterable(sorted(hub.glob("models--*/snapshots/*")) for hub in folders):
        if stop.is_set():
            return
        if found := checkpoint(snapshot, "in the Hugging Face cache"):
            yield found


def walk(top: Path, sign: str, stop: threading.Event) -> Iterator[CheckpointFound]:
    """The checkpoints at and below a folder, the nearest first; linked folders too, each folder once."""
    seen: set[tuple[int, int]] = set()
    level = [top]
    for _ in range(_DEEPEST + 1):
        below: list[Path] = []
        for folder in level:
            if stop.is_set():
                return
            if found := checkpoint(folder, sign):
                yield found
            else:
                below += _folders(folder, seen)
        level = below


def _folders(folder: Path, seen: set[tuple[int, int]]) -> list[Path]:
    found = []
    # What goes or cannot be read while we look is no place for a checkpoint.
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if not entry.name.startswith(".") and entry.is_dir():
                status = entry.stat()
                if (status.st_dev, status.st_ino) not in seen:
                    seen.add((status.st_dev, status.st_ino))
                    found.append(Path(entry.path))
    return sorted(found)
