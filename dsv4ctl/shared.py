"""How much room engines need in /dev/shm, and why it does not do. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass

from dsv4ctl.model import Instance, Role
from dsv4ctl.quantity import bytes_text

# The queue between two ranks of a server was seen to take 25 MB (SGLang 0.5.23). NCCL's buffers come on top: how much
# they take depends on the links between GPUs, and 64 MiB, what a container gets by default, are known not to do.
ENGINE_BYTES = 64 * 2**20
RANK_BYTES = 32 * 2**20
ADVICE = "remove what nobody needs from /dev/shm, or make it larger: mount -o remount,size=16G /dev/shm"


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """What one user has in /dev/shm: how much, in how many files, and the largest of them."""

    user: str
    used_bytes: int
    files: int
    largest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """The folder at one moment. `ours_bytes`: what engines of our users have there, dead or alive; `shares`: who has
    how much, the most first."""

    total_bytes: int
    free_bytes: int
    ours_bytes: int = 0
    shares: tuple[Share, ...] = ()


def needed_bytes(instances: Iterable[Instance]) -> int:
    """What instances need in all; a router needs nothing."""
    return sum(ENGINE_BYTES + RANK_BYTES * i.tp for i in instances if i.role is not Role.ROUTER)


def lacking(instances: Iterable[Instance], space: Space) -> str:
    """Why /dev/shm has no room for instances that are about to start, once ours has gone; '' when it has."""
    needed, left = needed_bytes(instances), space.free_bytes + space.ours_bytes
    if left >= needed:
        return ""
    most = "".join(f"; user {s.user} has {_much(s)} in it, the largest file is {s.largest}" for s in space.shares[:1])
    return (
        f"there are {bytes_text(left)} of {bytes_text(space.total_bytes)} left in /dev/shm, and {bytes_text(needed)} "
        f"are needed for what processes of an engine share{most}"
    )


def _much(share: Share) -> str:
    return f"{bytes_text(share.used_bytes)} of {share.files} file{'' if share.files == 1 else 's'}"
