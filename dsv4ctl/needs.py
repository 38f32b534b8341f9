"""What an engine needs of its environment to compile kernels in place: tools on its PATH, folders that it may write."""

import os
from collections.abc import Mapping
from pathlib import Path

from dsv4ctl import child

# Tool -> where it usually comes from. Kernels that lie compiled in the cache need neither, so that neither is required.
TOOLS = {
    "nvcc": "install the CUDA toolkit, or set CUDA_HOME under [engine.environment]",
    "ninja": "install the package ninja into the engine's environment",
}
# Where SGLang and the compilers below it write; the other cache variables follow SGLANG_CACHE_DIR.
FOLDERS = ("HOME", "SGLANG_CACHE_DIR")


def missing_tools(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Each tool that is not on the PATH of `environment`, in words; () when all are."""
    path = environment.get("PATH", "")
    return tuple(
        f"{tool} is not on the engine's PATH, so that kernels which are not in its cache cannot be compiled; {advice}"
        for tool, advice in TOOLS.items()
        if not child.which(tool, path)
    )


def closed_folders(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Each folder of `environment` that this process could not write into, in words; () when it could write into all.

    One that is not there yet is judged by the nearest folder above it.
    """
    found = ((name, environment.get(name, "")) for name in FOLDERS)
    return tuple(
        f"{name}={folder} cannot be written by user id {os.geteuid()}, so that compiled kernels cannot be kept there"
        for name, folder in found
        if not folder or not os.access(_nearest(Path(folder)), os.W_OK | os.X_OK)
    )


def _nearest(folder: Path) -> Path:
    # Not is_dir(), which raises below a folder that may not be entered.
    return next((above for above in (folder, *folder.parents) if os.access(above, os.F_OK)), folder)
