"""What of ours is on this host: unit files, the instances they are for, and what their supervisors said last.

Read from the files that systemd reads, so that it is the truth even where the kept releases are gone. Changes nothing.
"""

import re
from pathlib import Path

from dsv4ctl import record, unitfile
from dsv4ctl.host import Host
from dsv4ctl.model import Instance, RunState, Unit
from dsv4ctl.names import INSTANCE_FOLDER, SERVICES, SLICE, TARGET, UNIT_FOLDER
from dsv4ctl.problems import Problem

_INSTANCE_FILE = re.compile(re.escape(INSTANCE_FOLDER) + r"/[\w.-]+\.json")


def instances(host: Host) -> tuple[Instance, ...]:
    """The instances whose unit files are here. Their argv stands in the unit only and is left empty."""
    found = []
    for name in services(host):
        match = _INSTANCE_FILE.search((host.paths.units / name).read_text())
        if match and (path := host.paths.under(match.group())).exists():
            found.append(record.load_instance(path.read_text(), ()))
    return tuple(found)


def services(host: Host) -> tuple[str, ...]:
    """The names of our service files."""
    return tuple(sorted(p.name for p in host.paths.units.glob(SERVICES)))


def files(host: Host, besides: frozenset[str] = frozenset()) -> dict[str, str]:
    """Path -> text of every unit file and instance file of ours, and of those `besides` that are here."""
    names = {f"{UNIT_FOLDER}/{name}" for name in (*services(host), TARGET, SLICE)}
    names |= {f"{INSTANCE_FOLDER}/{p.name}" for p in host.paths.instances.glob("*.json")}
    there = {name: host.paths.under(name) for name in sorted(names | besides)}
    return {name: path.read_text() for name, path in there.items() if path.is_file()}


def run_state(host: Host, name: str) -> RunState | None:
    """What the instance's supervisor said last; None when it never ran since boot or its file cannot be read."""
    try:
        return record.load_state(host.paths.run_state(name).read_text())
    except (OSError, Problem):
        return None


def objections(unit: Unit, text: str | None = None) -> tuple[str, ...]:
    """What our lint says of a unit with its drop-ins, which `systemd-analyze verify` lets pass. `text`: the unit's own
    text when it is about to be written; else what systemd has loaded is read."""
    files_ = [Path(path) for path in (unit.fragment if text is None else "", *unit.drop_ins) if path]
    texts = (*([text] if text is not None else []), *(path.read_text() for path in files_ if path.is_file()))
    return tuple(f"{unit.name}: {found}" for found in (unitfile.lint(*texts) if texts else ()))
