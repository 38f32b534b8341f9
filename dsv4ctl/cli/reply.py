"""--json: what a command finds is one object on stdout, said once and when all is over, whatever became of it."""

import functools
import sys
from collections.abc import Callable, Mapping
from contextlib import nullcontext, redirect_stdout

import click

from dsv4ctl.problems import Problem

Function = Callable[..., object]
OPTION = "--json"


class Reply:
    """What a command has found so far, for --json. `wanted`: whether anybody asked for that.

    A command adds what it finds as soon as it has it, so that a refusal, an interruption and a fault lose none of it.
    """

    def __init__(self, *, asked: bool) -> None:
        # Until a command begins nobody can say more than what stands in the command line.
        self.wanted = asked
        self._found: dict[str, object] = {}
        self._is_stream = False
        self._is_over = False
        self._out = sys.stdout

    def add(self, found: Mapping[str, object]) -> None:
        """Something was found; what is known under the same name is replaced."""
        self._found |= found

    def grow(self, name: str, one: object) -> None:
        """One more of a list."""
        known = self._found.get(name)
        self._found[name] = (*(known if isinstance(known, tuple) else ()), one)

    def line(self, found: Mapping[str, object]) -> None:
        """One object of a command that says one after the other, at once."""
        self._is_stream = True
        self._say(found, None)

    def close(self, problem: Problem | None = None) -> None:
        """The command is over. Of a stream nothing is left to be said but how it failed."""
        if self._is_over or not self.wanted:
            return
        self._is_over = True
        if problem is not None or not self._is_stream:
            self._say({} if self._is_stream else self._found, problem)

    def _say(self, found: Mapping[str, object], problem: Problem | None) -> None:
        from dsv4ctl.outcome import Outcome

        click.echo(Outcome(found=found, problem=problem).text(), file=self._out)


def json_option(words: str) -> Callable[[Function], Function]:
    """--json, given to the command as the `reply` to add to. What else the command prints goes to stderr then."""

    def decorated(command: Function) -> Function:
        @functools.wraps(command)
        def replied(*, as_json: bool, **others: object) -> object:
            reply = click.get_current_context().find_object(Reply) or Reply(asked=as_json)
            reply.wanted = as_json
            with redirect_stdout(sys.stderr) if as_json else nullcontext():
                status = command(reply=reply, **others)
            reply.close()
            return status

        return click.option(OPTION, "as_json", is_flag=True, help=words)(replied)

    return decorated


def asked_in(argv: list[str]) -> bool:
    """Whether --json stands in a command line, right or wrong."""
    return any(word.partition("=")[0] == OPTION for word in argv)
