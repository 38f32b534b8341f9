"""What an interpreter's environment holds of what we start: option strings, the router, transfer modules."""

import json
from collections.abc import Mapping
from dataclasses import replace

from dsv4ctl.child import run
from dsv4ctl.engine import options, router
from dsv4ctl.model import EngineBuild, EngineParts, HostSpec
from dsv4ctl.problems import CannotRun, EngineMissing

HELP_TIMEOUT_S = 300
# Both programs look for packages and import none: an import of the engine takes 8 s and more.
_ROUTER = (
    "import importlib.metadata as m, pathlib as p; d = m.distribution('sglang-router'); "
    "f = p.Path(str(d.locate_file('sglang_router'))); print(d.version, f, int(f.stat().st_mtime))"
)
# Nothing else tells whether /ready is there: builds without it answer 404, and their --help is the same.
_PARTS = """
import importlib.util, json, pathlib
found = [name for name in ("nixl", "mooncake") if importlib.util.find_spec(name)]
package = pathlib.Path(importlib.util.find_spec("sglang").submodule_search_locations[0])
server = package / "srt/entrypoints/http_server.py"
ready = server.is_file() and '"/ready"' in server.read_text()
print(json.dumps({"modules": found, "ready": ready}))
"""


def with_options(build: EngineBuild, environment: Mapping[str, str]) -> EngineBuild:
    """The build with the options of its own --help. Raises EngineMissing when it does not answer."""
    argv = [build.python, *build.launch, "--help"]
    try:
        text = run(argv, timeout_s=HELP_TIMEOUT_S, env=environment).stdout
    except CannotRun as problem:
        raise EngineMissing(
            f"cannot read the options of {build.python}: {last_line(problem)}",
            hint=" ".join(argv) + "   shows all of it",
        ) from problem
    names, choices = options.parse_help(text)
    return replace(build, options=names, choices=choices)


def router_of(spec: HostSpec) -> EngineBuild | None:
    """The router's version and where it is installed, its options not read yet; None: there is none."""
    python = spec.router.python or spec.engine.python or ""
    try:
        version, stamp = run([python, "-c", _ROUTER], timeout_s=30).stdout.strip().split(" ", 1)
    except CannotRun:
        return None
    return EngineBuild(python=python, version=version, stamp=f"sglang-router {stamp}", launch=router.LAUNCH)


def parts_of(spec: HostSpec) -> EngineParts:
    """What the engine's environment holds besides the engine. Raises EngineMissing when the interpreter cannot tell."""
    python = spec.engine.python or ""
    try:
        said = json.loads(run([python, "-c", _PARTS], timeout_s=30, env=dict(spec.engine.environment)).stdout)
    except (CannotRun, ValueError) as problem:
        raise EngineMissing(
            f"cannot tell what {python} has besides sglang: {last_line(problem)}",
            hint="dsv4ctl init --print   shows the engine environments of this host",
        ) from problem
    return EngineParts(modules=frozenset(said["modules"]), has_ready=said["ready"])


def last_line(problem: Exception) -> str:
    """The last line of what a program said."""
    text = str(problem).strip()
    return text.splitlines()[-1] if text else "no output"
