"""Who is never ended, whatever it holds and whoever names it."""

from collections.abc import Mapping

from dsv4ctl import cgroups
from dsv4ctl.blame.scene import Scene
from dsv4ctl.model import Process

# By the kernel's name of the process. A name can be chosen to be spared by it, never to be ended by it.
SERVICE_MANAGERS = frozenset({"systemd", "init", "supervisord", "runit", "s6-svscan", "openrc-init"})
SESSIONS = frozenset(
    {
        "sshd", "sshd-session", "sshd-auth", "login", "agetty", "getty", "su", "sudo", "cron", "crond", "atd",
        "tmux: server", "screen", "mosh-server", "dropbear", "gdm-session-wor", "polkitd", "(sd-pam)",
    }
)  # fmt: skip
SYSTEM = frozenset({"dbus-daemon", "dbus-broker", "dbus-broker-lau", "rsyslogd", "auditd", "chronyd", "dnsmasq"})
DRIVER = frozenset({"nvidia-persiste", "nv-fabricmanage", "nv-hostengine", "nvidia-imex", "Xorg", "Xwayland"})
CONTAINERS = frozenset(
    {
        "dockerd", "docker-proxy", "containerd", "containerd-shim", "containerd-shim-", "conmon", "crun", "runc",
        "rootlessport", "rootlesskit", "rootlessport-ch", "slirp4netns", "pasta", "pasta.avx2", "passt", "netavark",
        "kubelet", "kube-proxy", "crio", "lxc-start", "lxd", "incusd",
    }
)  # fmt: skip


def guarded(scene: Scene) -> dict[int, str]:
    """Pid -> why it is never ended, in words."""
    us = scene.processes.get(scene.self_pid)
    found = {pid: why for pid, process in scene.processes.items() if (why := _why(process, us))}
    return found | _relatives(scene)


def _why(process: Process, us: Process | None) -> str:
    if process.pid == 1:
        return "it is the first process of this host"
    if process.kernel:
        return "it is a thread of the kernel"
    if (where := cgroups.container_of(process.cgroup)) and (us is None or where != cgroups.container_of(us.cgroup)):
        return f"it runs in {where}, whose engine ends it"
    return _elsewhere(process, us) or _by_name(process.comm)


def _elsewhere(process: Process, us: Process | None) -> str:
    """Another namespace than ours is another machine to whoever lives in it; 0 is one that we may not see."""
    if us is None:
        return "we do not know ourselves among the processes"
    for theirs, ours, name in (
        (process.pid_namespace, us.pid_namespace, "pid"),
        (process.net_namespace, us.net_namespace, "network"),
    ):
        if theirs and ours and theirs != ours:
            return f"it lives in another {name} namespace (a container or a sandbox)"
    return ""


def _by_name(comm: str) -> str:
    if comm in SERVICE_MANAGERS or comm.startswith("systemd-"):
        return "it belongs to the service manager"
    if comm in CONTAINERS:
        return "it is a container engine's proxy or shim: the port or GPU is a container's"
    if comm in SESSIONS:
        return "it keeps login sessions"
    if comm in DRIVER:
        return "it belongs to the GPU driver or the display"
    return "it is a service that the host runs on" if comm in SYSTEM else ""


def _relatives(scene: Scene) -> dict[int, str]:
    """Ourselves, everything above us (the login session), and the programs that we run ourselves."""
    found = {scene.self_pid: "it is this command"}
    above = _parent(scene.processes, scene.self_pid)
    while above and above not in found:
        found[above] = "it is an ancestor of this command"
        above = _parent(scene.processes, above)
    below = {scene.self_pid}
    while below:
        below = {p.pid for p in scene.processes.values() if p.parent_pid in below} - found.keys()
        found |= dict.fromkeys(below, "it was started by this command")
    return found


def _parent(processes: Mapping[int, Process], pid: int) -> int:
    return processes[pid].parent_pid if pid in processes else 0
