"""A supervisor's turn at probing: it holds the lock of `dsv4ctl probe`, so that no generation counts for two probes."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from dsv4ctl.problems import Busy, Problem
from dsv4ctl.store import Claim, lock
from dsv4ctl.supervise.run import Run

# Nobody is waited for longer at a time: it is tried again, and said meanwhile who it is.
PATIENCE_S = 1.0


@contextmanager
def turn(run: Run) -> Iterator[None]:
    """Generations that prove something are sent within the block. Raises Busy naming who else is at it.

    Where there can be no lock, as on a full /run, they are sent all the same: what is not proved does not serve.
    """
    claim = Claim(what="a probe", wait_s=PATIENCE_S, command=f"the supervisor of {run.instance.unit}")
    with ExitStack() as held:
        try:
            if run.probe_lock is not None:
                held.enter_context(lock.held(run.probe_lock, claim, run.clock))
        except Busy:
            raise
        except Problem as problem:
            run.journal.note(f"{problem}; the probe is made all the same")
        yield
