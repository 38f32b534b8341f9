"""The texts that come with the package."""

from pathlib import Path

import pytest

from dsv4ctl import resources
from dsv4ctl.problems import Problem

CHECKOUT = Path(__file__).parent.parent.parent


@pytest.mark.parametrize("folder", ["templates", "units"])
def test_every_text_of_the_checkout_is_found_by_its_name(folder: str) -> None:
    texts = [path for path in (CHECKOUT / folder).iterdir() if path.is_file()]
    find = resources.template if folder == "templates" else resources.unit

    assert texts
    assert {path.name: find(path.name) for path in texts} == {path.name: path.read_text() for path in texts}


def test_a_text_that_is_nowhere_is_told_with_the_places() -> None:
    with pytest.raises(Problem, match=r"cannot find templates/none\.j2 in .*dsv4ctl/templates/none\.j2 or ") as caught:
        resources.template("none.j2")
    assert "pip install" in caught.value.hint
