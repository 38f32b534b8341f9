"""What a plan stands on, as it is on this host now. Changes nothing."""

from collections.abc import Iterable
from pathlib import Path

from dsv4ctl import installed
from dsv4ctl.generations import Kept
from dsv4ctl.model import GpuView, Unit
from dsv4ctl.savedplan import Ground, LoadedUnit, loaded


def of(digest: str, kept: Kept | None, units: Iterable[Unit], view: GpuView) -> Ground:
    """What a plan stands on, to be compared later; units as systemd has loaded them, with their drop-ins."""
    return Ground(
        digest=digest,
        current=kept.number if kept else None,
        driver=view.driver,
        gpus=tuple((gpu.index, gpu.uuid) for gpu in view.gpus),
        units=tuple(_loaded(unit) for unit in sorted(units, key=lambda unit: unit.name) if unit.fragment),
    )


def _loaded(unit: Unit) -> LoadedUnit:
    texts = ((path, installed.text_of(Path(path))) for path in (unit.fragment, *unit.drop_ins))
    return LoadedUnit(
        name=unit.name,
        files=tuple(loaded(path, text) for path, text in texts if text is not None),
        waits=unit.needs_reload,
    )
