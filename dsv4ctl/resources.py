"""The texts that come with the package: templates and static units, from the installed wheel or from a checkout."""

from importlib.resources import files
from pathlib import Path

from dsv4ctl.problems import Problem

# In a wheel the folders lie within the package; in a checkout, and so in an editable install, beside it.
PACKAGE = files("dsv4ctl")
CHECKOUT = Path(__file__).parent.parent


def template(name: str) -> str:
    """The text of a template. Raises Problem when this installation has none of that name."""
    return _text("templates", name)


def unit(name: str) -> str:
    """The text of a unit that needs no rendering. Raises Problem when this installation has none of that name."""
    return _text("units", name)


def _text(folder: str, name: str) -> str:
    places = (PACKAGE / folder / name, CHECKOUT / folder / name)
    for place in places:
        if place.is_file():
            return place.read_text(encoding="utf-8")
    raise Problem(
        f"cannot find {folder}/{name} in {places[0]} or {places[1]}: this installation is not whole",
        hint="install it again: pip install --force-reinstall dsv4ctl",
    )
