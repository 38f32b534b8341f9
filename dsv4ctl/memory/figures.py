"""What a budget is made of: an amount of bytes, whose it is, and how far it can be trusted."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Self

from dsv4ctl.memory.sizes import GB, GIB, MB


class Kind(StrEnum):
    """How an amount is known: by the engine's own arithmetic, from a start on this host, or as a fit to other hosts."""

    EXACT = "exact"
    MEASURED = "measured"
    ESTIMATE = "estimate"


class Part(StrEnum):
    """The four parts of a GPU's memory, in the order in which they are taken, and what is left of the last."""

    OUTSIDE = "outside"
    WEIGHTS = "weights"
    POOL = "pool"
    SLACK = "slack"
    LEFT = "left"


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One amount of memory on one GPU. `low_bytes` to `high_bytes` is its range: the amount itself unless estimated."""

    name: str
    part: Part
    bytes: int
    kind: Kind
    low_bytes: int
    high_bytes: int
    note: str = ""

    def told(self, measured_bytes: int) -> Self:
        """The same amount as it was measured on this host."""
        return replace(
            self, bytes=measured_bytes, kind=Kind.MEASURED, low_bytes=measured_bytes, high_bytes=measured_bytes
        )


def exact(name: str, part: Part, amount: int, *, note: str = "") -> Figure:
    """An amount that follows from the engine's own arithmetic."""
    return Figure(name=name, part=part, bytes=amount, kind=Kind.EXACT, low_bytes=amount, high_bytes=amount, note=note)


def estimate(name: str, part: Part, amount: int, span: tuple[float, float], *, note: str = "") -> Figure:
    """A fit, and its range as factors of it."""
    low, high = round(amount * span[0]), round(amount * span[1])
    return Figure(name=name, part=part, bytes=amount, kind=Kind.ESTIMATE, low_bytes=low, high_bytes=high, note=note)


def size_text(amount: int) -> str:
    """Bytes for people in decimal units, three digits, cut and not rounded: 33.5 MB, 8.58 GB, 512 B."""
    for size, unit in ((GB, "GB"), (MB, "MB"), (1000, "kB")):
        if amount >= size:
            digits = str(amount * 1000 // size)
            whole, rest = digits[:-3], digits[-3:][: max(0, 6 - len(digits))]
            return f"{whole}.{rest} {unit}" if rest else f"{whole} {unit}"
    return f"{amount} B"


def gib_text(amount: int) -> str:
    """Bytes in GiB with two decimals."""
    return f"{amount / GIB:.2f}"


def total(figures: Iterable[Figure], *parts: Part) -> int:
    """The bytes of these parts together; without parts, of all."""
    return sum(one.bytes for one in figures if not parts or one.part in parts)
