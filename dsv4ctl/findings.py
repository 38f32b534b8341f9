"""Findings: what the commands show of a host, as values. Knows the model only."""

from dataclasses import dataclass

from dsv4ctl.model import Pause
from dsv4ctl.problems import Status as ExitStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One instance as it is now. Byte and token counts; None where nobody tells. `words` is for people.

    `serves`: it is up and ready by its own word. `well`: it serves, watched and with its peers, or somebody stopped it.
    `workers_healthy` of `workers`: a router's.
    """

    unit: str
    role: str
    state: str
    since: float | None
    pid: int
    port: int
    health: str
    model: str
    context_length: int | None
    kv_tokens: int | None
    running: int | None
    waiting: int | None
    gpus: tuple[int, ...]
    gpu_used_bytes: int | None
    restarts: int
    words: str
    notes: tuple[str, ...] = ()
    memory: str = ""
    serves: bool = True
    well: bool = True
    workers_healthy: int | None = None
    workers: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """All rows, and what could not be read. `well`: all of them are, and nothing of ours is unknown. `pause`:
    the one that lasts."""

    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()
    well: bool = True
    pause: Pause | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """An instance that was proved: who listens, what it serves, how long its context is. `workers`: a router's."""

    instance: str
    role: str
    unit: str
    url: str
    pid: int
    model: str
    context_length: int | None
    workers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Probing:
    """What one generation through all of it came to. `verdict`: ok, or who is at fault; `advice`: what to type then.

    `seconds`: all of it; `answer_s`: the generation, None where none was asked for or none came.
    """

    verdict: str
    words: str
    advice: str = ""
    seconds: float = 0.0
    answer_s: float | None = None
    proofs: tuple[Proof, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing that must be gone, and how it was found. `status` and `hint` are for when it is not.

    `stays`: it is there, is not ours and may be there.
    """

    what: str
    ok: bool
    words: str
    status: ExitStatus = ExitStatus.LEFT_OVER
    hint: str = ""
    stays: bool = False
