"""From the start of a unit to the gate's answer: GPUs that are still in use are waited for, everything else is not."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

from dsv4ctl.clock import Clock
from dsv4ctl.model import Instance
from dsv4ctl.supervise import gate, gpugate
from dsv4ctl.supervise.errands import Brought
from dsv4ctl.supervise.gate import Admitted
from dsv4ctl.supervise.gpugate import Occupied
from dsv4ctl.supervise.inbox import Inbox, Told
from dsv4ctl.supervise.journal import Journal
from dsv4ctl.supervise.notify import Voice
from dsv4ctl.supervise.outcome import Failed, Over
from dsv4ctl.supervise.run import asked

PATIENCE_S = 60.0
ASK_AGAIN_S, ASK_AT_LEAST_S = 1.0, 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """What the gate is asked for, and with whom it is spoken meanwhile."""

    instance: Instance
    environment: Mapping[str, str]
    inbox: Inbox
    journal: Journal
    voice: Voice
    clock: Clock

    def until_over(self) -> Admitted | Over:
        """The gate's answer. It is asked in a thread, for an interpreter on a slow disk must not make us deaf.

        A killed engine's memory comes back when the driver has taken it down. Once GPUs were in use, they must be found
        idle twice, for a reading lags behind.
        """
        self.voice.tell(self.voice.state)
        self._ask()
        limit_s = self.instance.limits.driver_s
        began, idle_reads, wanted_reads, said = self.clock.now(), 0, 1, dict[str, None]()
        while True:
            match self.inbox.next(PATIENCE_S):
                case Brought(found=Failed() as failed):
                    return failed
                case Brought(found=Admitted() as admitted):
                    idle_reads, said = idle_reads + 1, said | dict.fromkeys(admitted.notes)
                    if idle_reads == wanted_reads:
                        return replace(admitted, notes=tuple(said))
                    self._ask()
                case Brought(found=Occupied() as occupied):
                    if (waited := self.clock.now() - began) >= limit_s:
                        why = f"after {limit_s} s {occupied.words}"
                        return gpugate.refused(why, "dsv4ctl who", occupied.exit)
                    idle_reads, wanted_reads = 0, 2
                    self._waits(occupied, limit_s - waited)
                    self._ask(after_s=pace_s(waited))
                case Told(number) if stop := asked(number, self.journal, self.voice):
                    return stop
                case _:
                    continue

    def _ask(self, after_s: float = 0.0) -> None:
        self.inbox.send("gate", partial(_check, self, after_s))

    def _waits(self, occupied: Occupied, left_s: float) -> None:
        self.voice.extend(left_s + PATIENCE_S)
        what = f"waiting for {occupied.keeper}, at most {left_s:.0f} s more: {occupied.words}"
        self.voice.tell(replace(self.voice.state, words=what))


def pace_s(waited_s: float) -> float:
    """How long until GPUs are looked at again. A look starts a program, so the longer it lasts the rarer they are."""
    return min(max(ASK_AGAIN_S, waited_s / 10), ASK_AT_LEAST_S)


def _check(admission: Admission, after_s: float) -> Admitted | Occupied | Failed:
    """Look at everything, or after a wait at GPUs first: while they are in use, nothing else matters."""
    # In the errand's own thread, so that a signal is heard meanwhile.
    admission.clock.sleep(after_s)
    still = gpugate.check(admission.instance) if after_s else None
    return still or gate.check(admission.instance, admission.environment)
