"""What a line of the engine's log says is wrong, and which of many such lines is the cause."""

from collections.abc import Iterable
from dataclasses import dataclass

from dsv4ctl.engine import trouble_host, trouble_program
from dsv4ctl.engine.trouble_kinds import Kind, Row, Severity

TABLE: tuple[Row, ...] = (*trouble_host.ROWS, *trouble_program.ROWS)
LONGEST_TEXT = 240


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """A line of trouble: the line, shortened; what it means; and what to type or to change in the configuration."""

    kind: Kind
    severity: Severity
    text: str
    cause: str
    advice: str

    @property
    def is_fatal(self) -> bool:
        """Whether an engine that writes this is not going to serve, or does not serve any more."""
        return self.severity > Severity.WARNING


def find(body: str) -> Trouble | None:
    """The trouble that a log line tells, given without its time stamp and colours; None when it tells none."""
    low = body.lower()
    for row in TABLE:
        if row.sign in low and (match := row.pattern.search(body)):
            said = {name: (value or "").strip() for name, value in match.groupdict().items()}
            return Trouble(
                kind=row.kind,
                severity=row.severity,
                text=_shortened(body),
                cause=_shortened(row.cause.format_map(said).rstrip(" :")),
                advice=row.advice.format_map(said),
            )
    return None


def cause_of(troubles: Iterable[Trouble]) -> Trouble | None:
    """The one of many troubles, given in the order in which they were seen, that best explains why the engine died.

    The first of the most severe: a dying rank drags the others along, so what comes later is mostly consequence.
    None when none of them is fatal.
    """
    return max(
        (trouble for trouble in troubles if trouble.is_fatal), key=lambda trouble: trouble.severity, default=None
    )


def _shortened(text: str) -> str:
    return text if len(text) <= LONGEST_TEXT else text[: LONGEST_TEXT - 1] + "…"
