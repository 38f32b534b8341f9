"""What the supervisor says: to systemd, into state.json, and to the journal. Decides nothing of what is said."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import sdnotify

from dsv4ctl import record, store
from dsv4ctl.clock import Clock
from dsv4ctl.model import RunState
from dsv4ctl.problems import Problem
from dsv4ctl.supervise import words
from dsv4ctl.supervise.journal import Journal
from dsv4ctl.supervise.redact import redacted, spellings

# `systemctl status` shows one line; what is beyond this is cut by terminals anyway.
STATUS_WIDTH = 255
# A bar that moves 20 times a second is read once or twice: each saying is a datagram and a file.
EVERY_S = 0.25
SEND_TIMEOUT_S = 2.0
FIGURES_EVERY_S = 10.0
_FIGURES = re.compile(r"\d+")


class Notifier(Protocol):
    """Somebody who takes sd_notify(3) assignments."""

    def send(self, *assignments: str) -> None:
        """Pass the assignments on in one message."""
        ...


class ToSystemd:
    """The service manager at $NOTIFY_SOCKET. What cannot be sent is told in the journal: silence looks like success."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._notifier = sdnotify.SystemdNotifier(debug=True)
        # systemd in trouble must not hold the engine's output up: a full socket blocks.
        self._notifier.socket.settimeout(SEND_TIMEOUT_S)

    def send(self, *assignments: str) -> None:
        """Send to systemd, which takes UTF-8 only; sdnotify encodes as Latin-1, so UTF-8 is handed to it as that."""
        try:
            self._notifier.notify("\n".join(assignments).encode().decode("latin-1"))
        except OSError as error:
            self._journal.note(f"cannot tell systemd {assignments[0].partition('=')[0]}: {error.strerror or error}")


class ToTerminal:
    """Nobody listens at a $NOTIFY_SOCKET: we were started by hand, and a person reads stderr."""

    def __init__(self, journal: Journal, clock: Clock) -> None:
        self._journal, self._clock = journal, clock
        self._shown, self._shown_at = "", float("-inf")

    def send(self, *assignments: str) -> None:
        """Show what is for people; a line in which only the figures have changed comes now and then."""
        for name, _, value in (assignment.partition("=") for assignment in assignments):
            sentence, now = _FIGURES.sub("", value), self._clock.now()
            if name == "STATUS" and (sentence != self._shown or now - self._shown_at >= FIGURES_EVERY_S):
                self._shown, self._shown_at = sentence, now
                self._journal.note(value)


class Voice:
    """The one place where an instance's state changes: every change is told to systemd and kept in state.json."""

    def __init__(
        self, state: RunState, clock: Clock, notifier: Notifier, *, journal: Journal, file: Path | None
    ) -> None:
        self.state = state
        # Said STOPPING=1: from here on systemd waits for our end, and nothing else.
        self.stopping = False
        self._secrets: tuple[str, ...] = ()
        self._clock = clock
        self._notifier = notifier
        self._journal = journal
        self._file = file
        self._trouble = ""
        self._told: RunState | None = None
        self._told_at = float("-inf")
        self._extended_at = float("-inf")
        self._extended_s = 0.0

    def hide(self, secret: str) -> None:
        """Take this out of everything that is told from now on."""
        self._secrets = spellings(secret)

    def tell(self, state: RunState, *assignments: str) -> None:
        """Tell a new state. Changes within one phase that follow each other closely are told with the next one."""
        old, state = self.state, replace(state, words=self._clean(state.words), advice=self._clean(state.advice))
        if state.phase is not old.phase:
            state = replace(state, since=self._clock.wall())
        self.state = state
        if self._due(state) or assignments:
            self._send(state, *assignments)

    def extend(self, seconds: float) -> None:
        """Ask systemd for at least this long from now on; it is asked once a second at most, or when it is for more."""
        now = self._clock.now()
        left = self._extended_s - (now - self._extended_at)
        if now - self._extended_at >= 1 or seconds > left + 1:
            self._extended_at, self._extended_s = now, seconds
            self._notifier.send(f"EXTEND_TIMEOUT_USEC={round(seconds * 1_000_000)}")

    @property
    def is_behind(self) -> bool:
        """Whether the last change was not told, because it followed another one closely."""
        return self.state != self._told

    def again(self) -> None:
        """Tell the present state once more."""
        self._send(self.state)

    def _due(self, state: RunState) -> bool:
        told = self._told
        if told is None or told.phase is not state.phase or _for_peers(told) != _for_peers(state):
            return True
        return state != told and self._clock.now() - self._told_at >= EVERY_S

    def _send(self, state: RunState, *assignments: str) -> None:
        if self._told is None or state.phase is not self._told.phase:
            self._note(state)
        self._told, self._told_at = state, self._clock.now()
        self.stopping = self.stopping or "STOPPING=1" in assignments
        # The file first: whoever sees systemd's unit turn active or deactivating looks there next.
        self._keep(state)
        self._notifier.send(*assignments, f"STATUS={words.one_line(state.words, STATUS_WIDTH)}")

    def _keep(self, state: RunState) -> None:
        """Write state.json. A full or missing folder is told once and is no reason to end a model that serves."""
        try:
            if self._file is not None:
                store.write_atomic(self._file, record.dump_state(state), mode=0o644)
            self._trouble = ""
        except Problem as problem:
            if str(problem) != self._trouble:
                self._trouble = str(problem)
                self._journal.note(self._trouble)

    def _note(self, state: RunState) -> None:
        if not isinstance(self._notifier, ToTerminal):
            self._journal.note(state.words)

    def _clean(self, text: str) -> str:
        return redacted(text, self._secrets)


def _for_peers(state: RunState) -> tuple[object, ...]:
    """What other supervisors act on."""
    return state.without, state.asks, state.met, state.proved
