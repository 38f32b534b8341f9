"""Which options of engine and router may not stand in the extra arguments. Knows their names from the engine room."""

import re
from collections.abc import Mapping

from dsv4ctl.engine import router, sglang

# Option -> the key of the configuration that sets it. --tp is how people write it, and argparse takes it for --tp-size.
MANAGED: Mapping[str, str] = {**sglang.managed_options(), "--tp": "mode"}

# Options that would turn the instance into something that this version cannot prove, watch or stop.
UNSUPPORTED: Mapping[str, str] = {
    "--config": "dsv4ctl gives the engine a --config of its own, and the engine reads one only",
    "--nnodes": "an instance over several hosts is not built yet",
    "--node-rank": "an instance over several hosts is not built yet",
    "--pp": "pipeline parallelism is not built yet: an instance has tp ranks and a GPU for each",
    "--pp-size": "pipeline parallelism is not built yet: an instance has tp ranks and a GPU for each",
    "--pipeline-parallel-size": "pipeline parallelism is not built yet: an instance has tp ranks and a GPU for each",
    "--grpc-mode": "dsv4ctl proves an instance over HTTP, and gRPC takes its place",
    "--smg-grpc-mode": "dsv4ctl proves an instance over HTTP, and gRPC takes its place",
    "--ssl-keyfile": "dsv4ctl proves an instance over plain HTTP; let a proxy in front of it speak TLS",
    "--ssl-certfile": "dsv4ctl proves an instance over plain HTTP; let a proxy in front of it speak TLS",
    "-h": "the engine would print its help and exit",
    "--help": "the engine would print its help and exit",
    "--version": "the engine would print its version and exit",
}

_OPTION = re.compile(r"(--[A-Za-z][A-Za-z0-9_-]*|-h)(=.*)?", re.DOTALL)


def option_of(argument: str) -> str:
    """The option that an argument is, with dashes: "--max_total_tokens=8" is --max-total-tokens; '' for a value."""
    match = _OPTION.fullmatch(argument)
    return "" if match is None else match[1].replace("_", "-")


def refused(argument: str) -> str:
    """Why an argument may not stand in the extra arguments; '' when it may."""
    if argument == "--":
        return "it ends the engine's options, and what dsv4ctl adds behind it would be lost"
    if re.match(r"--[A-Za-z][\w-]*\s", argument):
        return 'write option and value as two strings: ["--option", "value"]'
    option = option_of(argument)
    if option in UNSUPPORTED:
        return UNSUPPORTED[option]
    if option in MANAGED:
        return f"dsv4ctl sets it; use the key {_key(MANAGED[option])}"
    # argparse takes every unambiguous beginning of an option for the option, and exits at an ambiguous one.
    longer = [known for known in (*MANAGED, *UNSUPPORTED) if option and known.startswith(option)]
    if not longer:
        return ""
    key = MANAGED.get(longer[0])
    return f"the engine may read it as {longer[0]}; " + (
        f"use the key {_key(key)}" if key else "write the option whole"
    )


def refused_by_router(argument: str) -> str:
    """Why an argument may not stand in the router's extra arguments; '' when it may."""
    if argument == "--":
        return "it ends the router's options"
    if "power_of_two" in argument:
        return "power_of_two goes by loads that the router cannot read any more; take round_robin or cache_aware"
    option = option_of(argument)
    managed = [known for known in router.MANAGED if option and known.startswith(option)]
    if option in router.UNSUPPORTED:
        return router.UNSUPPORTED[option]
    return f"dsv4ctl sets {managed[0]}; use the key {_key(router.MANAGED[managed[0]])}" if managed else ""


def _key(key: str) -> str:
    """How the operator sets this key; the ranks stand in a mode."""
    return "mode (or tp under [modes.NAME])" if key == "mode" else key
