"""The one door to other programs: argv in, whole output out. Decides nothing."""

import contextlib
import os
import shlex
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dsv4ctl.problems import CannotRun

# Debian and Ubuntu package that brings a program; the names are the same on both.
PACKAGES = {
    "ss": "iproute2",
    "ip": "iproute2",
    "systemctl": "systemd",
    "journalctl": "systemd",
    "systemd-analyze": "systemd",
    "systemd-run": "systemd",
    "busctl": "systemd",
    "nsenter": "util-linux",
    "unshare": "util-linux",
    "setpriv": "util-linux",
    "mount": "mount",
    "umount": "mount",
}

# Messages are parsed and shown, so they must not come in the operator's language.
LANGUAGE = {"LANG": "C.UTF-8", "LC_ALL": "C.UTF-8"}

# A killed group is gone at once unless one of it sits in uninterruptible sleep (a driver call); then it is left behind.
KILL_LIMIT_S = 2.0

# They raise KeyboardInterrupt.
INTERRUPTS = (signal.SIGINT, signal.SIGTERM)


class MissingProgram(CannotRun):
    """The program is not installed."""


class TimedOut(CannotRun):
    """The program did not end in time. `abandoned`: not even SIGKILL ended it, so it was left behind."""

    def __init__(self, message: str, *, hint: str = "", abandoned: bool = False) -> None:
        super().__init__(message, hint=hint)
        self.abandoned = abandoned


@dataclass(frozen=True, slots=True)
class Done:
    """A program that has ended. `status` is negative for the signal that ended it."""

    argv: tuple[str, ...]
    status: int
    stdout: str
    stderr: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Begun:
    """A program that comes up while we do other things. Whoever began it finishes or ends it."""

    argv: tuple[str, ...]
    process: subprocess.Popen[bytes]
    at: float

    def finish(self, input_text: str, *, timeout_s: float, check: bool = True) -> Done:
        """Give it what it reads and wait for its end. Returns and raises what `run` does."""
        try:
            stdout, stderr = self.process.communicate(input_text.encode() or None, timeout=timeout_s)
        except subprocess.TimeoutExpired as error:
            raise _timed_out(self.argv, self.process, error, timeout_s) from None
        except BaseException:
            _end(self.process)
            raise
        seconds = time.monotonic() - self.at
        done = Done(self.argv, self.process.returncode, _text(stdout), _text(stderr), seconds)
        if check and done.status:
            raise CannotRun(f"cannot run `{_shown(self.argv)}`: {why(done)}")
        return done

    def end(self) -> None:
        """Kill it, for it is not wanted any more."""
        _end(self.process)


def begin(argv: Sequence[str | Path], *, keep: Sequence[int] = ()) -> Begun:
    """Start a program that waits for something to read. `keep`: open files that it has as well.

    Raises MissingProgram and CannotRun.
    """
    words, at = tuple(str(word) for word in argv), time.monotonic()
    # Whoever is interrupted lets go of what it reads, which ends it.
    with _whole():
        process = _start(words, stdin=subprocess.PIPE, stderr=subprocess.PIPE, env=None, cwd=None, keep=keep)
    return Begun(words, process, at)


def run(  # noqa: PLR0913 -- the one door has all the handles; everything but argv is by keyword
    argv: Sequence[str | Path],
    *,
    timeout_s: float,
    env: Mapping[str, str] | None = None,
    input_text: str = "",
    check: bool = True,
    cwd: Path | None = None,
) -> Done:
    """Run a program to its end in a process group of its own and return its whole output, decoded as UTF-8.

    `env` is added to our own environment. Raises MissingProgram, TimedOut (its whole group has been killed then) and,
    when `check`, CannotRun with the program's stderr for every exit status but 0.
    """
    words, at = tuple(str(word) for word in argv), time.monotonic()
    stdin = subprocess.PIPE if input_text else subprocess.DEVNULL
    begun: Begun | None = None
    try:
        with _whole():
            begun = Begun(words, _start(words, stdin=stdin, stderr=subprocess.PIPE, env=env, cwd=cwd), at)
        return begun.finish(input_text, timeout_s=timeout_s, check=check)
    except CannotRun:
        raise
    except BaseException:
        _end(begun.process if begun else None)
        raise


def stream(argv: Sequence[str | Path], *, env: Mapping[str, str] | None = None) -> Iterator[str]:
    """Yield the lines that a program prints, as they come, without their ends. Closing the iterator ends the program.

    Raises MissingProgram at the first step, and CannotRun with the program's stderr when it fails by itself.
    """
    words = tuple(str(word) for word in argv)
    # A pipe that nobody reads would fill up and stop the program; an anonymous file does not.
    with os.fdopen(os.memfd_create("stderr"), "r+b") as stderr:
        process: subprocess.Popen[bytes] | None = None
        try:
            with _whole():
                process = _start(words, stdin=subprocess.DEVNULL, stderr=stderr.fileno(), env=env, cwd=None)
            for line in process.stdout or ():
                yield _text(line).removesuffix("\n")
            status = process.wait()
        finally:
            _end(process)
        stderr.seek(0)
        done = Done(words, status, "", _text(stderr.read()), 0.0)
    if done.status:
        raise CannotRun(f"cannot run `{_shown(words)}`: {why(done)}")


def why(done: Done) -> str:
    """What a program said when it failed: its stderr, else its stdout, else its exit status or signal in words."""
    if said := done.stderr.strip() or done.stdout.strip():
        return said
    if done.status < 0:
        return f"it was ended by signal {-done.status} ({signal.strsignal(-done.status)})"
    return f"exit status {done.status}"


@contextlib.contextmanager
def _whole() -> Iterator[None]:
    """Have an interrupt come when this is over: in the middle of a start nobody knows yet whom to end.

    Only the main thread is ever interrupted. The signals are not blocked, for a program would inherit that.
    """
    handlers = {number: signal.getsignal(number) for number in INTERRUPTS}
    mine = threading.current_thread() is threading.main_thread()
    held = {number: handler for number, handler in handlers.items() if mine and callable(handler)}
    came: list[int] = []
    try:
        for number in held:
            signal.signal(number, lambda number, _: came.append(number))
        yield
    finally:
        for number, handler in held.items():
            signal.signal(number, handler)
        for one in came:
            signal.raise_signal(one)


def _start(  # noqa: PLR0913 -- run's own handles, by keyword
    words: tuple[str, ...],
    *,
    stdin: int,
    stderr: int,
    env: Mapping[str, str] | None,
    cwd: Path | None,
    keep: Sequence[int] = (),
) -> subprocess.Popen[bytes]:
    """Start a program in a session of its own: Ctrl-C is for us alone, and a timeout can end all that it started."""
    if cwd is not None and not cwd.is_dir():
        raise CannotRun(f"cannot run `{_shown(words)}` in {cwd}: there is no such folder")
    try:
        return subprocess.Popen(
            words,
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=stderr,
            env={**os.environ, **LANGUAGE, **(env or {})},
            cwd=cwd,
            start_new_session=True,
            pass_fds=keep,
        )
    except FileNotFoundError:
        raise _missing(words[0]) from None
    except (OSError, ValueError) as error:
        said = getattr(error, "strerror", None) or str(error)  # a ValueError is a NUL byte in a word
        raise CannotRun(f"cannot run `{_shown(words)}`: {said.lower()}") from None


def which(program: str, path: str) -> str:
    """Where a program lies on a search path; '' when it does not."""
    files = (Path(folder or ".", program) for folder in path.split(":"))
    return next((str(file) for file in files if os.access(file, os.X_OK) and file.is_file()), "")


def _missing(program: str) -> MissingProgram:
    package = PACKAGES.get(Path(program).name)
    hint = f"apt-get install {package}" if package else f"look for it with `command -v {Path(program).name}`"
    return MissingProgram(f"cannot run {program}: there is no such program", hint=hint)


def _timed_out(
    words: tuple[str, ...], process: subprocess.Popen[bytes], error: subprocess.TimeoutExpired, timeout_s: float
) -> TimedOut:
    ended = _end(process)
    said = _text(error.stderr or b"").strip()
    words_end = "and was ended" if ended else f"and not even SIGKILL ended pid {process.pid}, so it was left behind"
    message = f"cannot run `{_shown(words)}`: it did not end within {timeout_s:g} s {words_end}"
    return TimedOut(message + (f": {said}" if said else ""), abandoned=not ended)


def _end(process: subprocess.Popen[bytes] | None) -> bool:
    """Kill the group that the program leads, reap it and let go of its pipes; False: it did not go."""
    if process is None:
        return True
    if process.returncode is None:
        # Not reaped yet, so the number is still its own, even when it is a zombie already.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(KILL_LIMIT_S)
    for pipe in filter(None, (process.stdin, process.stdout, process.stderr)):
        # Closing flushes, and a pipe whose reader is gone cannot be flushed.
        with contextlib.suppress(BrokenPipeError):
            pipe.close()
    return process.returncode is not None


def _shown(words: tuple[str, ...], width: int = 160) -> str:
    """The command as one would type it, cut where it would drown the message."""
    text = shlex.join(words)
    return text if len(text) <= width else text[: width - 1] + "…"


def _text(output: bytes) -> str:
    return output.decode("utf-8", errors="replace")
