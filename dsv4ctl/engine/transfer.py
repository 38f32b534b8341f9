"""How a prefill hands its KV to a decode: what each way of it needs, and what it does not survive. Pure."""

from collections.abc import Mapping, Sequence
from itertools import pairwise

# Module that hands KV over -> the package that brings it.
PACKAGES: Mapping[str, str] = {"nixl": "nixl", "mooncake": "mooncake-transfer-engine"}
OPTION = "--disaggregation-transfer-backend"


def module(backend: str) -> str:
    """The Python module behind a backend: mooncake_tcp is mooncake over another transport."""
    return backend.partition("_")[0]


def backend_of(argv: Sequence[str]) -> str:
    """The backend in an engine's argv, in two words as `engine.sglang` writes it; '' where there is none."""
    return next((value for name, value in pairwise(argv) if name == OPTION), "")


def together(backend: str, version: str) -> str:
    """Why both halves of a pair are restarted when one is, in words; '' where the other half survives it.

    nixl keeps agents by address: in 0.5.18 a prefill dies of a segmentation fault when the decode restarts at the same
    address (smg-project/smg #2382 and #2503), and requests stall after a prefill was replaced behind one
    (sgl-project/sglang #34289). The fix, an id of each instance, is in no wheel up to 0.5.23, and none later is known
    to have it. Over mooncake either half came back alone with the real 0.5.23 (tests/contract/test_pair.py).
    """
    if module(backend) != "nixl":
        return ""
    return (
        f"nixl in SGLang {version} remembers the half that was there before: a prefill can crash, or requests hang, "
        "unless both halves are restarted (smg #2503, sglang #34289)"
    )
