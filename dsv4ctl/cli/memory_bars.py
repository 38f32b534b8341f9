"""A bar of memory for each GPU on a terminal. The one place that draws memory."""

from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from dsv4ctl.memory.budget import Budget
from dsv4ctl.memory.figures import Part, total

WIDTH = 60
# What is left is the bar's empty end; what is missing is drawn over the end in red.
STYLES = ((Part.OUTSIDE, "grey50"), (Part.WEIGHTS, "blue"), (Part.POOL, "green"), (Part.SLACK, "yellow"))


def draw(made: Budget, gpus: Sequence[int]) -> None:
    """Draw one bar a GPU, and what its colours mean."""
    console = Console(highlight=False)
    for gpu in gpus or range(made.ask.tp):
        console.print(Text(f"GPU {gpu:<3}"), bar(made), sep="")
    legend = Text("       ")
    for part, style in STYLES:
        legend.append("█ ", style=style)
        legend.append(f"{part}  ")
    console.print(legend)


def bar(made: Budget) -> Text:
    """The parts of one GPU in proportion, each at least one cell wide where it has anything."""
    text = Text()
    whole, left = made.ask.gpu.total_bytes, WIDTH
    for part, style in STYLES:
        amount = total(made.figures, part)
        cells = min(left, max(1, round(amount / whole * WIDTH)) if amount else 0)
        text.append("█" * cells, style="red" if part is Part.SLACK and made.left_bytes < 0 else style)
        left -= cells
    return text.append("░" * left)
