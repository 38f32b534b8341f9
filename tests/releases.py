"""Small hosts and configs from which the tests render releases."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from dsv4ctl import modes, release, resources, unitfile
from dsv4ctl.engine import options, router, sglang
from dsv4ctl.model import EngineBuild, EngineParts, EngineSpec, Gpu, GpuView, HostSpec, Machine, Numa, NumaNode, Release
from dsv4ctl.release import Texts
from dsv4ctl.unitfile import Settings

GIB = 1024**3
# Options of the real engine that configs of these tests give as extra arguments.
EXTRA = ("--json-model-override-args", "--sleep-on-idle", "--crash-dump-folder", "--file-storage-path")
ENGINE = EngineSpec(python="/opt/sglang/bin/python", model="/models/DeepSeek-V4-Flash", served_model_name="dsv4")

NASTY = EngineSpec(
    python="/opt/py thon/bin/python3",
    model="/models/a b/%u %% %z/\"q\" 'r'/$HOME ${HOME} $$/back\\slash/größe",
    served_model_name="näme $x %n",
    environment=(("JSON", '{"a": "b\\"c", "d": "$e %f"}'), ("LINES", "one\ntwo\ttabbed "), ("EMPTY", "")),
    args=("--json-model-override-args", '{"x": "a;b # c"}', ";", ""),
)


def build(python: str = "/opt/sglang/bin/python") -> EngineBuild:
    """An engine that knows every option in its present spelling."""
    known = frozenset((*EXTRA, *(option.spellings[0] for option in sglang.OPTIONS)))
    return EngineBuild(python=python, version="0.5.23", options=known)


def router_build(python: str = "/opt/sglang/bin/python") -> EngineBuild:
    """The router 0.3.2 with the options of its own --help."""
    help_text = Path(__file__).parent / "unit/engine/recorded/router-help-0.3.2.txt"
    known, choices = options.parse_help(help_text.read_text())
    return EngineBuild(python=python, version="0.3.2", launch=router.LAUNCH, options=known, choices=choices)


def gpus(count: int = 8) -> GpuView:
    """So many GPUs of 96 GiB, the first half on NUMA node 0."""
    return GpuView(
        driver="580.159.03",
        gpus=tuple(
            Gpu(
                index=index,
                uuid=f"GPU-{index:08x}-0000-0000-0000-000000000000",
                name="NVIDIA H20",
                pci_address=f"0000:{16 + index:02x}:00.0",
                total_bytes=96 * GIB,
                used_bytes=0,
                reserved_bytes=0,
                numa_node=0 if index < count // 2 else 1,
            )
            for index in range(count)
        ),
    )


def numa(*nodes: int, count: int = 2) -> Numa:
    """So many NUMA nodes of 32 CPUs, and the eight GPUs near to these; without any, four each near to the first two."""
    near = nodes or tuple(index // 4 for index in range(8))
    return Numa(
        nodes=tuple(NumaNode(node=node, cpus=tuple(range(32 * node, 32 * node + 32))) for node in range(count)),
        usable=frozenset(range(count)),
        near={gpu.pci_address: (node,) for gpu, node in zip(gpus().gpus, near, strict=True)},
    )


def machine(**facts: Any) -> Machine:
    """A host with eight GPUs and dsv4ctl in /opt/dsv4ctl; `facts` replace single ones."""
    usual: dict[str, Any] = {
        "systemd_version": 252,
        "gpus": gpus(),
        "engine": build(),
        "router": router_build(),
        "parts": EngineParts(modules=frozenset({"nixl"}), has_ready=True),
        "numa": numa(),
        "supervisor": ("/opt/dsv4ctl/bin/python", "-P", "-m", "dsv4ctl.supervise"),
        "own_folders": ("/opt/dsv4ctl", "/usr"),
    }
    return Machine(**(usual | facts))


def spec(name: str = modes.DEFAULT, **keys: Any) -> HostSpec:
    """A config of the built-in mode with an engine and a model; `keys` replace single values."""
    usual: dict[str, Any] = {"mode": modes.BUILT_IN[name], "engine": ENGINE}
    return HostSpec(**(usual | keys))


def without_gpus(**keys: Any) -> HostSpec:
    """A config for an engine on a CPU."""
    single = modes.BUILT_IN[modes.DEFAULT]
    return spec(mode=replace(single, roles=(replace(single.roles[0], tp=1, gpus=()),)), **keys)


def here(**facts: Any) -> Machine:
    """The same host with our own interpreter as dsv4ctl's, so that what a unit starts is really there."""
    return machine(supervisor=(sys.executable, "-P", "-m", "dsv4ctl.supervise"), **facts)


def texts() -> Texts:
    """The real template and units."""
    return Texts(
        engine_service=resources.template("engine.service.j2"),
        target=resources.unit("dsv4.target"),
        slice=resources.unit("dsv4.slice"),
    )


def render(asked: HostSpec, on: Machine | None = None) -> Release:
    """The release of a config on a host."""
    return release.render(asked, on or machine(), texts())


def unit(made: Release) -> str:
    """The text of the one engine's unit in a release."""
    (text,) = (file.text for file in made.files if file.path.endswith("dsv4-server.service"))
    return text


def units(made: Release) -> dict[str, str]:
    """The text of every service unit in a release, by name, with the same digest in all of them."""
    texts = {file.path.rpartition("/")[2]: file.text for file in made.files if file.path.endswith(".service")}
    digests = {one.unit: one.digest for one in made.instances}
    # The digest changes with every comma of the record; the text around it is what a reader of the diff looks at.
    return {name: text.replace(digests[name], "0123456789ab") for name, text in texts.items()}


def settings(asked: HostSpec, on: Machine | None = None) -> Settings:
    """The settings of the engine's unit, as systemd reads them."""
    return unitfile.parse([unit(render(asked, on))])


def service(asked: HostSpec, key: str, on: Machine | None = None) -> str:
    """The value of a key under [Service] that is set once; '' when it is not set."""
    return settings(asked, on).last("Service", key)


def seconds(asked: HostSpec, section: str, key: str) -> float:
    """The value of a time span that must be set."""
    found = settings(asked).span(section, key)
    assert found is not None, f"{key} is not set under [{section}]"
    return found


def environment(asked: HostSpec, on: Machine | None = None) -> dict[str, str]:
    """The variables of the unit after systemd's unquoting."""
    lines = settings(asked, on).all("Service", "Environment")
    return dict(word.split("=", 1) for line in lines for word in unitfile.words(line))


def command(asked: HostSpec, on: Machine | None = None) -> tuple[str, ...]:
    """The words of the unit's command after systemd's unquoting."""
    return unitfile.words(service(asked, "ExecStart", on))


# The cases of the golden files.
SPECS: dict[str, HostSpec] = {
    "single-tp4": spec(),
    "single-tp8": spec("single-tp8"),
    "cpu": without_gpus(),
    "open": spec(user="inference", api_key_file="/etc/dsv4ctl/api key%", host="0.0.0.0"),  # noqa: S104 -- the case is about it
    "nasty": spec(engine=NASTY),
}

# The topologies of the golden files.
HOSTS: dict[str, Numa] = {
    "halves": numa(),
    "interleaved": numa(0, 1, 0, 1, 0, 1, 0, 1),
    "one-node": numa(0, 0, 0, 0, 0, 0, 0, 0, count=1),
    "untold": replace(numa(), near={}),
}
