"""What the server's processes say to each other, over pipes."""

from dataclasses import dataclass
from typing import Any, Protocol

USER, WARMUP, HEALTH = "user", "warmup", "health"


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
    """Server to rank 0: generate so many tokens."""

    request: str
    tokens: int
    prompt_tokens: int
    seed: int
    purpose: str = USER


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
    """Rank 0 to detokenizer (with a token) and detokenizer to server (with its text). `finish` is '' until the end."""

    request: str
    token: int | None = None
    text: str = ""
    finish: str = ""
    value: Any = None
