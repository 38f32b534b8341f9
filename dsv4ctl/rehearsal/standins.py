"""What a private machine is furnished with: stand-in GPUs, a stand-in engine, a model, and a config that names them."""

import sys
from pathlib import Path

from dsv4ctl.rehearsal import gpus
from dsv4ctl.rehearsal.private import Machine

ENGINE = Path("/opt/sglang")
MODEL = Path("/models/DeepSeek-V4-Flash")
CONFIG_FILE = "/etc/dsv4ctl/config.toml"
CONFIG = f"""\
# The stand-in engine and model of the rehearsal; everything else is built in: dsv4ctl config show
[engine]
venv = "{ENGINE}"
model = "{MODEL}"
"""

NVCC = "#!/bin/sh\necho 'a stand-in for the CUDA compiler: it compiles nothing' >&2\nexit 1\n"

# Run inside, for an environment holds its own path.
FURNISH = f"""
import sys
from pathlib import Path
from dsv4ctl.rehearsal import environment
environment.install(Path("{ENGINE}"), base_python=sys.executable)
environment.make_model(Path("{MODEL}"))
# Where a stand-in engine looks for how it is to behave.
Path("/run/standin").mkdir(exist_ok=True)
"""


def install(machine: Machine) -> None:
    """Furnish a machine. Raises CannotRun when a part cannot be put in its place."""
    gpus.install(machine)
    machine.run((sys.executable, "-P", "-c", FURNISH), timeout_s=30)
    machine.write("/usr/local/cuda/bin/nvcc", NVCC, mode=0o755)
    machine.write(CONFIG_FILE, CONFIG)
