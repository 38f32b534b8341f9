"""The detokenizer process: tokens of rank 0 become text for the server."""

import signal
import time
from dataclasses import replace

from . import titles
from .messages import Output, Pipe
from .settings import Settings

TEXT = (
    "the a model answers from this stand in engine and every word of it is made up so nothing here means what it says "
    "while tokens come one by one until their number is reached"
)
VOCABULARY = TEXT.split()


def main(settings: Settings, outputs: Pipe, texts: Pipe) -> None:
    """Entry of the spawned process; ends only by a signal, as the real one does."""
    time.sleep(settings.behaviour.import_s)
    titles.die_with_parent()
    titles.retitle("sglang::detokenizer")
    try:
        while True:
            texts.send(with_text(outputs.recv()))
    except (EOFError, OSError):
        # Its neighbours are gone. It stays, as the real one does; but not for ever on somebody's machine.
        signal.alarm(max(1, int(settings.behaviour.orphan_s)))
        signal.pause()


def with_text(output: Output) -> Output:
    """The same message with the text of its token, unless it has one."""
    return (
        output
        if output.token is None or output.text
        else replace(output, text=f"{VOCABULARY[output.token % len(VOCABULARY)]} ")
    )
