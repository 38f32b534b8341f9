"""The host-wide lock, and the face of whoever holds it: changes happen one after another."""

import fcntl
import json
import os
import shlex
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path

from dsv4ctl import procs
from dsv4ctl.clock import Clock
from dsv4ctl.model import Identity
from dsv4ctl.problems import Busy
from dsv4ctl.store import files
from dsv4ctl.store.audit import person


@contextmanager
def held(path: Path, why: str, clock: Clock) -> Iterator[None]:
    """Hold the lock. The kernel lets go of it when its holder dies, however that happens.

    Raises Busy naming who holds it, why and since when.
    """
    with os.fdopen(files.open_shared(path, os.O_RDWR | os.O_CREAT), "r+b", buffering=0) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise _busy(file.read()) from None
        try:
            # The lock holds without its face: a full /run must not keep anybody from a teardown.
            with suppress(OSError):
                file.truncate(0)
                file.write(_ourselves(why, clock).encode())
            yield
        finally:
            file.truncate(0)
            # Closing alone would not do while a child is between fork and exec, with the file open as well.
            fcntl.flock(file, fcntl.LOCK_UN)


def _ourselves(why: str, clock: Clock) -> str:
    said = {"who": person(), "why": why, "since": clock.wall(), "command": shlex.join(sys.argv)}
    return json.dumps({**said, **asdict(procs.ourselves())})


def _busy(held_by: bytes) -> Busy:
    """Name the holder of the lock from what it wrote into the file, unless that was written by one that is gone."""
    try:
        by = json.loads(held_by)
        holder = Identity(by["boot_id"], by["pid"], by["start_ticks"])
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(by["since"]))
        words = f"{by['who']} holds the lock for {by['why']} since {since} (pid {holder.pid}: {by['command']})"
    except (ValueError, KeyError, TypeError):
        holder, words = None, ""
    if holder is None or not procs.alive(holder):
        return Busy("cannot go on: another dsv4ctl has just taken the lock and not said yet why", hint="try again")
    return Busy(f"cannot go on: {words}", hint=f"wait for it, or interrupt it (kill -INT {holder.pid}) and try again")
