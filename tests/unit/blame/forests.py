"""Small process forests for the tests of blame: a host with an ssh session, its services, and whatever a test adds."""

from collections.abc import Iterable
from typing import Any

from dsv4ctl.blame import GpuHold, Request, Scene
from dsv4ctl.model import Family, Holder, Identity, Listener, Process

PID_NAMESPACE, NET_NAMESPACE = 4026531836, 4026531840
SESSION = "/user.slice/user-0.slice/session-3.scope"
VENV = "/opt/sglang"
UUID = "GPU-57a4d111-0000-4000-8000-00000000000{}"
# pid 1, sshd, the operator's shell and this command; a test's own processes begin at 1000.
SELF = 300


def process(pid: int, parent: int = 1, **more: Any) -> Process:
    """A process of root in the operator's session, leader of its own group."""
    given = {
        "session": 200, "group": pid, "uid": 0, "user": "root", "comm": "python3", "command": "", "state": "S",
        "cgroup": SESSION, "started_at": 0.0, "pid_namespace": PID_NAMESPACE, "net_namespace": NET_NAMESPACE, **more,
    }  # fmt: skip
    return Process(identity=Identity("boot", pid, pid), parent_pid=parent, **given)


HOST = (
    process(1, 0, comm="systemd", cgroup="/init.scope", session=1),
    process(100, 1, comm="sshd", cgroup="/system.slice/ssh.service", session=100),
    process(150, 100, comm="sshd", session=150),
    process(200, 150, comm="bash"),
    process(SELF, 200, comm="dsv4ctl"),
)


def scene(*more: Process, engines: Iterable[int] = (), **what: Any) -> Scene:
    """The host with these processes; `engines` run in the engine's environment."""
    return Scene(
        processes={p.pid: p for p in (*HOST, *more)},
        self_pid=SELF,
        environments=dict.fromkeys(engines, VENV),
        **what,
    )


def listens(port: int, *processes: Process, cgroup: str = SESSION, address: str = "127.0.0.1") -> Holder:
    """A socket in LISTEN that these processes have open."""
    listener = Listener(family=Family.IPV4, address=address, port=port, inode=port, cgroup=cgroup)
    return Holder(listener=listener, processes=processes)


def holds(gpu: int, process_: Process, *, believed: bool = True) -> GpuHold:
    """Memory of a GPU."""
    return GpuHold(
        index=gpu, uuid=UUID.format(gpu), pid=process_.pid, process=process_, used_bytes=2**30, believed=believed
    )


def ask(*ports: int, gpus: Iterable[int] = (), everything: bool = False, evict: Iterable[Process] = ()) -> Request:
    """A request."""
    return Request(
        ports=frozenset(ports),
        gpus=frozenset(UUID.format(gpu) for gpu in gpus),
        everything=everything,
        evict=frozenset(p.identity for p in evict),
    )
