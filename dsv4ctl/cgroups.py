"""What the path of a cgroup tells of whoever is in it: unit, container, login session. Pure; reads nothing."""

import re
from dataclasses import dataclass

from typing_extensions import override

_ID = r"(?P<id>[0-9a-f]{12,64})"
# Who made it -> how its cgroups are called: as a scope of systemd's, or as a folder of cgroupfs. Compiled when needed,
# by `re` itself: few commands look for one.
_CONTAINERS = (
    ("docker", rf"/docker[-/]{_ID}(?:\.scope)?(?:/|$)"),
    ("podman", rf"/libpod-(?:conmon-|payload-)?{_ID}(?:\.scope)?(?:/|$)"),
    ("containerd", rf"/(?:cri-)?containerd[-:/](?:[\w.-]+:)?{_ID}(?:\.scope)?(?:/|$)"),
    ("cri-o", rf"/crio-(?:conmon-)?{_ID}(?:\.scope)?(?:/|$)"),
    ("kubernetes", rf"/kubepods[\w.-]*/.*?{_ID}(?:\.scope)?(?:/|$)"),
    ("kubernetes", r"/kubepods[\w.-]*/.*?pod(?P<id>[0-9a-f][0-9a-f_-]{30,})"),
    ("lxc", r"/lxc(?:\.payload|\.monitor)?[./](?P<id>[^/]+)"),
    ("machine", r"/machine\.slice/(?P<id>machine-[^/]+|systemd-nspawn@[^/]+)"),
    ("flatpak", r"/(?P<id>app-flatpak-[^/]+)"),
)
_ADOPTED = re.compile(r"/dsv4\.slice/(?P<unit>dsv4-adopted-(?P<role>[a-z]+)-(?P<port>\d+)\.scope)(?:/|$)")
_SESSION = re.compile(r"/session-(?P<id>[^/]+)\.scope(?:/|$)")
_USER = re.compile(r"/user@(?P<uid>\d+)\.service(?:/|$)")


@dataclass(frozen=True, slots=True)
class Container:
    """A container by its engine and the beginning of its id, as that engine's own listing shows it."""

    engine: str
    name: str

    @override
    def __str__(self) -> str:
        return f"{self.engine} container {self.name}"


@dataclass(frozen=True, slots=True)
class Adopted:
    """What the scope of an adopted engine says of it."""

    unit: str
    role: str
    port: int


def adopted(cgroup: str) -> Adopted | None:
    """The scope of an adopted engine that a cgroup is or lies in; None: none of ours.

    Only who may ask systemd itself to make a scope can have one directly below our slice.
    """
    found = _ADOPTED.match(cgroup)
    return Adopted(found["unit"], found["role"], int(found["port"])) if found else None


def unit_of(cgroup: str) -> str:
    """The systemd unit that a cgroup belongs to: the last service or scope of its path, '' when it has none."""
    units = [part for part in cgroup.split("/") if part.endswith((".service", ".scope"))]
    # systemd puts one "_" before a name that the kernel would misread (cg_escape in its sources).
    return units[-1].removeprefix("_") if units else ""


def container_of(cgroup: str) -> Container | None:
    """The container that a cgroup belongs to; None: it belongs to the host."""
    for engine, pattern in _CONTAINERS:
        if found := re.search(pattern, cgroup):
            name = found["id"]
            return Container(engine, name[:12] if re.fullmatch(r"[0-9a-f]{12,64}", name) else name)
    return None


def session_of(cgroup: str) -> str:
    """The login session that a cgroup belongs to, by logind's number: "3" of session-3.scope; '' for none."""
    found = _SESSION.search(cgroup)
    return found["id"] if found else ""


def user_manager_of(cgroup: str) -> int | None:
    """The user whose own service manager (user@UID.service) a cgroup lies below; None for none."""
    found = _USER.search(cgroup)
    return int(found["uid"]) if found else None


def is_transient(unit: str) -> bool:
    """Whether a unit's name is one that `systemd-run` draws: nobody wrote a file for it, nothing starts it again."""
    return bool(re.fullmatch(r"run-(?:u\d+|p\d+-i\d+|r?[0-9a-f]+)\.(?:service|scope)", unit))


def place(cgroup: str) -> str:
    """Where somebody runs, in words: container, login session or unit; '' when the cgroup tells nothing."""
    if container := container_of(cgroup):
        return str(container)
    if session := session_of(cgroup):
        return f"login session {session}"
    unit = unit_of(cgroup)
    user = user_manager_of(cgroup)
    return f"{unit} of user {user}'s own service manager" if unit and user is not None and "user@" not in unit else unit
