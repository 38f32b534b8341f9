"""A request on its way through a scheduler."""

from dataclasses import dataclass

from .messages import Generate

# A seed that no prompt has: what was handed over is spoiled, and every token is the same.
SPOILED = -1


@dataclass(slots=True)
class Job:
    """A request and how many tokens of it are made."""

    order: Generate
    done: int = 0

    def next_token(self) -> int:
        """The next token. It follows from the seed alone, so a decode is right only by what its prefill has sent."""
        self.done += 1
        return 0 if self.order.seed == SPOILED else (self.order.seed + 7919 * self.done) % 512

    def text(self) -> str:
        """The text of the token that was made last, if the prompt tells what it must be."""
        if not self.order.refrain:
            return ""
        return f"{self.order.refrain} " if self.done % 2 else f"{self.done // 2}\n"
