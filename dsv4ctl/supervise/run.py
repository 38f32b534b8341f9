"""What the stages of one run share, once the gate is open and the engine is started."""

import signal
from dataclasses import dataclass, replace
from pathlib import Path

from dsv4ctl import probe
from dsv4ctl.clock import Clock
from dsv4ctl.engine.questions import Question
from dsv4ctl.model import Instance, Phase
from dsv4ctl.supervise.hearing import Hearing
from dsv4ctl.supervise.inbox import Inbox
from dsv4ctl.supervise.journal import Journal
from dsv4ctl.supervise.lull import Lull
from dsv4ctl.supervise.notify import Voice
from dsv4ctl.supervise.outcome import Asked
from dsv4ctl.supervise.peers import Watch
from dsv4ctl.supervise.territory import Territory

STOP = (signal.SIGTERM, signal.SIGINT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One engine under supervision. `probe_lock`: for whoever proves it by a generation; None outside systemd."""

    instance: Instance
    key: str
    territory: Territory
    peers: Watch
    hearing: Hearing
    inbox: Inbox
    lull: Lull
    voice: Voice
    journal: Journal
    clock: Clock
    probe_lock: Path | None = None

    @property
    def logs(self) -> str:
        """What to type to see what the engine said."""
        return f"dsv4ctl logs {self.instance.name}"

    def url(self, question: Question | str) -> str:
        """Where this is asked: a prefill's ranks register at its bootstrap port, all else is at the HTTP port."""
        port = self.instance.bootstrap_port if question is Question.ROUTE else self.instance.port
        return probe.base_url(self.instance.host, port or self.instance.port) + question

    def say(self, phase: Phase, words: str, *assignments: str) -> None:
        """Tell where the instance is."""
        self.voice.tell(replace(self.voice.state, phase=phase, words=words), *assignments)


def asked(number: int, journal: Journal, voice: Voice) -> Asked | None:
    """What a signal asks for: TERM and INT to stop, QUIT to stop without a drain, others only to say where we are."""
    name = signal.Signals(number).name
    if number in STOP:
        return Asked(name)
    if number == signal.SIGQUIT:
        return Asked(name, hurried=True)
    journal.note(f"{name} changes nothing here: arguments are read at the start only ({voice.state.words})")
    voice.again()
    return None
