"""What the server's processes say to each other, over pipes."""

from dataclasses import dataclass
from typing import Any, Protocol

USER, WARMUP, HEALTH = "user", "warmup", "health"
# The bootstrap host of a request that shall not cross, as in the real engine.
FAKE = "2.2.2.2"


class Pipe(Protocol):
    """One end of a pipe."""

    def send(self, message: object, /) -> None:
        """Send a message; raises OSError when the other end is gone."""

    def recv(self) -> Any:  # noqa: ANN401 -- what was sent
        """Wait for a message; raises EOFError when the other end is gone."""

    def poll(self, timeout: float = 0.0, /) -> bool:
        """Whether a message or the end has come within seconds."""

    def fileno(self) -> int:
        """The file descriptor."""

    def close(self) -> None:
        """Let go of it."""


@dataclass(frozen=True, slots=True)
class Generate:
    """Server to rank 0: generate so many tokens.

    `refrain`: what every line of the prompt begins with, if they do; such a text is gone on with, as a language model
    would. In a pair: a request of a room, its prefill behind a bootstrap address; with FAKE nothing is handed over.
    """

    request: str
    tokens: int
    prompt_tokens: int
    seed: int
    purpose: str = USER
    room: int | None = None
    bootstrap: str = ""
    refrain: str = ""

    @property
    def is_fake(self) -> bool:
        """Whether it needs no other side: the server's own health check, and whoever sends the fake address."""
        return self.purpose == HEALTH or self.bootstrap == FAKE


@dataclass(frozen=True, slots=True)
class Abort:
    """Server to rank 0: end a request, or all of them when it is ''."""

    request: str


@dataclass(frozen=True, slots=True)
class AskState:
    """Server to rank 0: tell your state."""

    request: str


@dataclass(frozen=True, slots=True)
class Flush:
    """Server to rank 0: empty the cache."""

    request: str


@dataclass(frozen=True, slots=True)
class Shutdown:
    """Server to rank 0: release what you hold and end, and tell the other ranks."""


@dataclass(frozen=True, slots=True)
class Output:
    """Rank 0 to detokenizer (with a token) and detokenizer to server (with its text). `finish` is '' until the end.

    `problem` is why a request was refused or failed, with the HTTP `status` that says so.
    """

    request: str
    token: int | None = None
    text: str = ""
    finish: str = ""
    value: Any = None
    problem: str = ""
    status: int = 200
