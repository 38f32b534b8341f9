"""How long earlier starts of an instance took, as its supervisor keeps them in starts.jsonl. Pure."""

import json
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass

# Enough for a median, and for a file that a person can read.
KEPT = 20
COMPARED = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class PastStart:
    """A start that got ready: when, with which digest, and how many seconds each phase took."""

    at: float
    digest: str
    seconds: Mapping[str, float]


def alike(past: Iterable[PastStart], digest: str) -> list[PastStart]:
    """The youngest starts of the same digest where there are some: another context length takes other times."""
    starts = list(past)
    return ([start for start in starts if start.digest == digest] or starts)[-COMPARED:]


def expected_s(past: Iterable[PastStart], digest: str) -> float | None:
    """How long a start will take in all, as the median of earlier ones; None without any."""
    totals = [sum(start.seconds.values()) for start in alike(past, digest)]
    return statistics.median(totals) if totals else None


def parse(text: str) -> tuple[PastStart, ...]:
    """Read starts.jsonl, oldest first. A line that was cut or is of another version is left out."""
    return tuple(start for line in text.splitlines() if (start := _parse_start(line)) is not None)


def dump(starts: Iterable[PastStart]) -> str:
    """The youngest starts as the text of starts.jsonl."""
    return "".join(json.dumps(asdict(start)) + "\n" for start in list(starts)[-KEPT:])


def _parse_start(line: str) -> PastStart | None:
    try:
        found = json.loads(line)
        seconds = {str(phase): float(value) for phase, value in found["seconds"].items()}
        return PastStart(at=float(found["at"]), digest=str(found["digest"]), seconds=seconds)
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
