"""What was found on a host before there is a config, which of it to take and why, and the config that comes of it."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Self

from typing_extensions import override

from dsv4ctl import modes, quantity
from dsv4ctl.model import GpuView

# Weights above this share of the GPUs' memory leave too little for the KV pool and the graphs.
_WEIGHTS_SHARE = 0.8
# The tested topologies first; fewer ranks only where there are fewer GPUs.
_RANKS = (4, 8, 2, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A path where something was found, and the signs that led to it, the strongest first."""

    path: str
    signs: tuple[str, ...]
    serving: bool = False

    @property
    def itself(self) -> object:
        """What two findings of the same place have in common."""
        return self.path

    def and_also(self, other: Self) -> Self:
        """The same place with the signs of both findings."""
        signs = tuple(dict.fromkeys((*self.signs, *other.signs)))
        return replace(self, signs=signs, serving=self.serving or other.serving)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineFound(Place):
    """The interpreter of an environment with SGLang in it."""

    version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointFound(Place):
    """The folder of a DeepSeek-V4 checkpoint; `missing` counts weight files that it should have and has not.

    `folder`: its device and inode, by which it is the same one behind a link or a bind mount.
    """

    weights_bytes: int = 0
    missing: int = 0
    folder: tuple[int, int] | None = field(default=None, compare=False)

    @property
    @override
    def itself(self) -> object:
        return self.folder or self.path


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Everything found; `notes` tells where looking was cut short."""

    engines: tuple[EngineFound, ...] = ()
    checkpoints: tuple[CheckpointFound, ...] = ()
    gpus: GpuView = field(default_factory=GpuView)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What to write into the config, each with its reason. tp 0: the GPUs give no reason for a mode."""

    engine: EngineFound | None
    engine_reason: str
    checkpoint: CheckpointFound | None
    checkpoint_reason: str
    tp: int
    mode_reason: str


def choose(found: Found) -> Choice:
    """The engine and the checkpoint that serve already, else the strongest sign; the mode that the weights fit on."""
    engine, engine_reason = _engine(found.engines)
    checkpoint, checkpoint_reason = _checkpoint(found.checkpoints)
    tp, mode_reason = _ranks(found.gpus, checkpoint.weights_bytes if checkpoint else 0)
    return Choice(
        engine=engine,
        engine_reason=engine_reason,
        checkpoint=checkpoint,
        checkpoint_reason=checkpoint_reason,
        tp=tp,
        mode_reason=mode_reason,
    )


def _engine(engines: tuple[EngineFound, ...]) -> tuple[EngineFound | None, str]:
    if not engines:
        return None, "no environment with sglang was found"
    serving = [engine for engine in engines if engine.serving]
    chosen = (serving or engines)[0]
    return chosen, _reason(len(engines), len(serving), chosen.signs[0])


def _checkpoint(checkpoints: tuple[CheckpointFound, ...]) -> tuple[CheckpointFound | None, str]:
    whole = [checkpoint for checkpoint in checkpoints if not checkpoint.missing]
    if not whole:
        some = f"{len(checkpoints)} incomplete" if checkpoints else "no"
        return None, f"{some} DeepSeek-V4 checkpoint was found"
    serving = [checkpoint for checkpoint in whole if checkpoint.serving]
    # Flash is what one host of this kind serves; Pro takes all of its memory.
    flash = [checkpoint for checkpoint in whole if "flash" in checkpoint.path.lower()]
    chosen = (serving or flash or whole)[0]
    return chosen, _reason(len(whole), len(serving), "the first Flash of them" if flash else "the first of them")


def _reason(count: int, serving: int, otherwise: str) -> str:
    if count == 1:
        return "the only one found"
    return f"{'the one that serves now' if serving else otherwise}; {count} were found"


def _ranks(view: GpuView, weights_bytes: int) -> tuple[int, str]:
    if view.problem:
        return 0, f"the default, for the GPUs cannot be read: {view.problem}"
    if not view.gpus:
        return 0, "the default, for this host has no GPU"
    one_bytes = min(gpu.total_bytes for gpu in view.gpus)
    possible = [tp for tp in _RANKS if tp <= len(view.gpus)]
    fitting = [tp for tp in possible if weights_bytes <= _WEIGHTS_SHARE * tp * one_bytes]
    size = f"weights of {quantity.bytes_text(weights_bytes)}" if weights_bytes else "unknown weights"
    gpus = f"of {len(view.gpus)} GPUs with {quantity.bytes_text(one_bytes)} each"
    if not fitting:
        return max(possible), f"{size} do not fit well on any number {gpus}"
    return fitting[0], f"{size} on {fitting[0]} {gpus}"


def lines(found: Found, choice: Choice) -> Iterator[str]:
    """What was found, what is chosen of it and why, for people."""
    yield from place_lines(found, choice)
    yield from _kind("GPUs", _gpu_lines(found.gpus))
    yield f"  -> mode {_mode_name(choice.tp)}: {choice.mode_reason}"


def place_lines(found: Found, choice: Choice) -> Iterator[str]:
    """The engines and checkpoints of it."""
    yield from _kind("engines", (f"{e.path}  sglang {e.version}  ({'; '.join(e.signs)})" for e in found.engines))
    yield f"  -> {choice.engine.path if choice.engine else 'none'}: {choice.engine_reason}"
    yield from _kind("DeepSeek-V4 checkpoints", map(_checkpoint_line, found.checkpoints))
    yield f"  -> {choice.checkpoint.path if choice.checkpoint else 'none'}: {choice.checkpoint_reason}"
    yield from found.notes


def _kind(title: str, entries: Iterable[str]) -> Iterator[str]:
    yield f"{title}:"
    yield from [f"  {entry}" for entry in entries] or ["  none found"]


def _checkpoint_line(checkpoint: CheckpointFound) -> str:
    missing = f", {checkpoint.missing} weight files missing" if checkpoint.missing else ""
    size = quantity.bytes_text(checkpoint.weights_bytes)
    return f"{checkpoint.path}  {size}{missing}  ({'; '.join(checkpoint.signs)})"


def _gpu_lines(view: GpuView) -> Iterator[str]:
    if view.problem:
        yield view.problem
    for gpu in view.gpus:
        node = "" if gpu.numa_node is None else f"  NUMA node {gpu.numa_node}"
        yield f"{gpu.index}  {gpu.name}  {quantity.bytes_text(gpu.total_bytes)}{node}"


def _mode_name(tp: int) -> str:
    return f"single-tp{tp}" if tp else modes.DEFAULT


def config_text(choice: Choice) -> str:
    """A config with what was chosen and why; what was not found stands there commented out, to be filled in."""
    name = _mode_name(choice.tp)
    lines = [
        "# Written by `dsv4ctl init` for this host. `dsv4ctl config example` explains every key.",
        "",
        f"# {choice.mode_reason}",
        f'mode = "{name}"',
        "",
        "[engine]",
        f"# {choice.engine_reason}" + (f"; sglang {choice.engine.version}" if choice.engine else ""),
        _setting("python", choice.engine.path if choice.engine else None, "/opt/sglang/bin/python"),
        f"# {choice.checkpoint_reason}",
        _setting("model", choice.checkpoint.path if choice.checkpoint else None, "/models/DeepSeek-V4-Flash"),
    ]
    if name not in modes.BUILT_IN:
        lines += ["", f"[modes.{name}]", f"server = {{ tp = {choice.tp}, gpus = {list(range(choice.tp))} }}"]
    return "\n".join(lines) + "\n"


def _setting(key: str, value: str | None, example: str) -> str:
    # A JSON string is a TOML basic string as long as it holds no control characters, and no found path does.
    return f"{key} = {json.dumps(value, ensure_ascii=False)}" if value else f"#{key} = {json.dumps(example)}"
