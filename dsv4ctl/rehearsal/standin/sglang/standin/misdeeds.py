"""What goes wrong on purpose; each is asked for by a key of the behaviour."""

import json
import os
import resource
import signal
import socket
import sys
import threading
import time
import traceback
from pathlib import Path

from . import ledger, options, titles, words
from .messages import Pipe
from .settings import Settings

OUT_OF_MEMORY = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 94.00 GiB "
    "of which 1.25 GiB is free."
)


class SchedulerFailed(Exception):
    """An exception inside a scheduler, worded as it is to be logged."""


def trace() -> str:
    """The traceback of now; an exception that was asked for shows as the one that it plays."""
    return traceback.format_exc().replace(f"{__name__}.{SchedulerFailed.__name__}: ", "")


def halfway(settings: Settings, phase: str, rank: int) -> None:
    """Go wrong in the middle of a phase, if that was asked for: stall in all ranks, everything else in rank 0 only."""
    asked = settings.behaviour
    if asked.stall_in == phase:
        signal.pause()
    if rank:
        return
    if asked.die_in == phase:
        os.kill(os.getpid(), signal.SIGKILL)
    if asked.oom_in == phase:
        raise SchedulerFailed(OUT_OF_MEMORY)
    if asked.crash_in == phase:
        raise SchedulerFailed(f"RuntimeError: the behaviour file asks for a crash in {phase}")


def chatter(settings: Settings, rank: str) -> None:
    """Write many log lines as fast as the reader takes them."""
    total = settings.behaviour.chatty_lines
    for first in range(1, total + 1, 500):
        stamp = words.stamp(rank)
        batch = range(first, min(first + 500, total + 1))
        words.write(2, "".join(f"{stamp} chatty line {number} of {total}\n" for number in batch))


def at_start(settings: Settings) -> bytes:
    """Dump, end at once, or grow, as asked; the memory grown is returned so that it stays."""
    asked = settings.behaviour
    dump(settings)
    match asked.exit:
        case 1:
            sys.exit("ValueError: the behaviour file asks for exit status 1")
        case 2:
            options.parser().error("unrecognized arguments: --asked-for-by-the-behaviour-file")
        case 3:
            words.uvicorn(
                bind_error(OSError(98, "Address already in use"), (settings["host"], settings["port"])), "ERROR"
            )
            sys.exit(3)
    # Repetition writes every page; a zeroed bytearray would not be resident.
    return b"x" * (asked.heap_mb << 20)


def bind_error(error: OSError, address: tuple[object, ...]) -> str:
    """uvicorn's words for a port that cannot be bound."""
    reason = os.strerror(error.errno or 0).lower()
    return f"[Errno {error.errno}] error while attempting to bind on address {address!r}: {reason}"


def tell(path: str | None, line: str) -> None:
    """Add a line to a file that several servers may write to."""
    if path is not None:
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(f"{line}\n")


def dump(settings: Settings) -> None:
    """Write what reached us into the file that `dump_to` names."""
    if not (path := settings.behaviour.dump_to):
        return
    names = [name for name in dir(resource) if name.startswith("RLIMIT_")]
    limits = {name: resource.getrlimit(getattr(resource, name)) for name in names}
    environment = {os.fsdecode(key): os.fsdecode(value) for key, value in os.environb.items()}
    # The interpreter's own words come first, so that the whole command line can be compared.
    whole = {"argv": sys.orig_argv, "environment": environment, "cwd": os.getcwd(), "limits": limits}  # noqa: PTH109
    fresh = f"{path}.new"
    with Path(fresh).open("w", encoding="utf-8") as file:
        json.dump(whole, file, indent=1)
    os.replace(fresh, path)  # noqa: PTH105 -- surrogates in names go through os, not through Path


def take_port(settings: Settings, taken_writer: Pipe) -> None:
    """Body of the helper that takes the server's own HTTP port and keeps it; ends with its parent."""
    titles.die_with_parent()
    family = socket.AF_INET6 if ":" in settings["host"] else socket.AF_INET
    with socket.socket(family) as taken:
        # So that old connections of the port do not hinder us, as they do not hinder the server.
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind((settings["host"], settings["port"]))
        if settings.behaviour.helper_takes_port == "listening":
            taken.listen()
        else:
            # A socket that is only bound makes the bind of the server fail as long as one of the two does not set it.
            taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)
        taken_writer.send("taken")
        signal.pause()


def leave_children(settings: Settings) -> None:
    """Start processes of sessions of their own, which outlive the server and hold memory of the first GPU."""
    for number in range(settings.behaviour.leave_renamed_children):
        if child := os.fork():
            os.waitpid(child, 0)
            continue
        os.setsid()
        if os.fork():
            os._exit(0)
        try:
            _outlive(settings, number)
        finally:
            # Whatever happens here must not go on as a second scheduler.
            os._exit(0)


def get_stuck(settings: Settings) -> None:
    """Ask for a file in a thread; whether it ever comes back is up to the file system."""
    if path := settings.behaviour.stuck_on:
        threading.Thread(target=os.path.exists, args=(path,), daemon=True).start()


def _outlive(settings: Settings, number: int) -> None:
    """Be a process that nobody finds by name, until its time is over."""
    titles.retitle(f"kv-offload/{number}")
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    # A reader of our log must see its end when the server ends, so its pipes are let go.
    null = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(null, stream)
    os.closerange(3, 4096)
    gpu = ledger.gpu_of(0) if settings.on_gpu else None
    ledger.hold(gpu, 1.0)
    time.sleep(settings.behaviour.orphan_s)
    ledger.release(gpu)
