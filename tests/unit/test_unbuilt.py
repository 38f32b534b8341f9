"""A mode that cannot be proved yet is refused before anything is looked at, let alone touched."""

from pathlib import Path

import pytest

from dsv4ctl import lifecycle
from dsv4ctl.host import Host
from dsv4ctl.problems import BadConfig, Status
from tests import releases


@pytest.mark.parametrize("mode", ["pd", "dual-tp4"])
def test_a_mode_that_cannot_be_proved_yet_is_not_deployed(mode: str, tmp_path: Path) -> None:
    with pytest.raises(BadConfig, match=f"cannot deploy: mode {mode} is not built yet") as caught:
        lifecycle.deploy(Host.real(tmp_path), releases.spec(mode), lambda _: None)
    assert caught.value.status is Status.USAGE
    assert not list(tmp_path.iterdir())
