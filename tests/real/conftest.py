"""The real SGLang on a CPU, prepared by tests/real/setup/setup.sh, inside the private machine."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from dsv4ctl.rehearsal import machine as rehearsal
from dsv4ctl.rehearsal.private import Machine

CONFIG = """
port = 30001
gpus = []

[engine]
venv = "{folder}/venv"
model = "{folder}/model"
served_model_name = "tiny"
args = [
    "--device", "cpu", "--attention-backend", "torch_native", "--sampling-backend", "pytorch",
    "--load-format", "dummy", "--dtype", "bfloat16", "--disable-cuda-graph", "--disable-overlap-schedule",
    "--sleep-on-idle", "--disaggregation-decode-retraction-backup", "cpu_tensor",
]

[engine.environment]
SGLANG_USE_CPU_ENGINE = "1"
HF_HUB_OFFLINE = "1"
TRANSFORMERS_OFFLINE = "1"
SGLANG_HOST_IP = "127.0.0.1"
OMP_NUM_THREADS = "1"
LD_LIBRARY_PATH = "{folder}/syslibs/usr/lib/x86_64-linux-gnu:{folder}/syslibs/lib/x86_64-linux-gnu"

[transfer]
backend = "mooncake_tcp"

[memory]
context_length = 2048
max_total_tokens = 4096
max_running_requests = 4

[limits]
drain = "10m"
restart = "1s"
restart_max = "1s"

[modes.single-tp4]
server.tp = 1

[modes.pd]
prefill.tp = 1
decode.tp = 1
"""


@pytest.fixture(scope="session")
def folder() -> Path:
    """Where the real engine was prepared."""
    prepared = os.environ.get("DSV4CTL_REAL")
    if not prepared or not (Path(prepared) / "venv/bin/python").exists():
        pytest.skip("needs a real SGLang on a CPU; try: make real")
    return Path(prepared)


@pytest.fixture(scope="session")
def machine(folder: Path) -> Iterator[Machine]:
    """One private machine with the real engine bound into it."""
    # Without the stand-ins: the engine asks lscpu, which crashes on NUMA nodes that the kernel does not know.
    with rehearsal.boot(extra=(folder,), standins=False) as booted:
        booted.write("/etc/dsv4ctl/config.toml", CONFIG.format(folder=folder))
        yield booted
