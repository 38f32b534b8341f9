"""Host -> values: what of ours is installed and running, and the ports that it needs. Changes nothing."""

from collections.abc import Iterable

from dsv4ctl import installed, maintenance, procs, sockets, systemd
from dsv4ctl.host import Host
from dsv4ctl.model import HostView, Instance, Phase, PortView, Release, Unit
from dsv4ctl.names import RELEASE_VARIABLE, SERVICES, TARGET, instance_of


def host(host: Host, release: Release | None) -> HostView:
    """What is installed and running of ours, and the ports that `release` needs. `release` None: what is there only."""
    wanted = {i.unit: i for i in release.instances} if release else {}
    names = {TARGET, *wanted, *installed.services(host)}
    seen = systemd.show((SERVICES, *sorted(names))).values()
    running = {u.name: digest for u in seen if (digest := _running_digest(u, wanted.get(u.name)))}
    return HostView(
        # A name that begins like ours makes no unit ours: it has our mark in its file, or runs what we started.
        units={u.name: u for u in seen if u.name in names or u.name in running},
        files=installed.files(host, frozenset(f.path for f in release.files) if release else frozenset()),
        running=running,
        ports=ports(release.instances) if release else {},
        pause=maintenance.lasting(host.paths.pause, host.clock.wall()),
        idle=frozenset(u.name for u in seen if _is_idle(host, u)),
        tallies=maintenance.tallies(host.paths.all_starts),
    )


def _is_idle(host: Host, unit: Unit) -> bool:
    """Whether the unit's supervisor waits for the end of a pause without an engine."""
    state = installed.run_state(host, instance_of(unit.name)) if unit.main_pid else None
    return state is not None and state.pid == unit.main_pid and state.phase is Phase.PAUSED


def ports(instances: Iterable[Instance]) -> dict[int, PortView]:
    """Every port of the instances, with its holders."""
    return {port: sockets.view(address, port) for one in instances for address, port in one.binds}


def _running_digest(unit: Unit, wanted: Instance | None) -> str:
    """The digest of the instance that the unit's main process was started for, from its own environment.

    The supervisor keeps its environment and command line; only the engine's workers wipe theirs. A unit that somebody
    edited still carries the digest, so what runs is compared with what is `wanted`, word for word.
    """
    if not unit.main_pid:
        return ""
    environment = procs.environment(unit.main_pid)
    digest = environment.get(RELEASE_VARIABLE, "")
    # A drop-in is a setting of the operator's own; status names it, and no deploy undoes it.
    if wanted is None or digest != wanted.digest or unit.drop_ins:
        return digest
    argv = procs.arguments(unit.main_pid)
    same = argv[argv.index("--") + 1 :] == wanted.argv if "--" in argv else False
    edited = not same or any(environment.get(name) != value for name, value in wanted.environment)
    return f"{digest}, edited" if edited else digest
