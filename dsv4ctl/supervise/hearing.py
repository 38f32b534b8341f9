"""The engine's output: passed on to the journal without the key, and heard for what it tells."""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from dsv4ctl.clock import Clock
from dsv4ctl.engine import log, memory_lines, troubles
from dsv4ctl.engine.log import Event, Progress, TroubleSeen
from dsv4ctl.engine.memory_lines import Rank
from dsv4ctl.engine.troubles import Trouble
from dsv4ctl.model import Capacity
from dsv4ctl.supervise.journal import Journal
from dsv4ctl.supervise.redact import Redactor

# What is longer ago was survived. The longest way from a cause to an end: a watchdog (300 s) and its dumps (65 s).
RECENT_S = 400.0
KEPT_TROUBLES = 500
KEPT_LINES = 50
LAST_WORDS_WIDTH = 160


@dataclass(frozen=True, slots=True)
class Said:
    """The engine said something that tells where it is."""

    event: Event


class Hearing:
    """The ear at the engine's output."""

    def __init__(self, journal: Journal, key: str, clock: Clock) -> None:
        self._journal, self._clock = journal, clock
        self._redactor = Redactor(key)
        self._rest = b""
        self._ranks: Mapping[str, Rank] = {}
        self._lines: deque[str] = deque(maxlen=KEPT_LINES)
        self._troubles: deque[tuple[float, Trouble]] = deque(maxlen=KEPT_TROUBLES)

    def hear(self, output: bytes) -> list[Said]:
        """Pass bytes on at once, and return what they tell."""
        shown = self._redactor.feed(output)
        self._journal.forward(shown)
        lines, self._rest = log.split(self._rest + shown)
        events = self._events(lines)
        # A bar begins with a carriage return and ends with the next one: what it shows now is no whole line yet.
        if self._rest and isinstance(bar := log.parse_line(self._rest.decode(errors="replace")), Progress):
            events.append(bar)
        return [Said(event) for event in events]

    def hear_end(self) -> list[Said]:
        """The engine has ended: what it left without a line end was its last line."""
        rest, self._rest = self._rest, b""
        self._journal.finish()
        return [Said(event) for event in self._events([rest.decode(errors="replace")] if rest else [])]

    def finish(self) -> None:
        """Nothing follows: pass on what was held back, be it for the key's sake."""
        self._journal.forward(self._redactor.rest())
        self._journal.finish()

    def cause(self) -> tuple[str, str]:
        """Why the engine has died, in words, and what to do; its last line where the error table knows no cause."""
        recent = [trouble for at, trouble in self._troubles if self._clock.now() - at <= RECENT_S]
        if found := troubles.cause_of(recent):
            return found.cause, found.advice
        return self._last_words(), ""

    def with_memory(self, capacity: Capacity) -> Capacity:
        """A capacity with what the log told of memory."""
        return memory_lines.told(self._ranks, capacity)

    def refusal(self) -> str:
        """The line with which the engine refused its arguments, as argparse writes it: `PROGRAM: error: WHY`."""
        refusals = [line for line in self._lines if ": error: " in line]
        return refusals[-1].strip() if refusals else self._last_words()

    def _events(self, lines: list[str]) -> list[Event]:
        self._lines.extend(lines)
        self._ranks = memory_lines.heard(self._ranks, lines)
        events = [event for line in lines if (event := log.parse_line(line)) is not None]
        now = self._clock.now()
        self._troubles.extend((now, event.trouble) for event in events if isinstance(event, TroubleSeen))
        return events

    def _last_words(self) -> str:
        lines = [line for said in self._lines if (line := log.plain(said).strip())]
        return f"its last line was: {lines[-1][:LAST_WORDS_WIDTH]}" if lines else "it said nothing"
