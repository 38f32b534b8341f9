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
class Work:
    """A command that changes the host now: who gave it, why, since when, and the process that does it.

    Of a holder of the lock who does not say who he is only the process is known, or pid 0: not even that.
    """

    who: str
    pid: int
    command: str
    words: str
    what: str = ""
    reason: str = ""
    since: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """All rows, and what could not be read. `well`: all of them are, nothing of ours is unknown, and nobody is about to
    change that what does not serve. `pause`: the one that lasts; `work`: who changes the host now."""

    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()
    well: bool = True
    pause: Pause | None = None
    work: Work | None = None

    @property
    def exit_status(self) -> ExitStatus:
        """For whoever watches: all is well; or it is not and somebody is at work on it, so that it is to be asked
        again; or it is not, and stays so."""
        if self.well:
            return ExitStatus.OK
        return ExitStatus.BUSY if self.work is not None and not serves(self.rows) else ExitStatus.NOT_READY


def serves(rows: tuple[Row, ...]) -> bool:
    """Whether there is anything, and all of it serves."""
    return bool(rows) and all(row.serves for row in rows)


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
