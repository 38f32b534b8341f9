"""What of the host is no longer as a deploy left it: files, what systemd has loaded, what runs. Changes nothing."""

from collections.abc import Iterator

from dsv4ctl import dropins, installed, procs
from dsv4ctl.generations import Kept
from dsv4ctl.host import Host
from dsv4ctl.model import HostView, Instance, Unit
from dsv4ctl.names import RELEASE_VARIABLE, UNIT_FOLDER


def of(host: Host, instance: Instance, unit: Unit, kept: Kept | None) -> Iterator[str]:
    """How an installed instance has drifted, each in words.

    1. its process was started from other files than those that are there
    2. its unit file is not the one of its release: somebody edited it
    3. systemd has not read its files yet
    4. a drop-in changes it, as `systemctl edit` writes one, or will when systemd has read it
    """
    if unit.main_pid and (runs := procs.environment(unit.main_pid).get(RELEASE_VARIABLE, "")) != instance.digest:
        name = _name(host, runs)
        yield f"{unit.name} still runs {name}, its files say {instance.digest}{_number(kept)}: {_again(kept)}"
    if kept is not None and _differs(host, unit, kept):
        yield f"{unit.name} was edited since release {kept.number} wrote it: dsv4ctl plan   shows how"
    if unit.needs_reload:
        yield f"systemd has not read the changed {unit.name} yet: systemctl daemon-reload"
    yield from dropins.changes(host, unit)


def here(host: Host, view: HostView, kept: Kept | None) -> Iterator[str]:
    """The same of everything that is installed."""
    for instance in installed.instances(host):
        if unit := view.units.get(instance.unit):
            yield from of(host, instance, unit, kept)


def _differs(host: Host, unit: Unit, kept: Kept) -> bool:
    path = f"{UNIT_FOLDER}/{unit.name}"
    wrote = next((file.text for file in kept.generation.release.files if file.path == path), None)
    return wrote is not None and installed.text_of(host.paths.under(path)) != wrote


def _name(host: Host, digest: str) -> str:
    """The digest of an instance with the release that it belongs to, where that is kept."""
    if not digest:
        return "an unknown release"
    kept = (one for one in host.store.releases.all() if digest in (i.digest for i in one.generation.release.instances))
    return digest + _number(max(kept, key=lambda one: one.number, default=None))


def _again(kept: Kept | None) -> str:
    """What to type to have what is written down run."""
    return f"dsv4ctl rollback {kept.number}" if kept else "dsv4ctl deploy"


def _number(kept: Kept | None) -> str:
    return f" (release {kept.number})" if kept else ""
