"""Drop-ins of units that are there or about to be written, and what they make of them. Changes nothing.

Read from the folders that systemd looks into: of a unit that it has not loaded yet it shows none.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path, PurePath

from dsv4ctl import installed, unitfile
from dsv4ctl.host import Host
from dsv4ctl.model import HostView, Instance, Release, Unit
from dsv4ctl.names import UNIT_FOLDER
from dsv4ctl.problems import Problem

# The unit load path of the system manager, the first one first (systemd.unit(5)).
LOAD_PATH = (
    "/etc/systemd/system.control",
    "/run/systemd/system.control",
    "/run/systemd/transient",
    "/run/systemd/generator.early",
    UNIT_FOLDER,
    "/etc/systemd/system.attached",
    "/run/systemd/system",
    "/run/systemd/system.attached",
    "/run/systemd/generator",
    "/usr/local/lib/systemd/system",
    "/lib/systemd/system",
    "/usr/lib/systemd/system",
    "/run/systemd/generator.late",
)
# What decides who the main process is, whether it is heard, and what a stop ends.
DECIDING = ("ExecStart", "Type", "NotifyAccess", "KillMode")


def of(host: Host, unit: str) -> dict[Path, str]:
    """File -> text of every drop-in that systemd will read for a service, in its order; an empty one says nothing."""
    found: dict[str, Path] = {}
    for folder in _folders(unit):
        for file in host.paths.under(folder).glob("*.conf"):
            found.setdefault(file.name, file)
    texts = {found[name]: installed.text_of(found[name]) for name in sorted(found)}
    return {file: text for file, text in texts.items() if text}


def changes(host: Host, unit: Unit) -> Iterator[str]:
    """What changes an installed unit: what systemd has loaded, there or not any more, and what it has not read yet."""
    wait = "systemctl daemon-reload"
    for path in unit.drop_ins:
        gone = "" if host.paths.under(path).exists() else f", which is gone, and systemd does not know yet: {wait}"
        yield f"{unit.name} is changed by {path}{gone}"
    for file in _unread(of(host, unit.name), unit):
        yield f"{unit.name} will be changed by {file}, which systemd has not read yet: {wait}"


def told(host: Host, release: Release, view: HostView) -> Iterator[str]:
    """What will change the units of a release that are not installed yet, and what our lint says of any outcome."""
    here = {instance.unit for instance in installed.instances(host)}
    for instance in release.instances:
        found = of(host, instance.unit)
        if instance.unit not in here:
            waiting = _unread(found, view.units.get(instance.unit))
            yield from (f"{instance.unit} is changed by {file}" for file in waiting)
        if found:
            yield from (f"{instance.unit}: {said}" for said in unitfile.lint(_own(release, instance), *found.values()))


def refusals(host: Host, release: Release, starting: Iterable[Instance]) -> Iterator[Problem]:
    """Drop-ins that take the supervisor's place or its voice, or spare its engine: a start would prove nothing."""
    for instance in starting:
        found = of(host, instance.unit)
        if found and (why := unitfile.usurped(_own(release, instance), *found.values())):
            guilty = [file for file, text in found.items() if _decides(text)]
            yield Problem(
                f"cannot deploy {instance.unit}: {'; '.join(why)} ({', '.join(map(str, guilty))})",
                hint=_way_out(instance.unit, guilty),
            )


def _unread(found: Iterable[Path], unit: Unit | None) -> list[Path]:
    known = {PurePath(path).name for path in unit.drop_ins} if unit else set()
    return [file for file in found if file.name not in known]


def _folders(unit: str) -> Iterator[str]:
    """`dsv4-server-1.service.d`, `dsv4-server-.service.d`, `dsv4-.service.d` along the path, then `service.d`."""
    stem, _, kind = unit.rpartition(".")
    parts = stem.split("-")
    prefixes = ("-".join((*parts[:count], "")) for count in range(len(parts) - 1, 0, -1))
    names = (unit, *(f"{prefix}.{kind}" for prefix in prefixes))
    yield from (f"{place}/{name}.d" for place in LOAD_PATH for name in names)
    yield from (f"{place}/{kind}.d" for place in LOAD_PATH)


def _own(release: Release, instance: Instance) -> str:
    """The text of an instance's unit as the release has it."""
    path = f"{UNIT_FOLDER}/{instance.unit}"
    return next(file.text for file in release.files if file.path == path)


def _decides(text: str) -> bool:
    settings = unitfile.parse((text,))
    return any(entry.section == "Service" and entry.key in DECIDING for entry in settings.entries)


def _way_out(unit: str, guilty: list[Path]) -> str:
    """systemctl reverts what stands beside the unit itself; what holds for several units is somebody's own file."""
    if all(file.parent.name == f"{unit}.d" for file in guilty):
        return f"systemctl revert {unit}   removes its drop-ins; systemctl edit {unit}   changes them"
    return f"take that out of {' and '.join(map(str, guilty))}, then systemctl daemon-reload"
