"""`dsv4ctl memory`."""

import re
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from dsv4ctl.cli.options import Asked, spec_options
from dsv4ctl.cli.reply import Reply, json_option
from dsv4ctl.problems import Status

if TYPE_CHECKING:
    from dsv4ctl.memory.answers import Answer, Question
    from dsv4ctl.memory.asked import Speculation

CONTEXT_KEY = "memory.context_length"


@click.command("memory", short_help="Plan GPU memory: what fits, what to set, what a longer context costs.")
@spec_options
@click.option("--gpu", metavar="KIND", help="Plan for this kind of GPU, such as h200, instead of this host's.")
@click.option("--tp", type=click.IntRange(1, 64), metavar="RANKS", help="Plan for so many ranks instead of the mode's.")
@click.option("--checkpoint", metavar="NAME", help="v4-flash-fp4, -nvfp4, -fp8, v4-pro, v4.1-flash, or a folder.")
@click.option(
    "--requests",
    type=click.IntRange(1),
    default=1,
    metavar="COUNT",
    help="Requests of the whole context to fit at once.",
)
@click.option("--speculative", metavar="KIND:N", help="Speculation with N draft tokens: eagle:4, dspark:6.")
@click.option("--compare", metavar="LIST", help="Contexts side by side, such as 128k,512k,1M.")
@click.option("--explain", is_flag=True, help="Answer the three questions about KV cache and context in plain words.")
@json_option("Print the same values as JSON, in bytes.")
def command(asked: Asked, compare: str | None, explain: bool, reply: Reply, **others: str | int | None) -> int:
    """Plan the memory of each GPU: a budget, a verdict, and recommended flags with their reasons.

    Plans what is configured on the GPUs of this host, or any other with --gpu, --tp and --checkpoint; --context-length
    takes several, such as 128k,512k. Nothing is started. Every figure is exact (the engine's own arithmetic), measured
    (an earlier start on this host) or an estimate with its range. Exit status 2: something asked for does not fit;
    what --compare shows does not count.
    """
    from dsv4ctl import foresight, memory_screen

    asked, contexts = _contexts(asked)
    question = _question(others, contexts, _counts("--compare", compare))
    found, notes = foresight.answer(asked.host(), asked.spec(), question)
    reply.add({"notes": notes, "plans": [memory_screen.answer_values(one) for one in found]})
    if reply.wanted:
        return _status(found)
    for note in notes:
        click.echo(f"note: {note}", err=True)
    for one in found:
        _show(one, explain=explain)
    return _status(found)


def _status(found: "tuple[Answer, ...]") -> int:
    return Status.OK if all(one.fits for one in found) else Status.USAGE


def _show(answer: "Answer", *, explain: bool) -> None:
    import sys

    from dsv4ctl import memory_screen
    from dsv4ctl.cli import memory_bars

    if sys.stdout.isatty() and answer.budget is not None:
        memory_bars.draw(answer.budget, answer.shape.gpus)
    click.echo(memory_screen.answer(answer, explain=explain) + "\n")


def _question(others: dict[str, str | int | None], contexts: tuple[int, ...], compared: tuple[int, ...]) -> "Question":
    from dsv4ctl.memory.answers import Question

    gpu, checkpoint, tp, requests = (others[name] for name in ("gpu", "checkpoint", "tp", "requests"))
    return Question(
        gpu=str(gpu) if gpu else None,
        checkpoint=str(checkpoint) if checkpoint else None,
        tp=int(tp) if tp else None,
        requests=int(requests or 1),
        speculation=_speculation(others["speculative"]),
        contexts=contexts,
        compared=compared,
    )


def _contexts(asked: Asked) -> tuple[Asked, tuple[int, ...]]:
    """Several contexts of --context-length; the config's checks get the first."""
    text = str(asked.flags.get(CONTEXT_KEY, ""))
    if "," not in text:
        return asked, ()
    first = {**asked.flags, CONTEXT_KEY: text.partition(",")[0]}
    return replace(asked, flags=first), _counts("--context-length", text)


def _counts(option: str, text: str | None) -> tuple[int, ...]:
    from dsv4ctl import quantity

    try:
        counts = tuple(quantity.count(part.strip()) for part in (text or "").split(",") if part.strip())
    except ValueError as error:
        raise click.BadParameter(f"{text}: {error}", param_hint=option) from None
    if any(count < 1 for count in counts):
        raise click.BadParameter(f"{text}: a context has at least one token", param_hint=option)
    return counts


def _speculation(text: object) -> "Speculation | None":
    from dsv4ctl.memory.asked import Speculation

    if text is None:
        return None
    match = re.fullmatch(r"(eagle|dspark):([1-9][0-9]?)", str(text).lower())
    if match is None:
        raise click.BadParameter(f"{text}: allowed is eagle:N or dspark:N, such as eagle:4", param_hint="--speculative")
    return Speculation(algorithm=match[1].upper(), draft_tokens=int(match[2]))
