"""What dsv4ctl keeps on disk: paths, whole files, releases, the lock, the audit trail. Knows no reason to keep it."""

import errno
import fcntl
import json
import os
import pwd
import shlex
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from dsv4ctl import procs, record
from dsv4ctl.clock import Clock
from dsv4ctl.model import EngineBuild, Identity, Release
from dsv4ctl.problems import Busy, Problem

HINTS = {
    errno.ENOSPC: "look at `df -h` and `df -i` and make room",
    errno.EDQUOT: "look at `quota` and make room",
    errno.EROFS: "the file system is mounted read-only: look at `findmnt -T` of that path",
    errno.EACCES: "run it as root",
    errno.EPERM: "run it as root",
}


@dataclass(frozen=True, slots=True)
class Paths:
    """Every path of ours on a host, under one root."""

    root: Path

    @property
    def config(self) -> Path:
        """The operator's configuration."""
        return self.root / "etc/dsv4ctl/config.toml"

    @property
    def units(self) -> Path:
        """Where systemd looks for the administrator's units."""
        return self.root / "etc/systemd/system"

    @property
    def state(self) -> Path:
        """What outlives a reboot."""
        return self.root / "var/lib/dsv4ctl"

    @property
    def runtime(self) -> Path:
        """What a reboot forgets."""
        return self.root / "run/dsv4ctl"

    @property
    def cache(self) -> Path:
        """Kernel caches, one folder an instance."""
        return self.root / "var/cache/dsv4ctl"

    @property
    def instances(self) -> Path:
        """What supervisors read: NAME-DIGEST.json."""
        return self.state / "instances"

    @property
    def releases(self) -> Path:
        """One numbered folder a release."""
        return self.state / "releases"

    @property
    def engines(self) -> Path:
        """What engines' --help said, by executable and version."""
        return self.state / "engines"

    @property
    def audit(self) -> Path:
        """One JSON line a change."""
        return self.state / "audit.jsonl"

    @property
    def lock(self) -> Path:
        """Held by whoever changes the host."""
        return self.runtime / "lock"

    def under(self, path: str) -> Path:
        """Where an absolute path of a release lies under this root."""
        return self.root / path.lstrip("/")

    def run_state(self, name: str) -> Path:
        """What the instance's supervisor last said of itself."""
        return self.runtime / name / "state.json"

    def secrets(self, name: str) -> Path:
        """The engine's own file with the API key, mode 0600."""
        return self.runtime / name / "secrets.yaml"

    def starts(self, name: str) -> Path:
        """How long the phases of earlier starts took."""
        return self.state / "starts" / name / "starts.jsonl"


@dataclass(frozen=True, slots=True)
class Store:
    """The files under `paths`; `clock` dates what is written."""

    paths: Paths
    clock: Clock

    @contextmanager
    def lock(self, why: str) -> Iterator[None]:
        """Hold the host-wide lock, so that changes happen one after another.

        The kernel lets go of it when its holder dies, however that happens. Raises Busy naming who holds it, why and
        since when.
        """
        with os.fdopen(_open(self.paths.lock, os.O_RDWR | os.O_CREAT), "r+b", buffering=0) as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise _busy(file.read()) from None
            try:
                # The lock holds without its face: a full /run must not keep anybody from a teardown.
                with suppress(OSError):
                    file.truncate(0)
                    file.write(self._ourselves(why).encode())
                yield
            finally:
                file.truncate(0)
                # Closing alone would not do while a child is between fork and exec, with the file open as well.
                fcntl.flock(file, fcntl.LOCK_UN)

    def _ourselves(self, why: str) -> str:
        said = {"who": _who(), "why": why, "since": self.clock.wall(), "command": shlex.join(sys.argv)}
        return json.dumps({**said, **asdict(procs.ourselves())})

    def releases(self) -> tuple[int, ...]:
        """The numbers of the releases kept, in ascending order."""
        return tuple(sorted(int(file.parent.name) for file in self.paths.releases.glob("[0-9]*/release.json")))

    def release(self, number: int) -> Release:
        """A release that was kept. Raises Problem when it is not there, or no dsv4ctl like this one wrote it."""
        text = read(file := self._release_folder(number) / "release.json")
        try:
            return record.load_release(text)
        except Problem as problem:
            raise Problem(f"cannot use {file}: {problem}", hint=problem.hint) from None

    def current(self) -> tuple[int, Release] | None:
        """The release kept last, with its number; None: none was kept, or the last one cannot be read.

        What runs is read from the host and not from here, so an unreadable file must stop neither deploy nor teardown.
        """
        numbers = self.releases()
        with suppress(Problem):
            return (numbers[-1], self.release(numbers[-1])) if numbers else None
        return None

    def keep(self, release: Release) -> int:
        """Keep a release and return its number: the next one, or the current one's when that has the same digest."""
        current = self.current()
        if current and current[1].digest == release.digest:
            return current[0]
        # A folder without release.json is left by a writer that was killed; its number is not used again.
        taken = [int(folder.name) for folder in self.paths.releases.glob("[0-9]*")]
        number = max(taken, default=0) + 1
        write_atomic(self._release_folder(number) / "release.json", record.dump_release(release), mode=0o600)
        return number

    def write_verdict(self, number: int, verdict: Mapping[str, object]) -> None:
        """Put beside a release what came of it."""
        write_atomic(self._release_folder(number) / "verdict.json", json.dumps(verdict, indent=2) + "\n", mode=0o644)

    def _release_folder(self, number: int) -> Path:
        return self.paths.releases / f"{number:04}"

    def audit(self, what: str, details: Mapping[str, object]) -> None:
        """Add one line to the audit trail: when, who, what and `details`; on disk when this returns."""
        line = {"at": self.clock.wall(), "who": _who(), "pid": os.getpid(), "what": what, **details}
        file = _open(self.paths.audit, os.O_RDWR | os.O_CREAT | os.O_APPEND)
        with _explained(self.paths.audit, "write"), os.fdopen(file, "r+b", buffering=0) as trail:
            # The last writer may have been stopped within its line; ours begins on its own all the same.
            size = trail.seek(0, os.SEEK_END)
            broken = size > 0 and os.pread(trail.fileno(), 1, size - 1) != b"\n"
            trail.write((b"\n" if broken else b"") + json.dumps(line, ensure_ascii=False).encode() + b"\n")
            os.fsync(trail.fileno())

    def cached_engine(self, key: str) -> EngineBuild | None:
        """The engine build remembered under `key`; None: none, or the file is not one of ours."""
        try:
            found = json.loads(self._engine_file(key).read_text())
            build = found["build"]
            build |= {"launch": tuple(build["launch"]), "options": frozenset(build["options"])}
            build["choices"] = {option: tuple(values) for option, values in build["choices"].items()}
            return EngineBuild(**build) if found["key"] == key else None
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None  # a cache: what cannot be read is asked for again

    def cache_engine(self, key: str, build: EngineBuild) -> None:
        """Remember an engine build under `key`."""
        values = {**asdict(build), "options": sorted(build.options)}
        write_atomic(self._engine_file(key), json.dumps({"key": key, "build": values}, indent=1), mode=0o644)

    def _engine_file(self, key: str) -> Path:
        import hashlib  # noqa: PLC0415 -- loads OpenSSL, which a supervisor that only writes files need not carry

        return self.paths.engines / f"{hashlib.sha256(key.encode()).hexdigest()[:16]}.json"


def write_atomic(path: Path, text: str, mode: int) -> None:
    """Put `text` into a file so that a reader, or a reader after a power cut, finds the old text or the new one, whole.

    Makes missing folders. Raises Problem and leaves the old file, and nothing else, when it cannot.
    """
    new = path.with_name(f".{path.name}.new")
    with _explained(path, "write"):
        _make_folder(path.parent)
        # One name for all writers: what a killed one left is replaced by the next, not heaped up.
        new.unlink(missing_ok=True)
        try:
            _write_whole(new, text.encode(), mode)
            new.replace(path)
        except BaseException:
            new.unlink(missing_ok=True)
            raise
        _sync_folder(path.parent)


def read(path: Path) -> str:
    """The whole text of a file. Raises Problem when it cannot be read."""
    with _explained(path, "read"):
        return path.read_text(encoding="utf-8")


def _write_whole(path: Path, content: bytes, mode: int) -> None:
    # Made with no rights for others, so that a secret is never readable; the umask has no say at the end.
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(file, "wb") as out:
        out.write(content)
        out.flush()
        os.fchmod(file, mode)
        os.fsync(file)


def _make_folder(folder: Path) -> None:
    """Make a folder and its parents readable for all, whatever the umask: units of other users read there."""
    if folder.is_dir():
        return
    _make_folder(folder.parent)
    folder.mkdir(exist_ok=True)
    folder.chmod(0o755)
    _sync_folder(folder.parent)


def _sync_folder(folder: Path) -> None:
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    os.fsync(opened)
    os.close(opened)


def _open(path: Path, flags: int) -> int:
    with _explained(path, "open"):
        _make_folder(path.parent)
        return os.open(path, flags, 0o644)


@contextmanager
def _explained(path: Path, verb: str) -> Iterator[None]:
    """Turn what the operating system says into a Problem that names the file and what to do."""
    try:
        yield
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise Problem(f"cannot {verb} {path}: {why}", hint=HINTS.get(error.errno or 0, "")) from error
    except UnicodeDecodeError as error:
        raise Problem(f"cannot {verb} {path}: it is not UTF-8 text: {error.reason}") from error


def _busy(held: bytes) -> Busy:
    """Name the holder of the lock from what it wrote into the file, unless that was written by one that is gone."""
    try:
        by = json.loads(held)
        holder = Identity(by["boot_id"], by["pid"], by["start_ticks"])
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(by["since"]))
        words = f"{by['who']} holds the lock for {by['why']} since {since} (pid {holder.pid}: {by['command']})"
    except (ValueError, KeyError, TypeError):
        holder, words = None, ""
    if holder is None or not procs.alive(holder):
        return Busy("cannot go on: another dsv4ctl has just taken the lock and not said yet why", hint="try again")
    return Busy(f"cannot go on: {words}", hint=f"wait for it, or interrupt it (kill -INT {holder.pid}) and try again")


def _who() -> str:
    """The person behind the command: whoever called sudo, else the user we run as."""
    try:
        return os.environ.get("SUDO_USER") or pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())
