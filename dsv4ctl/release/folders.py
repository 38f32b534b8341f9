"""Which folders the sandbox must show, may leave writable or has to wait for, from the paths that a config names."""

from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import PurePosixPath

from dsv4ctl.model import HostSpec, Machine, Role

# PrivateTmp= puts empty folders in their place.
HIDDEN = (PurePosixPath("/tmp"), PurePosixPath("/var/tmp"))  # noqa: S108 -- nothing is made there

# Where engine and libraries write when these are set. Our own values lie in the cache folder, which is writable anyway.
WRITABLE_VARIABLES = frozenset(
    (
        *("HOME", "TMPDIR", "XDG_CACHE_HOME", "HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_MODULES_CACHE"),
        *(
            "SGLANG_CACHE_DIR",
            "SGLANG_DG_CACHE_DIR",
            "DG_JIT_CACHE_DIR",
            "FLASHINFER_WORKSPACE_BASE",
            "TILELANG_CACHE_DIR",
        ),
        *("TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "TORCH_EXTENSIONS_DIR", "CUDA_CACHE_PATH"),
        *("PROMETHEUS_MULTIPROC_DIR", "SGLANG_TORCH_PROFILER_DIR"),
    )
)
WRITABLE_OPTIONS = frozenset(
    (
        *("--crash-dump-folder", "--download-dir", "--export-metrics-to-file-dir", "--file-storage-path"),
        *("--debug-tensor-dump-output-folder", "--modelopt-checkpoint-save-path", "--modelopt-export-path"),
    )
)


def mounts(spec: HostSpec, role: Role) -> tuple[str, ...]:
    """What must be mounted before a start: a model often has a disk of its own, which a boot may mount late.

    The router's interpreter is named in the router's unit alone: in an engine's, another one would restart the engine.
    """
    router_python = spec.router.python if role is Role.ROUTER else None
    return tuple(dict.fromkeys(path for path in (spec.engine.python, router_python, spec.engine.model) if path))


def read_only(spec: HostSpec, machine: Machine, role: Role) -> tuple[str, ...]:
    """What lies in a temporary folder and is needed all the same: dsv4ctl itself, engine, model, paths in arguments.

    Whole folders directly below the temporary one, because environments and model caches link to their neighbours.
    """
    ours = (*machine.supervisor, *machine.own_folders)
    named = (*ours, *mounts(spec, role), *_options(spec).values(), *spec.engine.args)
    listed = (part for _, value in spec.engine.environment for part in value.split(":"))
    return tuple(sorted(set(_shown((*named, *listed)))))


def writable(spec: HostSpec) -> tuple[str, ...]:
    """The folders that the operator's own variables and arguments tell the engine to write into."""
    variables = (value for name, value in spec.engine.environment if name in WRITABLE_VARIABLES)
    options = (value for name, value in _options(spec).items() if name in WRITABLE_OPTIONS)
    return tuple(sorted({path for path in (*variables, *options) if _is_path(path)}))


def _options(spec: HostSpec) -> dict[str, str]:
    """The extra arguments that are `--name value` or `--name=value`, by name."""
    found: dict[str, str] = {}
    for word, following in pairwise((*spec.engine.args, "")):
        name, equals, value = word.partition("=")
        if name.startswith("--"):
            found[name.replace("_", "-")] = value if equals else following
    return found


def _shown(paths: Iterable[str]) -> Iterator[str]:
    for text in filter(_is_path, paths):
        path = PurePosixPath(text)
        for folder in HIDDEN:
            if path != folder and path.is_relative_to(folder):
                yield str(folder / path.relative_to(folder).parts[0])


def _is_path(text: str) -> bool:
    return text.startswith("/") and ".." not in PurePosixPath(text).parts and text.isprintable()
