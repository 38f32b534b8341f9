"""A booted private machine as a value: run in it, look into it, write its files. Knows not how it was booted."""

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from dsv4ctl import child
from dsv4ctl.problems import CannotRun
from dsv4ctl.rehearsal import cgroup

ENTER = ("--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup")

# The search path of any host without the folders of its distribution: no unit of this host is known inside.
UNIT_PATH = ":".join(
    (
        "/etc/systemd/system.control",
        "/run/systemd/system.control",
        "/run/systemd/transient",
        "/etc/systemd/system",
        "/run/systemd/system",
    )
)
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A booted private machine. `pid`: its first process in the host's numbers; `group`: its cgroup on the host."""

    pid: int
    group: Path

    @property
    def root(self) -> Path:
        """The machine's root folder, for reading and writing its files from here."""
        return Path(f"/proc/{self.pid}/root")

    def run(
        self,
        argv: Sequence[str | Path],
        *,
        timeout_s: float,
        check: bool = True,
        env: Mapping[str, str] | None = None,
        input_text: str = "",
    ) -> child.Done:
        """Run a program inside to its end, as root in a login session. Raises CannotRun as child.run does."""
        words = tuple(str(word) for word in argv)
        done = child.run(self.inside(words, env), timeout_s=timeout_s, input_text=input_text, check=False)
        if check and done.status:
            raise CannotRun(f"cannot run `{shlex.join(words)}` in the private machine: {child.why(done)}")
        return replace(done, argv=words)

    def popen(self, argv: Sequence[str | Path], *, env: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
        """Start a program inside with pipes; whoever starts it ends it, at the latest with the machine."""
        pipe = subprocess.PIPE
        return subprocess.Popen(
            self.inside(argv, env), stdin=pipe, stdout=pipe, stderr=pipe, text=True, start_new_session=True
        )

    def stream(self, argv: Sequence[str | Path]) -> Iterator[str]:
        """Run a program inside and yield its lines as they come, stderr's too. Raises CannotRun when it fails."""
        return child.stream(self.inside(("sh", "-c", 'exec "$@" 2>&1', "sh", *argv)))

    def shell(self) -> int:
        """Give the terminal to a shell inside; returns its exit status."""
        shell = shutil.which("bash") or "/bin/sh"
        return subprocess.call(self.inside((shell,), {"TERM": os.environ.get("TERM", "dumb")}))

    def write(self, path: str, text: str, *, mode: int = 0o644) -> None:
        """Write a file of the machine, folders above it included."""
        file = self.root / path.removeprefix("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        file.chmod(mode)

    def image(self, file: Path) -> Path:
        """Archive the machine's disk as it is at this moment, as a power cut would leave it; returns the file."""
        folder = str(self.root / "run/written")
        child.run(
            ("tar", "--create", "--xattrs", "--xattrs-include=*", f"--file={file}", f"--directory={folder}", "."),
            timeout_s=60,
        )
        return file

    def end_session(self) -> None:
        """Kill whatever was started from outside and still runs inside; the units are systemd's and stay."""
        cgroup.kill(self.group / cgroup.SESSION)

    def inside(self, argv: Sequence[str | Path], env: Mapping[str, str] | None = None) -> tuple[str, ...]:
        """The command that runs `argv` inside: joins the session, enters the namespaces, takes a fresh environment."""
        environment = {
            "PATH": f"{Path(sys.executable).parent}:{PATH}",
            "HOME": "/root",
            "USER": "root",
            **child.LANGUAGE,
            "SYSTEMD_UNIT_PATH": UNIT_PATH,
            **(env or {}),
        }
        session = str(self.group / cgroup.SESSION / "cgroup.procs")
        join = ("sh", "-c", 'echo 0 >"$0" && exec "$@"', session)
        enter = ("nsenter", f"--target={self.pid}", *ENTER, "--", "env", "-i")
        variables = (f"{name}={value}" for name, value in environment.items())
        return (*join, *enter, *variables, *map(str, argv))
