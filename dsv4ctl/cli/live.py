"""What a deploy or teardown says on stderr while it works: a live view on a terminal, plain lines elsewhere."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from dsv4ctl import screen, screen_steps
from dsv4ctl.cli.reply import Reply
from dsv4ctl.free import AwaitGpus, AwaitPorts
from dsv4ctl.steps import Start, StartTogether, Step, Stop
from dsv4ctl.telling import Doing, Planned, Said, Seen, Tell, Waits, Warns, Wrote

if TYPE_CHECKING:
    from rich.live import Live

# A line every this many seconds from a phase that only counts up; a new phase is told at once.
REPEAT_S = 10.0
# What is waited for is told this often.
WAITS_S = 2.0
TAKE_TIME = (Start, StartTogether, Stop, AwaitPorts, AwaitGpus)


@contextmanager
def teller(reply: Reply) -> Iterator[Tell]:
    """The teller that fits stderr, and the reply hears of plans and of steps that were begun.

    On a terminal the view is closed before the block's outcome is shown.
    """
    if not sys.stderr.isatty():
        yield _heard(reply, Lines().tell)
        return
    from rich.console import Console
    from rich.live import Live

    with Live(console=Console(stderr=True), refresh_per_second=8, transient=False) as live:
        view = View(live)
        yield _heard(reply, view.tell)
        # After a failure the step that failed stays where it is, with what was seen last.
        view.close()


def _heard(reply: Reply, tell: Tell) -> Tell:
    def told(said: Said) -> None:
        match said:
            case Planned():
                from dsv4ctl import screen_plan

                reply.add(screen_plan.as_json(said.plan))
            case Doing():
                reply.grow("begun", screen_steps.step_line(said.step))
        tell(said)

    return told


class Lines:
    """One line a step and a phase, with the seconds since the command began."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._step: Step | None = None
        self._at = 0.0
        # Of every unit that is looked at in this step: what was said of it last, in which phase, and when.
        self._said: dict[str, tuple[str, str, float]] = {}

    def tell(self, what: Said) -> None:
        """Say it, unless it was just said."""
        match what:
            case Doing():
                self._step, self._said = what.step, {}
                self._say(screen_steps.step_line(what.step))
            case Warns():
                click.echo(f"warning: {what.words}", err=True)
            case Waits():
                if time.monotonic() - self._at >= WAITS_S:
                    self._say(f"  {what.words}")
            case Wrote():
                for line in screen.wrote(what.unit, what.lines):
                    click.echo(line, err=True)
            case Seen():
                self._see(what)

    def _see(self, what: Seen) -> None:
        text, phase = screen.phase_line(what.unit, what.state), what.state.phase if what.state is not None else ""
        last_text, last_phase, at = self._said.get(what.unit.name, ("", "", 0.0))
        if text != last_text and (phase != last_phase or time.monotonic() - at >= REPEAT_S):
            self._said[what.unit.name] = (text, phase, time.monotonic())
            self._say(f"  {screen_steps.whose(self._step, what.unit)}{text}")

    def _say(self, text: str) -> None:
        self._at = time.monotonic()
        click.echo(f"+ {self._at - self._began:6.1f} s  {text}", err=True)


class View:
    """The step in work with its phases, bars and seconds; what is done scrolls by above, however small the screen."""

    def __init__(self, live: "Live") -> None:
        self._live = live
        self._began = time.monotonic()
        self._step: Step | None = None
        self._step_began = self._began
        self._seen: dict[str, Seen] = {}

    def tell(self, what: Said) -> None:
        """Redraw."""
        match what:
            case Doing():
                self._next(what.step)
            case Warns():
                self._print(f"warning: {what.words}")
            case Wrote():
                for line in screen.wrote(what.unit, what.lines):
                    self._print(line)
            case Seen():
                self._seen[what.unit.name] = what
            case Waits():
                pass
        self._draw(what.words if isinstance(what, Waits) else "")

    def close(self) -> None:
        """All is done."""
        self._finish(time.monotonic())
        self._live.update("")

    def _next(self, step: Step) -> None:
        now = time.monotonic()
        self._finish(now)
        self._step, self._step_began, self._seen = step, now, {}

    def _finish(self, now: float) -> None:
        if self._step is not None:
            took = f"  ({now - self._step_began:.1f} s)" if isinstance(self._step, TAKE_TIME) else ""
            self._print(f"+ {self._step_began - self._began:6.1f} s  {screen_steps.step_line(self._step)}{took}")

    def _print(self, line: str) -> None:
        from rich.text import Text

        self._live.console.print(Text(line, style="dim"))

    def _draw(self, waits: str) -> None:
        from rich.text import Text

        text = Text()
        if self._step is not None:
            text.append(f"> {time.monotonic() - self._began:6.1f} s  {screen_steps.step_line(self._step)}")
        if waits:
            text.append(f"\n             {waits}", style="bold")
        for seen in self._seen.values():
            line = screen_steps.whose(self._step, seen.unit) + screen.phase_line(seen.unit, seen.state)
            text.append(f"\n             {line}", style="bold")
            if seen.state is not None and seen.state.total:
                text.append(f"\n             {screen.bar(seen.state.done, seen.state.total)}", style="cyan")
        self._live.update(text)
