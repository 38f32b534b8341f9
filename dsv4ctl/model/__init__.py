"""The words of the house as frozen values. Knows nothing: no room is imported, nothing needs a clock or a file."""

from dsv4ctl.model.asked import EngineSpec, HostSpec, Limits, MemorySpec, Mode, Role, RoleShape
from dsv4ctl.model.machine import EngineBuild, Gpu, GpuProcess, GpuView, Machine
from dsv4ctl.model.release import Instance, Release, RenderedFile
from dsv4ctl.model.seen import (
    ActiveState,
    Capacity,
    Family,
    Holder,
    HostView,
    Identity,
    Listener,
    LoadState,
    Phase,
    PortView,
    Process,
    RunState,
    SuperviseExit,
    Unit,
)

__all__ = [
    "ActiveState",
    "Capacity",
    "EngineBuild",
    "EngineSpec",
    "Family",
    "Gpu",
    "GpuProcess",
    "GpuView",
    "Holder",
    "HostSpec",
    "HostView",
    "Identity",
    "Instance",
    "Limits",
    "Listener",
    "LoadState",
    "Machine",
    "MemorySpec",
    "Mode",
    "Phase",
    "PortView",
    "Process",
    "Release",
    "RenderedFile",
    "Role",
    "RoleShape",
    "RunState",
    "SuperviseExit",
    "Unit",
]
