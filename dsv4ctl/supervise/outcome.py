"""Why a stage is over. Values only."""

from dataclasses import dataclass
from typing import TypeAlias

from dsv4ctl.model import Capacity, SuperviseExit

# A loading engine dies of SIGTERM at once, unless it is past its load: then it has a moment to start its own shutdown.
LOADING_GRACE_S = 0.5
# An engine that serves, or could, gives its GPU memory back sooner when it ends by itself than when it is killed: an
# idle stop takes 2 to 6 s, one that waits for a hung scheduler 15 s more.
SERVING_GRACE_S = 25.0


@dataclass(frozen=True, slots=True)
class Ready:
    """The engine is proved. `capacity`: what it says that it can hold (0 tokens: it did not say), as it serves it."""

    capacity: Capacity


@dataclass(frozen=True, slots=True)
class Asked:
    """Somebody wants us to stop, by a signal or in so many words. `hurried`: without waiting for requests.

    `exit` is how we end then: ASKED has systemd start us again.
    """

    signal: str
    hurried: bool = False
    exit: SuperviseExit = SuperviseExit.OK


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """It cannot go on.

    `grace_s` is how long the engine may take to end by itself before it is killed. `drains`: it was told to stop by
    somebody else, and has requests to finish.
    """

    exit: SuperviseExit
    words: str
    advice: str = ""
    grace_s: float = LOADING_GRACE_S
    drains: bool = False


# What ends a run.
Over: TypeAlias = Asked | Failed
