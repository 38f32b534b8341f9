"""What an engine will need on this host, looked at before anything is stopped: the model, its user, its key."""

import os
import pwd
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from dsv4ctl import child, needs
from dsv4ctl.engine import sglang
from dsv4ctl.model import HostSpec, Instance, Machine
from dsv4ctl.problems import BadConfig, CannotRun, EngineMissing, Problem

LOOK_TIMEOUT_S = 30.0


def refusals(spec: HostSpec, machine: Machine) -> tuple[Problem, ...]:
    """Why engines of `spec` would not get as far as loading; everything at once."""
    return (*_model(spec), *_user(spec, machine), *_key(spec))


def misses(instances: Iterable[Instance]) -> tuple[str, ...]:
    """What engines on GPUs may yet miss, said before their model is loaded; each thing once."""
    said = (words for one in instances if one.gpus for words in needs.missing_tools(dict(one.environment)))
    return tuple(dict.fromkeys(said))


def _model(spec: HostSpec) -> Iterator[Problem]:
    model = spec.engine.model
    if model is not None and Path(model).is_absolute() and not Path(model).exists():
        yield EngineMissing(
            f"cannot deploy: the model {model} is not there",
            hint="dsv4ctl init --print   shows the checkpoints of this host",
        )


def _user(spec: HostSpec, machine: Machine) -> Iterator[Problem]:
    """The user must exist, run both interpreters, and read the model."""
    if spec.user is None:
        return
    try:
        user = pwd.getpwnam(spec.user)
    except KeyError:
        yield BadConfig((f"cannot deploy: this host has no user {spec.user}",), hint="useradd --system " + spec.user)
        return
    wanted = (
        ("run", "-x", machine.supervisor[0]),
        ("run", "-x", spec.engine.python),
        *((("run", "-x", spec.router.python),) if machine.router is not None else ()),
        ("read", "-r", spec.engine.model),
    )
    for verb, test, path in wanted:
        if path and Path(path).exists() and not _may(user, test, path):
            yield EngineMissing(
                f"cannot deploy: user {spec.user} may not {verb} {path}",
                hint=f"namei -l {path}   shows which folder on the way forbids it",
            )


def _may(user: pwd.struct_passwd, test: str, path: str) -> bool:
    """Whether the user may, asked of the kernel as that user; True where we may not become it."""
    if os.geteuid() != 0:
        return True
    become = ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--init-groups"]
    try:
        return child.run([*become, "test", test, path], timeout_s=LOOK_TIMEOUT_S, check=False).status == 0
    except CannotRun:
        return True


def _key(spec: HostSpec) -> Iterator[Problem]:
    """One key on one line that the engine can take. It is never shown."""
    if spec.api_key_file is None:
        return
    try:
        # A device or a pipe gives no key and might never end.
        if not stat.S_ISREG(Path(spec.api_key_file).stat().st_mode):
            yield BadConfig(
                (f"cannot use {spec.api_key_file} as API key file: it is no file",), hint="set api_key_file"
            )
            return
        sglang.secrets_yaml(Path(spec.api_key_file).read_text().strip())
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        yield BadConfig((f"cannot read the API key file {spec.api_key_file}: {why}",), hint="set api_key_file")
    except UnicodeDecodeError:
        yield BadConfig((f"cannot use the API key in {spec.api_key_file}: it is not text",), hint="set api_key_file")
    except BadConfig as problem:
        yield problem
