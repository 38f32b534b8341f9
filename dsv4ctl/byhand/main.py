"""A main process that somebody started by hand, as it was found; and which of its environment belongs to the engine."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from dsv4ctl import secret
from dsv4ctl.blame import Tree
from dsv4ctl.byhand.asked import Asked
from dsv4ctl.engine.readback import Launch
from dsv4ctl.model import Process, Role

# Variables that SGLang and the libraries below it read. The rest of a login shell's environment is not the engine's.
_OF_THE_ENGINE = re.compile(
    "(?:SGLANG|SGL|NCCL|UCX|NIXL|MOONCAKE|MC|NVSHMEM|GLOO|TORCH|TORCHINDUCTOR|PYTORCH|TRITON|FLASHINFER|DG|TILELANG|"
    "CUDA|CUBLAS|CUDNN|HF|HUGGINGFACE|TRANSFORMERS|TOKENIZERS|SAFETENSORS|OMP|MKL|OPENBLAS|NUMEXPR|DEEPEP|TVM|MALLOC)_.*"
    "|LD_LIBRARY_PATH|LD_PRELOAD|PYTHONPATH|TMPDIR|HOST_IP|PROMETHEUS_MULTIPROC_DIR"
    "|(?:https?|no|all)_proxy|(?:HTTPS?|NO|ALL)_PROXY"
)
# dsv4ctl sets them from the GPUs.
_FROM_GPUS = frozenset({"CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Main:
    """An engine's or a router's main process. `asked` None: it is a router.

    `model`: the folder that its model's path leads to, '' when it leads to none. `gpus_by`: how its GPUs are known.
    `cpus`: those that it may run on, ascending. `host`, `port`: where clients ask, 0 when it does not listen yet.
    `tree`: what belongs to it; None: nothing of it may be moved, and `stays` says why. `scope`: the one that it was
    adopted into, '' for none.
    """

    process: Process
    launch: Launch
    python: str
    environment: Mapping[str, str]
    host: str
    port: int
    asked: Asked | None = None
    model: str = ""
    gpus: tuple[int, ...] = ()
    gpus_by: str = ""
    cpus: tuple[int, ...] = ()
    metrics_port: int = 0
    tree: Tree | None = None
    scope: str = ""
    stays: str = ""

    @property
    def role(self) -> Role:
        """Its job."""
        return self.asked.role if self.asked else Role.ROUTER


@dataclass(frozen=True, slots=True, kw_only=True)
class Carried:
    """An environment taken apart: what the config carries, and the names that look like secrets, which it does not."""

    variables: Mapping[str, str] = field(default_factory=dict)
    secrets: tuple[str, ...] = ()


def carried(environment: Mapping[str, str]) -> Carried:
    """The part of an environment that the engine and its libraries read."""
    ours = {n: v for n, v in sorted(environment.items()) if _OF_THE_ENGINE.fullmatch(n) and n not in _FROM_GPUS}
    hidden = tuple(name for name, value in ours.items() if secret.value_shown(name, value) != value)
    return Carried(variables={n: v for n, v in ours.items() if n not in hidden}, secrets=hidden)
