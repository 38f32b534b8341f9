"""The other instances of a mode, as their supervisors say in /run/dsv4ctl/NAME/state.json. Changes nothing.

Cheap enough for every second of a model's life: an unchanged file is not read again, and a supervisor's own life is one
more file in /proc.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from dsv4ctl import procs, record, store
from dsv4ctl.model import Identity, Peer, Phase, Role, RunState
from dsv4ctl.problems import Problem

# Who waits for the end of a pause is on its way, too, and as long as that takes.
_COMING = frozenset((*list(Phase)[: list(Phase).index(Phase.READY)], Phase.PAUSED))
_OVER = (Phase.STOPPED, Phase.FAILED, Phase.PARKED)


class Stand(StrEnum):
    """Where a peer is: on its way, serving, on its way out, or not there."""

    COMING = "coming"
    READY = "ready"
    GOING = "going"
    DOWN = "down"


@dataclass(frozen=True, slots=True)
class Seen:
    """A peer at one moment. `state`: what its supervisor said last; `lives`: that supervisor is still there."""

    peer: Peer
    state: RunState | None
    lives: bool

    @property
    def stand(self) -> Stand:
        """Where it is."""
        if self.state is None or not self.lives or self.state.phase in _OVER:
            return Stand.DOWN
        if self.state.phase is Phase.READY:
            return Stand.READY
        return Stand.COMING if self.state.phase in _COMING else Stand.GOING

    @property
    def supervisor(self) -> Identity | None:
        """Whom the state is of, whether or not it lives; a restarted peer is another one."""
        if self.state is None:
            return None
        return Identity(procs.boot_id(), self.state.pid, self.state.start_ticks)

    @property
    def words(self) -> str:
        """`dsv4-prefill: loading weights 31/46`."""
        name = self.peer.unit.removesuffix(".service")
        if self.state is None:
            return f"{name}: not started"
        if self.lives or self.state.phase in _OVER:
            return f"{name}: {self.state.words}"
        was = "it served" if self.state.phase is Phase.READY else self.state.words
        return f"{name}: killed while {was}"


class Watch:
    """Looks at peers. `folder` is where the runtime folders of all instances lie."""

    def __init__(self, folder: Path, peers: Iterable[Peer]) -> None:
        self._files = {peer: folder / peer.name / "state.json" for peer in peers}
        self._read: dict[Peer, tuple[tuple[int, int], RunState | None]] = {}

    def look(self) -> tuple[Seen, ...]:
        """Every peer now, in their order."""
        return tuple(self._seen(peer, self._state(peer, file)) for peer, file in self._files.items())

    def _seen(self, peer: Peer, state: RunState | None) -> Seen:
        seen = Seen(peer, state, lives=False)
        return Seen(peer, state, lives=seen.supervisor is not None and procs.alive(seen.supervisor))

    def _state(self, peer: Peer, file: Path) -> RunState | None:
        try:
            found = file.stat()
        except OSError:
            return None
        version = (found.st_ino, found.st_mtime_ns)
        if (kept := self._read.get(peer)) is None or kept[0] != version:
            self._read[peer] = (version, _parsed(file))
        return self._read[peer][1]


def _parsed(file: Path) -> RunState | None:
    try:
        return record.load_state(store.read(file))
    except Problem:
        return None


def awaited(seen: tuple[Seen, ...], away_s: Mapping[Peer, float], patience_s: float) -> tuple[Seen, ...]:
    """Whom a router has to wait for before it starts; () when it may. `away_s`: for how long each was down by now.

    Both halves of a pair are needed. Of whole servers one is enough: another one is waited for while it is on its way,
    and for `patience_s`, in which systemd restarts it, when it is not.
    """
    waiting = tuple(one for one in seen if one.stand is not Stand.READY)
    if any(one.peer.role is not Role.SERVER for one in waiting) or len(waiting) == len(seen):
        return waiting
    return tuple(one for one in waiting if one.stand is not Stand.DOWN or away_s.get(one.peer, 0.0) < patience_s)
