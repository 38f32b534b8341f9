"""SGLang's log -> events. Knows the lines of 0.5.3 to 0.5.23; takes bytes and text, keeps nothing."""

import re
from dataclasses import dataclass

from dsv4ctl.engine import troubles
from dsv4ctl.engine.troubles import Trouble
from dsv4ctl.model import Capacity, Phase


@dataclass(frozen=True, slots=True)
class PhaseSeen:
    """A sign that a process of the engine is in this phase; ranks lag behind each other."""

    phase: Phase


@dataclass(frozen=True, slots=True)
class Progress:
    """`done` of `total` shards, batches or kernels."""

    phase: Phase
    done: int
    total: int


@dataclass(frozen=True, slots=True)
class CapacitySeen:
    """What the engine says that it can hold."""

    capacity: Capacity


@dataclass(frozen=True, slots=True)
class ReadyLine:
    """The engine's own word that it serves. The loser of a port says it too, having warmed up the winner."""


@dataclass(frozen=True, slots=True)
class DrainSeen:
    """A stopping engine waits for so many requests."""

    remaining: int


@dataclass(frozen=True, slots=True)
class TroubleSeen:
    """A line of trouble."""

    trouble: Trouble


Event = PhaseSeen | Progress | CapacitySeen | ReadyLine | DrainSeen | TroubleSeen

# A line without end is not kept whole: a supervisor lives for months in 30 MB.
LONGEST_LINE = 256 * 1024
# What stands behind this many characters of a line has never told anything; server_args= alone has 20,000.
_LOOKED_AT = 2000

_COLOUR = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_STAMP = re.compile(r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)?(?: [A-Z_]+\d+)*\] ?")
_BAR = re.compile(r"^(?P<what>[^|%]*?):?\s*\d+%.*?\b(?P<done>\d+)/(?P<total>\d+) \[")
_CAPACITY = re.compile(
    r"max_total_num_tokens=(?P<tokens>\d+),.*?max_running_requests=(?P<requests>\d+), context_len=(?P<context>\d+)"
    r"(?:, available_\w+_mem=(?P<gb>[\d.]+) GB)?"
)
_REMAINING = re.compile(r"remaining number of requests (\d+)")

# Most of a serving engine's log, and what may quote a user's words: they tell nothing of the engine.
_ORDINARY = ("decode batch", "prefill batch", "info:     ", "receive: ", "finish: ", "  file ", "    ")
# Beginnings of lines in lower case, of all versions. server_args= comes first: it is long and holds every word.
_PHASES: tuple[tuple[str, Phase], ...] = (
    ("server_args=", Phase.STARTING),
    ("init torch distributed ", Phase.STARTING),
    ("init parallel ", Phase.STARTING),
    ("load weight ", Phase.WEIGHTS),
    ("dsv4 memory calculation", Phase.POOLS),
    ("dsv4 pool sizes", Phase.POOLS),
    ("initialize deepseekv4tokentokvpool", Phase.POOLS),
    ("kv cache is allocated", Phase.POOLS),
    ("memory pool end", Phase.POOLS),
    ("running flashinfer autotune", Phase.KERNELS),
    ("flashinfer autotune", Phase.KERNELS),
    ("entering deepgemm jit", Phase.KERNELS),
    ("try deepgemm jit", Phase.KERNELS),
    ("info:     uvicorn running on", Phase.WARMUP),
    ("uvicorn running on", Phase.WARMUP),
    ("start of pd disaggregation warmup", Phase.WARMUP),
    ("sigterm received. ", Phase.DRAINING),
)
_BARS = (("shards", Phase.WEIGHTS), ("capturing ", Phase.GRAPHS), ("deepgemm", Phase.KERNELS))


def split(buffer: bytes) -> tuple[list[str], bytes]:
    """The whole lines in a stream, empty ones left out, and the rest that is no whole line yet.

    Progress bars end in a carriage return, not in a newline. Broken UTF-8 becomes replacement characters.
    """
    *whole, rest = re.split(rb"[\r\n]", buffer)
    if len(rest) > LONGEST_LINE:
        whole, rest = [*whole, rest], b""
    return [line.decode(errors="replace") for line in whole if line], rest


def parse_line(line: str) -> Event | None:
    """The event that a line tells; None for the many that tell none."""
    body = _body(line)
    low = body.lower()
    for beginning, phase in _PHASES:
        if low.startswith(beginning):
            return PhaseSeen(phase)
    if low.startswith(_ORDINARY):
        return None
    if low.startswith("the server is fired up"):
        return ReadyLine()
    if found := _progress(body) or _counted(body, low):
        return found
    if found_trouble := troubles.find(body):
        return TroubleSeen(found_trouble)
    return PhaseSeen(Phase.GRAPHS) if _is_capture(low) else None


def plain(line: str) -> str:
    """The line without its colours: warnings of SGLang's have some, and every line of the router's."""
    return _COLOUR.sub("", line) if "\x1b" in line else line


def _body(line: str) -> str:
    """The line without its time stamp, its ranks and its colours."""
    text = plain(line[:_LOOKED_AT])
    stamp = _STAMP.match(text)
    return (text[stamp.end() :] if stamp else text).rstrip()


def _progress(body: str) -> Progress | None:
    """A redraw of a progress bar."""
    if "% " not in body and "%|" not in body:
        return None
    if not (bar := _BAR.match(body)):
        return None
    what = bar["what"].lower()
    phase = next((phase for word, phase in _BARS if word in what), None)
    return Progress(phase, int(bar["done"]), int(bar["total"])) if phase else None


def _counted(body: str, low: str) -> CapacitySeen | DrainSeen | None:
    """The lines that hold numbers to keep."""
    if low.startswith("max_total_num_tokens=") and (found := _CAPACITY.match(body)):
        return CapacitySeen(
            Capacity(
                max_total_tokens=int(found["tokens"]),
                max_running_requests=int(found["requests"]),
                context_length=int(found["context"]),
                available_gb=float(found["gb"]) if found["gb"] else None,
            )
        )
    if low.startswith("gracefully exiting") and (left := _REMAINING.search(low)):
        return DrainSeen(int(left[1]))
    return None


def _is_capture(low: str) -> bool:
    """`Capture cuda graph begin`, `Capture target decode CUDA graph end`, and whatever stands between in between."""
    return low.startswith("capture ") and " graph" in low
