"""What a private machine is furnished with: stand-in GPUs, a stand-in engine, a model, and a config that names them."""

from pathlib import Path

from dsv4ctl.rehearsal import gpus
from dsv4ctl.rehearsal.private import Machine

ENGINE = Path("/opt/sglang")
MODEL = Path("/models/DeepSeek-V4-Flash")
CONFIG = f"""\
# The stand-in engine and model of the rehearsal; everything else is built in: dsv4ctl config show
[engine]
venv = "{ENGINE}"
model = "{MODEL}"
"""


def install(machine: Machine) -> None:
    """Furnish a machine. Raises CannotRun when a part cannot be put in its place."""
    gpus.install(machine)
    machine.write("/etc/dsv4ctl/config.toml", CONFIG)
