"""An instance -> the text of its systemd unit: each value is finished and escaped here, the template only places it."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import PurePosixPath

import jinja2

from dsv4ctl import brake, placement, unitfile
from dsv4ctl.engine import sglang
from dsv4ctl.model import HostSpec, Instance, Limits, Machine, Role, SuperviseExit
from dsv4ctl.problems import BadConfig
from dsv4ctl.release import folders
from dsv4ctl.unitfile import START_MARGIN_S, STOP_MARGIN_S

# Another start would end the same way, only later. OK is a stop by a signal, to systemd a failure before READY=1.
FINAL = (
    SuperviseExit.OK,
    SuperviseExit.USAGE,
    SuperviseExit.PORT,
    SuperviseExit.MISSING,
    SuperviseExit.PROOF,
    SuperviseExit.PARKED,
)
# systemd counts on when the brake has parked a unit: so many more starts by hand are answered with what to type.
BY_HAND = 3
# Where root's own shell looks; a unit has nothing of it.
PATH = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
CUDA = "/usr/local/cuda"
# By their names in /proc/devices, so that a driver without one of them is no error: nvidia, nvidia-uvm, nvidia-caps, …
# and the verbs devices that NCCL and UCX use between GPUs.
DEVICES = ("char-nvidia*", "char-infiniband*")
# Loaded by the second it is there before the list of devices is made: a device whose driver comes later is not in it.
DRIVERS = ("nvidia-persistenced.service", "modprobe@nvidia_uvm.service")
# Slots of the template that hold one value or none.
ONCE = ("command", "user", "key_file")
LOOPBACK = ("127.", "::1", "localhost")

_templates = jinja2.Environment(
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
    autoescape=False,  # noqa: S701 -- a unit file is no HTML; unitfile escapes
)


def environment(program: str, variables: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    """The whole environment of a program, sorted by name; a unit has no shell's PATH, in which compilers are found."""
    engine = dict(variables)
    own = str(PurePosixPath(program).parent)
    cuda = engine.get("CUDA_HOME") or CUDA
    return tuple(sorted(({"PATH": ":".join((own, f"{cuda}/bin", *PATH))} | engine).items()))


def cache_folder(name: str) -> str:
    """The folder that CacheDirectory= makes. It outlives releases: compiled kernels are what a cold start waits for."""
    return f"/var/cache/dsv4ctl/{name}"


def text(template: str, values: Mapping[str, object], systemd_version: int) -> str:
    """The unit for this systemd, without what came later.

    Raises BadConfig when it would be a unit that our own lint objects to.
    """
    made = unitfile.only_known(_templates.from_string(template).render(values), systemd_version)
    if objections := unitfile.lint(made):
        raise BadConfig(objections)
    return made


def values(spec: HostSpec, machine: Machine, instance: Instance, path: str) -> dict[str, object]:
    """What the template places, for the instance whose record lies at `path`.

    Raises BadConfig with everything that a unit cannot carry.
    """
    written, faults = _written(spec, machine, instance, path)
    if faults:
        raise BadConfig(tuple(f"cannot put {fault}" for fault in faults))
    return {
        **written,
        **_limits(instance.limits),
        "unit": instance.unit,
        "name": instance.name,
        "digest": instance.digest,
        "identifier": instance.unit.removesuffix(".service"),
        "description": _description(instance),
        "wants": _wants(instance),
        # Not required, or systemd would bounce it with them. Its supervisor waits besides, for to systemd a start that
        # failed is over, too.
        "after": ("network.target", *_wants(instance), *_workers(instance)),
        "is_engine": instance.role is not Role.ROUTER,
        "final_statuses": sorted(FINAL),
        # Asked to by the router's supervisor, for its pair's sake: no failure, and started again.
        "asked_status": int(SuperviseExit.ASKED) if instance.role in sglang.HALVES else None,
        # Root without it could not enter the home of an operator who keeps engine or model there. Another user has no
        # capability to begin with.
        "capabilities": ["CAP_DAC_READ_SEARCH"] if instance.user in (None, "root") else [],
        "devices": DEVICES if instance.gpus else (),
        "binding": instance.binding,
        "cpus": placement.list_text(instance.binding.cpus) if instance.binding else "",
        "cache_folder": cache_folder(instance.name),
    }


def _written(spec: HostSpec, machine: Machine, instance: Instance, path: str) -> tuple[dict[str, object], list[str]]:
    """The values that come from the operator, escaped, and why others cannot be."""
    command = partial(unitfile.command, (*machine.supervisor, path, "--", *instance.argv))
    optional = partial(unitfile.path, optional=True)
    writers: tuple[tuple[str, Callable[[], str]], ...] = (
        ("command", command),
        *(("environment", partial(unitfile.assignment, *variable)) for variable in instance.environment),
        *(("user", partial(unitfile.plain, user)) for user in (instance.user,) if user),
        *(("key_file", partial(unitfile.plain, key)) for key in (instance.api_key_file,) if key),
        *(("mounts", partial(unitfile.path, folder)) for folder in folders.mounts(spec, instance.role)),
        *(("read_only", partial(optional, folder)) for folder in folders.read_only(spec, machine, instance.role)),
        *(("writable", partial(optional, folder)) for folder in folders.writable(spec)),
    )
    found: dict[str, list[str]] = {slot: [] for slot in (*ONCE, "environment", "mounts", "read_only", "writable")}
    faults: list[str] = []
    for slot, write in writers:
        try:
            found[slot].append(write())
        except ValueError as error:
            faults.append(f"this into the unit ({slot.replace('_', ' ')}): {error}")
    return {slot: "".join(texts) if slot in ONCE else texts for slot, texts in found.items()}, faults


def _limits(limits: Limits) -> dict[str, object]:
    """All limits in seconds. The outer ones leave room for the inner, so that the supervisor's verdict comes first."""
    start_limit_s = limits.start_s + limits.proof_s + START_MARGIN_S
    stop_limit_s = limits.drain_s + limits.engine_stop_s + STOP_MARGIN_S
    burst = limits.starts + BY_HAND
    longest_try_s = limits.driver_s + start_limit_s + stop_limit_s + max(limits.restart_s, limits.restart_max_s)
    return {
        "start_s": limits.start_s,
        "proof_s": limits.proof_s,
        "drain_s": limits.drain_s,
        "engine_stop_s": limits.engine_stop_s,
        "start_limit_s": start_limit_s,
        "stop_limit_s": stop_limit_s,
        "restart_s": limits.restart_s,
        "restart_max_s": limits.restart_max_s,
        # systemd refuses a longest delay that is not longer than the first, and no steps at all. For one that is too
        # old for both the supervisor waits.
        "restart_steps": brake.steps(limits),
        "burst": burst,
        "give_up_s": max(limits.window_s, burst * longest_try_s) + START_MARGIN_S,
    }


def _description(instance: Instance) -> str:
    model = unitfile.prose(PurePosixPath(instance.served_model_name).name)
    return f"dsv4 {instance.role}: {model} on port {instance.port}"


def _workers(instance: Instance) -> tuple[str, ...]:
    """What a router is started after and stopped before.

    The halves load side by side, so that neither is ordered after the other; that a prefill is not ended while a decode
    pulls from it is for its supervisor to see to.
    """
    return tuple(peer.unit for peer in instance.peers) if instance.role is Role.ROUTER else ()


def _wants(instance: Instance) -> tuple[str, ...]:
    """What is wanted first and not required: an engine on a host without it starts all the same."""
    # An address of a network card can only be bound once it is there; the loopback always is.
    network = () if instance.host.startswith(LOOPBACK) else ("network-online.target",)
    return (*network, *(DRIVERS if instance.gpus else ()))
