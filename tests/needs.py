"""What a test needs that not every machine has: it is skipped where that is missing, with what to type."""

from pathlib import Path

import pytest

from dsv4ctl.rehearsal import router


def the_router() -> Path:
    """The folder of the real sglang-router."""
    found = router.find()
    if found is None:
        pytest.skip("needs sglang-router 0.3.2; try: .ci/prepare router")
    return found
