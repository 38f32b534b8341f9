"""The words for what can be wrong with an engine, and what a row of the table of troubles is."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum, StrEnum


class Kind(StrEnum):
    """What is wrong."""

    NO_KV_ROOM = "no-kv-room"
    CONTEXT_OVER_POOL = "context-over-pool"
    CONTEXT_OVER_MODEL = "context-over-model"
    FEWER_SLOTS = "fewer-slots"
    OUT_OF_MEMORY = "out-of-memory"
    POOL_FULL = "pool-full"
    HOST_MEMORY = "host-memory"
    GRAPHS = "graphs"
    GPU_SHARED = "gpu-shared"
    GPU_MISSING = "gpu-missing"
    GPU_FAULT = "gpu-fault"
    DRIVER = "driver"
    KERNELS = "kernels"
    SLOW_ALL_REDUCE = "slow-all-reduce"
    HTTP_PORT = "http-port"
    RENDEZVOUS_PORT = "rendezvous-port"
    BOOTSTRAP_PORT = "bootstrap-port"
    NCCL = "nccl"
    HANG = "hang"
    CRASH = "crash"
    CRASH_PATH = "crash-path"
    STOP = "stop"
    HEALTH = "health"
    PEER = "peer"
    WARMUP = "warmup"
    BAD_ARGUMENT = "bad-argument"
    MODULE_MISSING = "module-missing"
    MODEL_MISSING = "model-missing"
    MODEL_DAMAGED = "model-damaged"
    DISK_FULL = "disk-full"
    NOT_ALLOWED = "not-allowed"
    LIMIT = "limit"
    EXCEPTION = "exception"


class Severity(IntEnum):
    """How much a line explains once the engine is dead: nothing; that something died; perhaps why; why."""

    WARNING = 0
    CONSEQUENCE = 1
    SUSPECT = 2
    CAUSE = 3


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the table. `sign`, in lower case, is in every line that `pattern` can find; it is the cheaper look.

    The pattern's named groups fill in the blanks of cause and advice.
    """

    kind: Kind
    severity: Severity
    sign: str
    pattern: re.Pattern[str]
    cause: str
    advice: str


def rows(table: Iterable[tuple[Kind, Severity, str, str, str, str]]) -> tuple[Row, ...]:
    """A table as it is written down -> its rows, patterns compiled."""
    return tuple(
        Row(kind, severity, sign, re.compile(pattern), cause, advice)
        for kind, severity, sign, pattern, cause, advice in table
    )
