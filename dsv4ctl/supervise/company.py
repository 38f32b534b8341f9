"""A serving instance among the others of its mode: says who of them is missing, and hears when a router asks for it."""

from dsv4ctl.model import Peer, Role, SuperviseExit
from dsv4ctl.supervise.errands import Brought
from dsv4ctl.supervise.front import Front
from dsv4ctl.supervise.outcome import Asked, Over
from dsv4ctl.supervise.peers import Seen, Stand
from dsv4ctl.supervise.run import Run

# A look at two peers takes 0.1 ms.
LOOK_EVERY_S = 1.0


class Company:
    """The peers of an instance while it serves, and what a router does for its workers."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._met: set[Peer] = set()
        self._away: set[Peer] = set()
        self._missing = ""
        self._front = Front(run) if run.instance.role is Role.ROUTER else None
        self._look_at = run.clock.now()

    @property
    def words(self) -> str:
        """What is wrong with them, '' when nothing is."""
        return "; ".join(filter(None, (self._missing, self._front.words if self._front else "")))

    def due_in_s(self) -> float:
        """Seconds until they are looked at again; for ever without any."""
        return max(0.0, self._look_at - self._run.clock.now()) if self._run.instance.peers else float("inf")

    def look(self) -> Over | None:
        """Look at all of them when it is time; what ends our own engine, if a router asks for that."""
        if self.due_in_s():
            return None
        self._look_at = self._run.clock.now() + LOOK_EVERY_S
        seen = self._run.peers.look()
        self._note(seen)
        self._missing = missing(seen, self._met)
        if self._front:
            self._front.step(seen)
        return next(filter(None, map(self._asked, seen)), None)

    def take(self, brought: Brought) -> Over | None:
        """Take in what an errand has found that was sent for the others."""
        return self._front.take(brought) if self._front else None

    def _note(self, seen: tuple[Seen, ...]) -> None:
        """Keep and log who is there; the first time that somebody is, nobody had missed him."""
        for one in seen:
            is_there, unit = one.stand is Stand.READY, one.peer.unit.removesuffix(".service")
            if is_there and one.peer in self._away:
                self._run.journal.note(f"{unit} is ready again")
            if not is_there and one.peer in self._met - self._away:
                self._run.journal.note(f"degraded: peer down ({one.words})")
            self._met |= {one.peer} if is_there else set()
            self._away = self._away - {one.peer} if is_there else self._away | ({one.peer} & self._met)

    def _asked(self, one: Seen) -> Asked | None:
        """Whether this peer is a living router that means our unit and this very process."""
        asks, own = (one.state.asks if one.state else None), self._run.voice.state
        if asks is None or not one.lives or one.peer.role is not Role.ROUTER:
            return None
        if (asks.unit, asks.pid, asks.start_ticks) != (self._run.instance.unit, own.pid, own.start_ticks):
            return None
        self._run.journal.note(f"{one.peer.unit} asks for a restart: {asks.because}")
        return Asked(one.peer.unit, exit=SuperviseExit.ASKED)


def missing(seen: tuple[Seen, ...], met: set[Peer]) -> str:
    """Who cannot serve, in words: one that could before is down; one that never could is waited for."""
    away = [one for one in seen if one.stand is not Stand.READY]
    down = "; ".join(one.words for one in away if one.peer in met)
    awaited = "; ".join(one.words for one in away if one.peer not in met)
    parts = (f"degraded: peer down ({down})" if down else "", f"waiting for its peers ({awaited})" if awaited else "")
    return "; ".join(filter(None, parts))
