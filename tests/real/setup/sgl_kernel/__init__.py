"""Test-only stand-in for sglang-kernel, which has no CPU wheel.

Names ending in _cpu, which SGLang imports at module level, resolve to placeholders; the one that a Llama forward on the
torch_native path calls does real work.
"""

from collections.abc import Callable
from typing import Any, NoReturn

__version__ = "0.4.10"


def assign_req_to_token_pool_cpu(
    req_pool_indices: Any, req_to_token: Any, start: Any, end: Any, out_cache_loc: Any, _pool_len: int
) -> None:
    """Enter the cache places of each request's new tokens, which lie one after the other, into its row."""
    offset = 0
    for request, first, last in zip(req_pool_indices.tolist(), start.tolist(), end.tolist(), strict=True):
        count = last - first
        req_to_token[request, first:last] = out_cache_loc[offset : offset + count].to(req_to_token.dtype)
        offset += count


def __getattr__(name: str) -> Callable[..., NoReturn]:
    if name.startswith("__") or not name.endswith("_cpu"):
        raise AttributeError(name)

    def missing(*_args: object, **_kwargs: object) -> NoReturn:
        raise RuntimeError(f"sgl_kernel stand-in: {name} is not implemented")

    return missing
