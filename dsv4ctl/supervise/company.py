"""A serving instance among the others of its mode: says who of them is missing, and hears when a router asks for it."""

from dsv4ctl import procs
from dsv4ctl.model import Ask, Identity, Peer, Phase, Role, SuperviseExit
from dsv4ctl.supervise.errands import Brought
from dsv4ctl.supervise.front import Front
from dsv4ctl.supervise.outcome import Asked, Over
from dsv4ctl.supervise.peers import Seen, Stand
from dsv4ctl.supervise.run import Run

# A look at two peers takes 0.1 ms.
LOOK_EVERY_S = 1.0
DEGRADED = "degraded: "


class Company:
    """The peers of an instance while it serves, and what a router does for its workers.

    `words`: what is wrong with them, '' when nothing is.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self._met: set[Peer] = set()
        self._down: set[Peer] = set()
        self._missing = self._unproved = ""
        self._heard: Ask | None = None
        self._front = Front(run) if run.instance.role is Role.ROUTER else None
        self._look_at = run.clock.now()

    @property
    def words(self) -> str:
        """Who is missing, and what is not whole although all are there."""
        amiss = self._front.words if self._front else self._unproved
        # What is done about it comes first: a status is one line, and how somebody died may be long.
        rest = self._missing.removeprefix(DEGRADED) if amiss else self._missing
        return "; ".join(filter(None, (f"{DEGRADED}{amiss}" if amiss else "", rest)))

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
        self._missing, self._unproved = missing(seen, self._met), unproved(seen, procs.ourselves())
        if self._front:
            self._front.step(seen)
        return next(filter(None, map(self._asked, seen)), None)

    def take(self, brought: Brought) -> Over | None:
        """Take in what an errand has found that was sent for the others."""
        return self._front.take(brought) if self._front else None

    def _note(self, seen: tuple[Seen, ...]) -> None:
        """Keep who was ever there, and log who goes down and who comes back."""
        self._met |= {one.peer for one in seen if one.stand is Stand.READY}
        down = {one.peer: one for one in seen if is_down(one, self._met)}
        for peer in down.keys() - self._down:
            self._run.journal.note(f"degraded: peer down ({down[peer].words})")
        for peer in self._down - down.keys():
            self._run.journal.note(f"{peer.unit.removesuffix('.service')} is ready again")
        self._down = set(down)
        # One that died is missed until it serves, even if it never did before our eyes.
        self._met |= self._down

    def _asked(self, one: Seen) -> Asked | None:
        """Whether this peer is a living router that means our unit and this very process."""
        asks, own = (one.state.asks if one.state else None), self._run.voice.state
        if asks is None or not one.lives or one.peer.role is not Role.ROUTER:
            return None
        if (asks.unit, asks.pid, asks.start_ticks) != (self._run.instance.unit, own.pid, own.start_ticks):
            return None
        if asks != self._heard:
            self._run.journal.note(f"{one.peer.unit} asks for a restart: {asks.because}")
        self._heard = asks
        return Asked(one.peer.unit, hurried=asks.hurried, exit=SuperviseExit.ASKED)


def is_down(one: Seen, met: set[Peer]) -> bool:
    """Whether somebody has gone: one that could serve before, or that did not end in peace."""
    died = one.stand is Stand.DOWN and one.state is not None and one.state.phase is not Phase.STOPPED
    return one.stand is not Stand.READY and (one.peer in met or died)


def missing(seen: tuple[Seen, ...], met: set[Peer]) -> str:
    """Who cannot serve, in words; one that never could is waited for."""
    down = "; ".join(one.words for one in seen if is_down(one, met))
    away = (one for one in seen if one.stand is not Stand.READY)
    awaited = "; ".join(one.words for one in away if not is_down(one, met))
    parts = (f"{DEGRADED}peer down ({down})" if down else "", f"waiting for its peers ({awaited})" if awaited else "")
    return "; ".join(filter(None, parts))


def unproved(seen: tuple[Seen, ...], own: Identity) -> str:
    """Why a half whose other half is there is no pair with it yet: by its router's word, and '' without one."""
    proved = {one for router in seen if router.stand is Stand.READY and router.state for one in router.state.proved}
    mates = {one.supervisor for one in seen if one.peer.role in (Role.PREFILL, Role.DECODE)}
    is_there = all(one.stand is Stand.READY for one in seen)
    return "the pair is not proved again yet" if proved and is_there and {own, *mates} != proved else ""
