"""Which revision of a model lies in a folder: the commit of its Hugging Face snapshot, else a digest of its index."""

import hashlib
import re
from pathlib import Path

_SNAPSHOT = re.compile(r"/snapshots/([0-9a-f]{40})(?:/|$)")
# Small files that change with the weights; the weights themselves take minutes to read.
_TELLING = ("config.json", "model.safetensors.index.json")


def of(model: str | None) -> str:
    """The revision of the model in a folder; '' when there is no folder, or nothing in it that tells."""
    if not model or not Path(model).is_absolute():
        return ""
    if found := _SNAPSHOT.search(str(Path(model).resolve())):
        return found[1]
    digest, told = hashlib.sha256(), False
    for name in _TELLING:
        try:
            digest.update((Path(model) / name).read_bytes())
            told = True
        except OSError:
            continue
    return f"sha256:{digest.hexdigest()[:16]}" if told else ""
