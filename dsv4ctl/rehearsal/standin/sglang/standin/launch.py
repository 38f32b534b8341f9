"""Starts the children of a server and waits until its schedulers are ready."""

import multiprocessing
import os
import signal
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from types import FrameType
from typing import Any

from . import detokenizer, misdeeds, scheduler, tree, words
from .messages import Pipe
from .settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Children:
    """The processes of a server and its pipes: `orders` to rank 0, `texts` from the detokenizer."""

    schedulers: tuple[BaseProcess, ...]
    detokenizer: BaseProcess
    orders: Pipe
    texts: Pipe

    @property
    def named(self) -> tuple[tuple[str, BaseProcess], ...]:
        """Every process with the name that the watchdog gives it."""
        ranks = tuple((f"scheduler_{rank}", process) for rank, process in enumerate(self.schedulers))
        return (*ranks, ("detokenizer", self.detokenizer))


def start(settings: Settings) -> tuple[Children, list[dict[str, Any]]]:
    """Start all children; returns them and what each rank said when it was ready. Raises RuntimeError."""
    signal.signal(signal.SIGQUIT, quit_in_launch)
    spawn = multiprocessing.get_context("spawn")
    out_reader, out_writer = spawn.Pipe(duplex=False)
    text_reader, text_writer = spawn.Pipe(duplex=False)
    order_reader, order_writer = spawn.Pipe(duplex=False)
    schedulers, ready = [], []
    for rank in range(settings.tp):
        ready_reader, ready_writer = spawn.Pipe(duplex=False)
        orders = None if rank else order_reader
        pipes = scheduler.Pipes(ready_writer, orders, out_writer)
        child = spawn.Process(target=scheduler.main, args=(settings, rank, pipes))
        child.start()
        # Our copies must go, or no end of these pipes would ever be noticed.
        ready_writer.close()
        schedulers.append(child)
        ready.append(ready_reader)
    texter = spawn.Process(target=detokenizer.main, args=(settings, out_reader, text_writer))
    texter.start()
    for pipe in (order_reader, out_reader, out_writer, text_writer):
        pipe.close()
    if settings.behaviour.helper_takes_port:
        _help_itself(settings)
    children = Children(schedulers=tuple(schedulers), detokenizer=texter, orders=order_writer, texts=text_reader)
    return children, [_wait(rank, reader, children) for rank, reader in enumerate(ready)]


def _help_itself(settings: Settings) -> None:
    """Start the helper that takes our own port, and wait until it has it, so that the clash is certain."""
    spawn = multiprocessing.get_context("spawn")
    reader, writer = spawn.Pipe(duplex=False)
    spawn.Process(target=misdeeds.take_port, args=(settings, writer)).start()
    writer.close()
    reader.poll(30)


def _wait(rank: int, reader: Pipe, children: Children) -> dict[str, Any]:
    """What a rank says when it is ready; raises RuntimeError when it, or any other, has died."""
    while not reader.poll(5.0):
        for other, process in enumerate(children.schedulers):
            if not process.is_alive():
                raise _died(other, process)
    try:
        said: dict[str, Any] = reader.recv()
    except EOFError:
        raise _died(rank, children.schedulers[rank]) from None
    return said


def _died(rank: int, process: BaseProcess) -> RuntimeError:
    # The ranks that are left will tell us of the same death, and the end shall be this one.
    signal.signal(signal.SIGQUIT, signal.SIG_IGN)
    process.join(timeout=10)
    return RuntimeError(
        f"Rank {rank} scheduler died during initialization (exit code: {process.exitcode}). If exit code is -9 "
        "(SIGKILL), a common cause is the OS OOM killer. Run `dmesg -T | grep -i oom` to check."
    )


def quit_in_launch(_signal: int, _frame: FrameType | None) -> None:
    """SIGQUIT before the first request: the whole tree is killed at once."""
    words.say("Received sigquit from a child process. It usually means the child failed.")
    words.say(f"kill_process_tree called: parent_pid={os.getpid()}, include_parent=True, pid={os.getpid()}")
    tree.kill_all()
