"""What must hold before an engine is started: free ports and GPUs, room in /dev/shm; engine, model and key."""

import os
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

from dsv4ctl import child, free, gpus, needs, procs, shared, shm, sockets, threads
from dsv4ctl.engine import router, transfer
from dsv4ctl.model import Instance, Keeper, Role, SuperviseExit
from dsv4ctl.problems import CannotRun, Problem
from dsv4ctl.supervise import gpugate, look, territory
from dsv4ctl.supervise.gpugate import Occupied
from dsv4ctl.supervise.outcome import Failed

# find_spec of a top-level package looks for its folder and imports nothing: an import of sglang takes 8 s.
_MISSING = "import importlib.util as u, sys; print(*(p for p in sys.argv[1:] if u.find_spec(p) is None))"
# An interpreter starts in 0.1 s; one on a network file system that nobody has touched since boot takes its time.
PYTHON_TIMEOUT_S = 60.0
CREDENTIAL = "api-key"
LEFT_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Admitted:
    """The gate is open. `key` is the engine's API key, '' when it has none; `notes` is what was
    removed for it, and what may yet be missed."""

    key: str
    notes: tuple[str, ...] = ()


def check(instance: Instance, environment: Mapping[str, str]) -> Admitted | Occupied | Failed:
    """Look at everything a start needs; the first thing that is wrong closes the gate. Occupied: it is to be waited."""
    key = read_key(instance, environment)
    is_engine = instance.role is not Role.ROUTER
    model = _model(instance.model) if is_engine else None
    # The query comes up while all else is looked at.
    with gpus.Query() if instance.gpus else nullcontext() as query:
        refusals = (
            _leftovers(instance, environment),
            _ports(instance),
            _engine(instance.argv, environment),
            model,
            key,
        )
        failed = next((found for found in refusals if isinstance(found, Failed)), None)
        waits = next((found for found in refusals if isinstance(found, Occupied)), None)
        if closed := failed or gpugate.check(instance, query) or waits:
            return closed
    # Last, for it changes something: nothing is removed for a start that does not come.
    removed = _shared_memory(instance)
    if isinstance(removed, Failed):
        return removed
    tools = needs.missing_tools(environment) if instance.gpus else ()
    return Admitted(str(key), (*removed, *tools, *(needs.closed_folders(environment) if is_engine else ())))


def read_key(instance: Instance, environment: Mapping[str, str]) -> str | Failed:
    """The API key from systemd's credential; '' when the instance has none. Never shown."""
    if instance.api_key_file is None:
        return ""
    folder = environment.get("CREDENTIALS_DIRECTORY", "")
    try:
        key = (Path(folder) / CREDENTIAL).read_text().strip() if folder else None
    except (OSError, UnicodeDecodeError) as error:
        return _missing(f"the API key cannot be read: {error}", f"look at {instance.api_key_file}")
    if key is None:
        return _missing("there is an API key file, and systemd gave us no credential", "start it through its unit")
    if not key or len(key.splitlines()) != 1:
        return _missing(f"{instance.api_key_file} must hold one key on one line", f"look at {instance.api_key_file}")
    return key


def _leftovers(instance: Instance, environment: Mapping[str, str]) -> Failed | Occupied | None:
    """Whoever is in our unit already. Those that have been killed are waited for, a driver call may hold them; others
    survived a stop by the unit's settings, so they would be there again next time."""
    inside = procs.cgroup_pids(territory.claim(instance.unit, environment))
    ours = {os.getpid(), *(one.pid for one in procs.descendants(os.getpid()))}
    left = [one for pid in inside if pid not in ours and (one := procs.identity(pid)) and procs.alive(one)]
    if not left:
        return None
    shown = ", ".join(map(look.one, left[:LEFT_SHOWN])) + (", …" if len(left) > LEFT_SHOWN else "")
    said = f"{len(left)} of an earlier run are left in {instance.unit}: {shown}"
    if all(threads.is_killed(one.pid) for one in left):
        return Occupied(said, keeper="the kernel", exit=SuperviseExit.LEFT_OVER)
    advice = f"dsv4ctl teardown   ends them; systemctl cat {instance.unit}   shows what spared them, KillMode= say"
    return _missing(said, advice)


def _ports(instance: Instance) -> Failed | Occupied | None:
    """Bind every port for an instant. The rendezvous listens on all addresses, whatever the host is."""
    passing: Occupied | None = None
    for job, port in instance.ports:
        try:
            seen = sockets.view("0.0.0.0" if job == "rendezvous" else instance.host, port)  # noqa: S104 -- looked at
        except Problem as problem:
            return _missing(f"nobody can tell who holds port {port}: {problem}", problem.hint)
        if seen.kept_by is Keeper.KERNEL:
            passing = Occupied(f"{job} port {port}: {seen.blocked}", keeper="the kernel", exit=SuperviseExit.PORT)
        elif seen.blocked:
            who = "".join(map(look.suspects, seen.holders))
            words = f"cannot start: {job} port {port} is taken: {seen.blocked}{who}"
            advice = ", or ".join(filter(None, (free.advice_about(seen), "deploy on another port")))
            return Failed(exit=SuperviseExit.PORT, words=words, advice=advice)
    return passing


def _shared_memory(instance: Instance) -> tuple[str, ...] | Failed:
    """Room in /dev/shm, once what dead engines of our user left there is removed; each removal in words."""
    found = [segment for segment in shm.leftovers((os.geteuid(),)) if shm.remove(segment)]
    removed = tuple(f"removed {segment.path}: {free.why_left(segment)}" for segment in found)
    if why := shared.lacking((instance,), shm.space(())):
        said = f" ({'; '.join(removed)})" if removed else ""
        return _missing(f"{why}{said}", shared.ADVICE)
    return removed


def _engine(argv: Sequence[str], environment: Mapping[str, str]) -> Failed | None:
    program = Path(argv[0])
    if not program.is_absolute() or not os.access(program, os.X_OK) or program.is_dir():
        return _missing(f"{program} is not an executable file for {_user()}", "set engine.python, then deploy")
    return _packages(program, argv, environment)


def _packages(python: Path, argv: Sequence[str], environment: Mapping[str, str]) -> Failed | None:
    """Whether the interpreter runs and finds what its program needs; one that is given no module is no Python engine.

    The engine itself misses the module that hands KV over after its weights are loaded, minutes later.
    """
    if not (wanted := _wanted(argv)):
        return None
    try:
        found = child.run([python, "-c", _MISSING, *wanted], timeout_s=PYTHON_TIMEOUT_S, env=environment, check=False)
    except CannotRun as problem:
        return _missing(str(problem), "set engine.python, then deploy")
    if found.status:
        return _missing(f"{python} does not run: {child.why(found)}", "set engine.python, then deploy")
    if not (lacking := found.stdout.split()):
        return None
    packages = " ".join(transfer.PACKAGES.get(name, name.replace("_", "-")) for name in lacking)
    return _missing(
        f"{python} has no package {' and no package '.join(lacking)}", f"{python} -m pip install {packages}"
    )


def _wanted(argv: Sequence[str]) -> tuple[str, ...]:
    """The top-level packages that `PYTHON -m MODULE …` needs; with a key the router is a program of ours instead."""
    match argv:
        case [_, "-c", router.WITH_KEY, *_]:
            return (router.PACKAGE,)
        case [_, "-m", module, *_]:
            return (module.partition(".")[0], *filter(None, (transfer.module(transfer.backend_of(argv)),)))
    return ()


def _model(model: str) -> Failed | None:
    """A folder or file must be there and readable; a name without a leading slash is the engine's to resolve."""
    path = Path(model)
    if not path.is_absolute():
        return None
    try:
        path.stat()
    except OSError as error:
        return _missing(f"the model {model} is not there: {(error.strerror or str(error)).lower()}", "set engine.model")
    readable = os.R_OK | os.X_OK if path.is_dir() else os.R_OK
    return None if os.access(path, readable) else _missing(f"the model {model} cannot be read by {_user()}", "chmod it")


def _missing(why: str, advice: str) -> Failed:
    return Failed(exit=SuperviseExit.MISSING, words=f"cannot start: {why}", advice=advice)


def _user() -> str:
    return f"user id {os.geteuid()}"
