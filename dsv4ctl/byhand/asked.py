"""What the command line of an engine asks for, in the keys of the configuration; and what no key can say."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from dsv4ctl import secret
from dsv4ctl.config import engine_args
from dsv4ctl.engine import readback, sglang
from dsv4ctl.engine.readback import DEFAULTS, Given, Launch
from dsv4ctl.model import Role

Value = str | int | float | bool
# Options of which one value is what the engine does anyway, so that nothing is lost without them.
_HARMLESS = frozenset({("--nnodes", "1"), ("--node-rank", "0"), ("--pp-size", "1"), ("--pipeline-parallel-size", "1")})
_FRACTIONS = frozenset({"memory.mem_fraction_static", "memory.swa_full_tokens_ratio"})
_TEXTS = frozenset({"memory.kv_cache_dtype"})
_NUMBERS = frozenset({"port", "internal_port", "transfer.bootstrap_port"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One engine as its command line asks for it. `keys`: key of the configuration -> value; `args`: what has no key.

    `left_out`: what cannot be configured, each with its reason. `first_gpu` and `gpu_step` count within the GPUs that
    the engine is shown. `api_key` is never shown.
    """

    role: Role
    tp: int
    keys: Mapping[str, Value]
    args: tuple[Given, ...] = ()
    left_out: tuple[str, ...] = ()
    first_gpu: int = 0
    gpu_step: int = 1
    api_key: str = field(default="", repr=False)

    @property
    def is_half(self) -> bool:
        """Whether it is one half of a pair."""
        return self.role in sglang.HALVES


def read(launch: Launch) -> Asked:
    """Read an engine's options. The keys hold also what it does by itself and dsv4ctl would do otherwise."""
    managed = sglang.managed_options()
    keys: dict[str, Value] = {}
    args: list[Given] = []
    left_out: list[str] = []
    for given in {given.name: given for given in launch.options}.values():
        if given.name in managed:
            why = _key(keys, managed[given.name], given)
        elif (given.name, given.value) in _HARMLESS:
            why = ""
        elif not (why := _refused(given)):
            args.append(given)
        left_out += [f"{given.name}: {why}"] if why else []
    role = _role(launch)
    return Asked(
        role=role,
        tp=_whole(launch, "--tp-size", 1),
        keys=_with_defaults(keys, role),
        args=tuple(args),
        left_out=tuple(left_out),
        first_gpu=_whole(launch, "--base-gpu-id", 0),
        gpu_step=_whole(launch, "--gpu-id-step", 1),
        api_key=launch.get("--api-key") or "",
    )


def _role(launch: Launch) -> Role:
    said = launch.get("--disaggregation-mode") or ""
    return Role(said) if said in ("prefill", "decode") else Role.SERVER


def _whole(launch: Launch, option: str, otherwise: int) -> int:
    said = launch.get(option) or ""
    return int(said) if said.isdecimal() and said.isascii() else otherwise


def _key(keys: dict[str, Value], key: str, given: Given) -> str:
    """Put an option under its key; returns why it cannot be, '' when it is there or needs no key."""
    if given.name == "--config":
        return f"the options in {given.value} are not read; add them to the config by hand"
    if key in ("mode", "gpus", "api_key_file"):
        return ""
    text = given.value.rpartition(":")[2] if given.name in ("--dist-init-addr", "--nccl-init-addr") else given.value
    try:
        keys[key] = _typed(key, given.name, text)
    except ValueError:
        return f"{given.value!r} is not understood"
    return ""


def _typed(key: str, option: str, text: str) -> Value:
    if option in sglang.SWITCHES:
        return True
    if key in _FRACTIONS:
        return float(text)
    if key in _NUMBERS:
        return int(text)
    if key.startswith("memory.") and key not in _TEXTS:
        return readback.whole_number(text)
    return "127.0.0.1" if key == "host" and text == "localhost" else text


def _refused(given: Given) -> str:
    """Why an option may not stand in the extra arguments; '' when it may."""
    words = (given.name, *given.values)
    if secret.args_shown(words) != words:
        return "it looks like a secret, and is not copied"
    return next(filter(None, map(engine_args.refused, words)), "")


def _with_defaults(keys: Mapping[str, Value], role: Role) -> dict[str, Value]:
    """The keys, and those in which dsv4ctl's default is not the engine's."""
    found: dict[str, Value] = {"port": int(DEFAULTS["--port"]), "enable_metrics": False, **keys}
    if model := keys.get("engine.model"):
        # Clients ask for it by the name that the engine took: the path as it was typed.
        found.setdefault("engine.served_model_name", model)
    if role in sglang.HALVES:
        # Both halves have metrics anyway: the proof of a pair reads them.
        found.pop("enable_metrics")
        found.setdefault("transfer.backend", DEFAULTS["--disaggregation-transfer-backend"])
    if role is Role.PREFILL:
        found.setdefault("transfer.bootstrap_port", int(DEFAULTS["--disaggregation-bootstrap-port"]))
    return found
