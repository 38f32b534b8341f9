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

    @property
    def is_over(self) -> bool:
        """Whether all tokens are made."""
        return self.done >= self.order.tokens

    def token(self) -> int:
        """The token made last. It follows from the seed alone, so a decode is right only by what its prefill sent."""
        return 0 if self.order.seed == SPOILED else (self.order.seed + 7919 * self.done) % 512

    def text(self) -> str:
        """The text of the token made last, if the prompt tells what it must be."""
        if not self.order.refrain:
            return ""
        return f"{self.order.refrain} " if self.done % 2 else f"{self.done // 2}\n"
