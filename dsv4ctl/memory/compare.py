"""Several contexts side by side, each with the flags recommended for it, and what each costs short requests."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from dsv4ctl.memory import recommend, verdict
from dsv4ctl.memory.asked import Ask
from dsv4ctl.memory.budget import Budget
from dsv4ctl.memory.verdict import Answer

# A request as most are: what a longer context takes from them is how many of these fit at once.
SHORT_TOKENS = 8192


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One context. `short`: requests of 8k tokens that run at once; `short_by_tokens`: that the pool would hold."""

    context_tokens: int
    budget: Budget
    answer: Answer
    short: int
    short_by_tokens: int

    def cost(self, other: "Row") -> float:
        """How much of the other row's short requests this one cannot run at once, as a share."""
        return 1 - self.short / other.short if other.short else 0.0


def rows(ask: Ask, contexts: Iterable[int]) -> tuple[Row, ...]:
    """A row for each context, every flag as recommended for it."""
    return tuple(row(recommend.advise(replace(ask, context_tokens=context)).budget) for context in contexts)


def row(budget: Budget) -> Row:
    """The row of one budget."""
    by_tokens = budget.tokens_of_node // SHORT_TOKENS
    return Row(
        context_tokens=budget.ask.context_tokens,
        budget=budget,
        answer=verdict.of(budget).answer,
        short=min(by_tokens, budget.flags.running_requests),
        short_by_tokens=by_tokens,
    )
