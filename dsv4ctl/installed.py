"""What of ours is on this host: unit files, the instances they are for, and what their supervisors said last.

Read from the files that systemd reads, so that it is the truth even where the kept releases are gone. Changes nothing.
"""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from dsv4ctl import generations, record, store, systemd, unitfile
from dsv4ctl.generations import Kept
from dsv4ctl.host import Host
from dsv4ctl.model import ActiveState, Instance, Role, RunState, Unit
from dsv4ctl.names import ADOPTED_SCOPES, INSTANCE_FOLDER, MARKER, SERVICES, SLICE, TARGET, UNIT_FOLDER, instance_of
from dsv4ctl.problems import NotReady, Problem, WrongOption
from dsv4ctl.unitfile import Settings

_INSTANCE_FILE = re.compile(re.escape(INSTANCE_FOLDER) + r"/[\w.-]+\.json")


def instances(host: Host) -> tuple[Instance, ...]:
    """The instances whose unit files are here, engines before the router.

    Their argv stands in the unit only and is left empty.
    """
    found = (one for one in _described(host).values() if isinstance(one, Instance))
    return tuple(sorted(found, key=lambda one: (tuple(Role).index(one.role), one.name)))


def former(host: Host, running: Mapping[str, str]) -> tuple[Instance, ...]:
    """What still runs in our units for another instance than the one that is installed now: a deploy was cut short.

    `running`: unit -> digest of what runs in it. One whose file is gone is left out.
    """
    now = {one.unit: one.digest for one in instances(host)}
    other = ((unit, digest) for unit, digest in running.items() if digest and now.get(unit) != digest)
    found = (_record(host.paths.instances / f"{instance_of(unit)}-{digest}.json") for unit, digest in other)
    return tuple(one for one in found if isinstance(one, Instance))


def chosen(host: Host, roles: Iterable[str]) -> tuple[Instance, ...]:
    """The installed instances of some roles, or of all where none is named; an instance's own name is a role as well.

    Raises Problem where nothing is installed, WrongOption where a role is not; NotReady where there is something of
    which nothing is written down.
    """
    here = instances(host)
    if not here:
        raise _nothing(host)
    return of_roles(here, roles)


def of_roles(here: tuple[Instance, ...], roles: Iterable[str]) -> tuple[Instance, ...]:
    """Those of some roles, names or units, or all where none is named. Raises WrongOption that says which there are."""
    wanted = tuple(role.removeprefix("dsv4-").removesuffix(".service") for role in roles)
    known = tuple(dict.fromkeys(word for one in here for word in (str(one.role), one.name)))
    if missing := [role for role in wanted if role not in known]:
        there = f"installed are {', '.join(known)}" if known else "nothing is installed"
        raise WrongOption(f"cannot find {', '.join(missing)}: {there}", hint="dsv4ctl status   shows them")
    return tuple(one for one in here if not wanted or one.role in wanted or one.name in wanted)


def _nothing(host: Host) -> Problem:
    """What to say where no instance is known: units that have lost their files, adopted engines, or really nothing."""
    if lost := faults(host):
        why = "; ".join(f"nothing is known of {unit}: {said}" for unit, said in lost.items())
        return NotReady(f"cannot go on: {why}", hint=f"{anew(host, next(iter(lost)))}   writes it anew")
    scopes = systemd.show((ADOPTED_SCOPES,)) if systemd.is_running() else {}
    if there := [name for name, unit in sorted(scopes.items()) if unit.active is ActiveState.ACTIVE]:
        why = f"nothing is deployed here, and no release knows what was started by hand: {', '.join(there)}"
        return NotReady(f"cannot go on: {why}", hint="dsv4ctl deploy, with --config FILE where adopt --out wrote one")
    return Problem("cannot go on: nothing is deployed here", hint="dsv4ctl deploy --mode single-tp4")


def anew(host: Host, unit: str) -> str:
    """What to type to have the files of a unit as they were: not a deploy, which goes by the config and by its options,
    while a release knows the unit."""
    path = f"{UNIT_FOLDER}/{unit}"
    knows = (
        one.number
        for one in host.store.releases.backwards()
        if any(file.path == path for file in one.generation.release.files)
    )
    return next((f"dsv4ctl rollback {number}" for number in knows), "dsv4ctl deploy")


def release(host: Host, kept: Iterable[Kept] | None = None) -> Kept | None:
    """The kept release that is installed; None: nothing is, or none that is known. `kept`: read already."""
    here = frozenset(one.digest for one in instances(host))
    if kept is not None:
        return generations.installed(kept, here)
    # The youngest is nearly always the one, and reading all of them takes longer than all else that status does.
    return next((one for one in host.store.releases.backwards() if generations.installed((one,), here)), None)


def faults(host: Host) -> dict[str, str]:
    """Unit -> why it cannot be told what it is for. Its ports and GPUs are unknown then; it can be stopped anyway."""
    return {unit: found for unit, found in _described(host).items() if isinstance(found, str)}


def _described(host: Host) -> dict[str, Instance | str]:
    return {name: _instance(host, name) for name in services(host)}


def _instance(host: Host, unit: str) -> Instance | str:
    match = _INSTANCE_FILE.search(text_of(host.paths.units / unit) or "")
    if match is None:
        return f"{host.paths.units / unit} names no file of ours"
    return _record(host.paths.under(match.group()))


def _record(path: Path) -> Instance | str:
    try:
        text = store.read(path)
    except Problem as unread:
        return str(unread)
    try:
        return record.load_instance(text, ())
    except Problem as wrong:
        return f"cannot read {path}: {wrong}"


def services(host: Host) -> tuple[str, ...]:
    """The names of the service files that we wrote: a name alone makes nothing ours."""
    found = {path.name: text_of(path) for path in host.paths.units.glob(SERVICES)}
    return tuple(sorted(name for name, text in found.items() if text and MARKER in text))


def text_of(path: Path) -> str | None:
    """The text of a file, whatever bytes somebody put into it; None when it is no file that can be read."""
    try:
        return path.read_text(errors="replace")
    except OSError:
        return None


def files(host: Host, besides: frozenset[str] = frozenset()) -> dict[str, str]:
    """Path -> text of every unit file and instance file of ours, and of those `besides` that are here."""
    names = {f"{UNIT_FOLDER}/{name}" for name in (*services(host), TARGET, SLICE)}
    names |= {f"{INSTANCE_FOLDER}/{p.name}" for p in host.paths.instances.glob("*.json")}
    there = {name: text_of(host.paths.under(name)) for name in sorted(names | besides)}
    return {name: text for name, text in there.items() if text is not None}


def run_state(host: Host, name: str) -> RunState | None:
    """What the instance's supervisor said last; None when it never ran since boot or its file cannot be read."""
    try:
        return record.load_state(host.paths.run_state(name).read_text())
    except (OSError, UnicodeDecodeError, Problem):
        return None


def objections(unit: Unit) -> tuple[str, ...]:
    """What our lint says of a unit as systemd has loaded it, which `systemd-analyze verify` lets pass."""
    texts = _loaded(unit)
    return tuple(f"{unit.name}: {found}" for found in (unitfile.lint(*texts) if texts else ()))


def settings(unit: Unit) -> Settings:
    """What a unit as systemd has loaded it asks for, its drop-ins included."""
    return unitfile.parse(_loaded(unit))


def _loaded(unit: Unit) -> tuple[str, ...]:
    """The texts of a unit's files that can be read, in systemd's order."""
    paths = [Path(path) for path in (unit.fragment, *unit.drop_ins) if path]
    return tuple(text for path in paths if (text := text_of(path)) is not None)
