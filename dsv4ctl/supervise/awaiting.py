"""Before a router's gate: its workers are waited for, so that it is never started before they can serve."""

from dataclasses import replace

from dsv4ctl.model import Limits, Peer, Role, SuperviseExit
from dsv4ctl.supervise import mending, peers
from dsv4ctl.supervise.admission import Admission
from dsv4ctl.supervise.inbox import Told
from dsv4ctl.supervise.mending import Mending, Restart
from dsv4ctl.supervise.outcome import Failed, Over
from dsv4ctl.supervise.peers import Seen, Stand, Watch
from dsv4ctl.supervise.run import asked

LOOK_EVERY_S = 0.5
# What systemd is asked for while others are waited for; it is asked again long before this is over.
EXTENSION_S = 60.0
# From a restart by systemd to the first word of the new supervisor, on a busy host.
FIRST_WORD_S = 15.0


def until_over(admission: Admission, watch: Watch) -> Over | None:
    """Wait until the workers of a router can serve; None: they can, or this is no router.

    After a reboot systemd starts a router once its workers' first starts are over, and a start that failed is over,
    too. A worker that is on its way is waited for as long as it takes: its own limits end it. One that is down is given
    the longest time that systemd takes to restart it; then the router fails, and systemd tries it as often as any.
    """
    if admission.instance.role is not Role.ROUTER:
        return None
    clock, patience_s = admission.clock, _patience_s(admission.instance.limits)
    since: dict[Peer, float] = {}
    stale = _Stale(admission)
    while True:
        seen, now = watch.look(), clock.now()
        since = {one.peer: since.get(one.peer, now) for one in seen if one.stand is Stand.DOWN}
        away_s = {peer: now - began for peer, began in since.items()}
        waiting = peers.awaited(seen, away_s, patience_s) or stale.found(seen)
        if not waiting:
            _meet(admission, seen)
            return None
        if lost := [one for one in waiting if away_s.get(one.peer, 0.0) >= patience_s]:
            return _lost(lost[0], patience_s)
        _tell(admission, waiting)
        happening = admission.inbox.next(LOOK_EVERY_S)
        if isinstance(happening, Told) and (stop := asked(happening.number, admission.journal, admission.voice)):
            return stop


class _Stale:
    """A half that outlived its other half while the router was down, and may not (`Instance.together`)."""

    def __init__(self, admission: Admission) -> None:
        self._admission = admission
        self._known = Mending(met=admission.voice.state.met)

    def found(self, seen: tuple[Seen, ...]) -> tuple[Seen, ...]:
        """Ask it to start again, once, and wait until it is another one; () when there is none."""
        halves, voice = mending.of(seen), self._admission.voice
        if halves is None:
            return ()
        action = mending.due(self._known, halves, self._admission.instance.together)
        if isinstance(action, Restart) and (ask := mending.request(action)):
            self._known = mending.asked(self._known, action.half)
            self._admission.journal.note(f"{ask.unit} is asked to start again, once: {ask.because}")
            voice.tell(replace(voice.state, asks=ask))
        return tuple(half for half in halves if self._known.asked and half.supervisor == self._known.asked)


def _meet(admission: Admission, seen: tuple[Seen, ...]) -> None:
    """Keep whom this router is started for: from its first request on they know each other."""
    if halves := mending.of(seen):
        admission.voice.tell(replace(admission.voice.state, met=mending.supervisors(halves)))


def _patience_s(limits: Limits) -> float:
    """How long a worker may be down: systemd's longest wait before a restart, and until something is heard of it."""
    return max(limits.restart_s, limits.restart_max_s) + FIRST_WORD_S


def _tell(admission: Admission, waiting: tuple[Seen, ...]) -> None:
    admission.voice.extend(EXTENSION_S)
    names = " and ".join(one.peer.unit.removesuffix(".service") for one in waiting)
    line = f"waiting for {names} to be ready ({'; '.join(one.words for one in waiting)})"
    admission.voice.tell(replace(admission.voice.state, words=line))


def _lost(one: Seen, patience_s: float) -> Failed:
    name = one.peer.name
    line = f"cannot start: a worker stays down, for {patience_s:.0f} s now ({one.words})"
    return Failed(
        exit=SuperviseExit.PEER, words=line, advice=f"dsv4ctl logs {name}; then: systemctl start {one.peer.unit}"
    )
