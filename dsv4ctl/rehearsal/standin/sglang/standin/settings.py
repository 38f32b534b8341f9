"""What a server was told, resolved: arguments, model and behaviour in one value that every process of it gets."""

import json
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import behaviour, figures, options
from .behaviour import Behaviour


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """The checkpoint as its config.json and its index tell."""

    path: str
    architecture: str
    model_type: str
    max_positions: int
    shards: int

    @property
    def is_deepseek_v4(self) -> bool:
        """Whether DeepSeek-V4's own pools and kernels are played."""
        return self.architecture.startswith("DeepseekV4")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """One server. `values` are the engine's arguments by their underscore names; `started` is a monotonic time."""

    values: dict[str, Any]
    words: tuple[str, ...]
    model: Model
    behaviour: Behaviour
    pid: int
    started: float
    instance: str

    def __getitem__(self, name: str) -> Any:  # noqa: ANN401 -- of as many kinds as there are options
        """An argument's value."""
        return self.values[name]

    @property
    def now(self) -> Behaviour:
        """How a request is treated at this moment."""
        return behaviour.now(self.behaviour)

    @property
    def tp(self) -> int:
        """Number of schedulers."""
        return int(self.values["tp_size"])

    @property
    def url(self) -> tuple[str, int]:
        """Where the server reaches itself."""
        wildcards = {"0.0.0.0": "127.0.0.1", "": "127.0.0.1", "::": "::1"}  # noqa: S104 -- compared, not bound
        return wildcards.get(self["host"], self["host"]), self["port"]

    @property
    def served_name(self) -> str:
        """The name that /v1/models tells."""
        return str(self.behaviour.wrong_model_name or self["served_model_name"])

    @property
    def mode(self) -> str:
        """null, prefill or decode."""
        return str(self.values["disaggregation_mode"])

    @property
    def on_gpu(self) -> bool:
        """Whether it plays GPUs: everything that is not `--device cpu`."""
        return bool(self["device"] != "cpu")

    @property
    def loads_file(self) -> Path:
        """The segment through which a scheduler tells its load; left behind at the end, as by the real engine."""
        return Path(f"/dev/shm/sglang_loads_{self.instance}_{self.instance[:8]}.shm")  # noqa: S108


def read(words: Sequence[str]) -> Settings:
    """Settings from the command line; ends the process with status 1 or 2 where the real engine does."""
    try:
        merged = options.merge_config(words)
    except (OSError, ValueError) as error:
        sys.exit(f"ValueError: {error}")
    values = vars(options.parser().parse_args(merged))
    try:
        behaves = behaviour.load(behaviour.find(values["port"]))
    except behaviour.BadBehaviour as error:
        sys.exit(str(error))
    model = _model(Path(values["model_path"]), values)
    return Settings(
        values=_resolved(values, model),
        words=tuple(merged),
        model=model,
        behaviour=behaves,
        pid=os.getpid(),
        started=time.monotonic(),
        instance=os.urandom(6).hex(),
    )


def _model(path: Path, values: dict[str, Any]) -> Model:
    """The checkpoint in a folder; a folder without config.json ends the process as the real engine does."""
    try:
        config = json.loads((path / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        sys.exit(
            f"OSError: Can't load the configuration of '{path}'. If you were trying to load it from "
            "'https://huggingface.co/models', make sure you don't have a local directory with the same name."
        )
    index = path / "model.safetensors.index.json"
    weights = json.loads(index.read_text(encoding="utf-8"))["weight_map"] if index.exists() else {}
    model = Model(
        path=str(path),
        architecture=config["architectures"][0],
        model_type=config["model_type"],
        max_positions=int(config["max_position_embeddings"]),
        shards=len(set(weights.values())) or 1,
    )
    _refuse(values, model)
    return model


def _refuse(values: dict[str, Any], model: Model) -> None:
    """End the process with status 1 for arguments that the real engine's validation refuses, or that are not played."""
    longer = os.environ.get("SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN", "0").lower() in ("1", "true", "yes", "y")
    length, limit = values["context_length"] or 0, model.max_positions
    if length > limit and not longer:
        asked = f"User-specified context_length ({length})"
        sys.exit(f"ValueError: {asked} is greater than the derived context_length ({limit}).")
    if ":" in (values["served_model_name"] or ""):
        sys.exit("ValueError: served_model_name cannot contain a colon (':') character")
    if model.is_deepseek_v4 and values["kv_cache_dtype"] not in ("auto", "fp8_e4m3", "bfloat16"):
        sys.exit(f"ValueError: DeepSeek-V4 does not support kv_cache_dtype={values['kv_cache_dtype']}")
    for name in ("pp_size", "dp_size", "attn_dp_size", "nnodes", "tokenizer_worker_num", "detokenizer_worker_num"):
        if values.get(name) not in (None, 1):
            sys.exit(f"the stand-in engine does not play --{name.replace('_', '-')} {values[name]}")
    if values["disaggregation_mode"] == "prefill" and values["disaggregation_transfer_backend"] == "fake":
        sys.exit("AssertionError: Prefill server does not support 'fake' as the transfer backend")


def _resolved(values: dict[str, Any], model: Model) -> dict[str, Any]:
    """Defaults that the real engine works out after parsing."""
    path = values["model_path"]
    made = {name: value for name, value in values.items() if name != "config"}
    made["tokenizer_path"] = values["tokenizer_path"] or path
    made["served_model_name"] = values["served_model_name"] or path
    made["device"] = values["device"] or "cuda"
    made["nccl_port"] = values["nccl_port"] or 22000 + os.getpid() % 8000
    made["disaggregation_mode"] = values["disaggregation_mode"] or "null"
    # TCP is a way of mooncake's.
    made["disaggregation_transfer_backend"] = values["disaggregation_transfer_backend"].removesuffix("_tcp")
    made["max_running_requests"] = values["max_running_requests"] or figures.DEFAULT_RUNNING
    made["chunked_prefill_size"] = values["chunked_prefill_size"] or 8192
    made["mem_fraction_static"] = values["mem_fraction_static"] or figures.fraction(
        values["tp_size"], made["chunked_prefill_size"], values["max_running_requests"]
    )
    if model.is_deepseek_v4:
        made["page_size"] = 256
        made["attention_backend"] = "dsv4"
        made["kv_cache_dtype"] = "fp8_e4m3" if values["kv_cache_dtype"] == "auto" else values["kv_cache_dtype"]
        made["swa_full_tokens_ratio"] = values["swa_full_tokens_ratio"] or 0.1
    return made
