"""What the kernel lets the processes of a unit have, held against what the unit asks for. Changes nothing."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from dsv4ctl import procs
from dsv4ctl.unitfile import Settings

# A unit's setting -> the kernel's name for it in /proc/PID/limits, which of its two values counts, and what it is for.
# The engine moves its own soft limit of open files about; locked memory is registered within the soft one.
LIMITS = {
    "LimitMEMLOCK": ("Max locked memory", 0, "RDMA, NCCL and pinned memory cannot be registered beyond it"),
    "LimitNOFILE": ("Max open files", 1, "each connection and each shared segment takes one"),
}
UNLIMITED = {"infinity", "unlimited"}
# The kernel's columns: 26 characters of name, then the soft and the hard value.
_NAME_WIDTH = 26


def short(unit: str, settings: Settings, pids: Iterable[int]) -> Iterator[str]:
    """Every limit that living processes of a unit have lower than it asks for, once for each value, in words."""
    seen = {pid: parse(text) for pid in pids if (text := _text(pid))}
    for setting, (name, column, why) in LIMITS.items():
        asked = settings.last("Service", setting)
        lower: dict[str, list[int]] = {}
        for pid, limits in seen.items():
            if name in limits and _is_less(has := limits[name][column], asked):
                lower.setdefault(has, []).append(pid)
        for has, some in lower.items():
            more = f" and {len(some) - 1} more" if len(some) > 1 else ""
            yield (
                f"pid {some[0]}{more} of {unit} live with {name.lower()} {has}, and the unit asks for "
                f"{setting}={asked}: {why}; somebody lowered it, or systemd itself may not raise it, as in a container"
            )


def parse(text: str) -> Mapping[str, tuple[str, str]]:
    """The kernel's name of each limit in /proc/PID/limits -> its soft and its hard value."""
    rows = (line for line in text.splitlines()[1:] if line.strip())
    split = ((row[:_NAME_WIDTH].strip(), row[_NAME_WIDTH:].split()) for row in rows)
    return {name: (values[0], values[1]) for name, values in split if len(values) >= 2}


def _is_less(has: str, asked: str) -> bool:
    if has in UNLIMITED or not asked:
        return False
    if asked in UNLIMITED:
        return True
    return asked.isdecimal() and has.isdecimal() and int(has) < int(asked)


def _text(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/limits").read_text()
    except procs.GONE:
        return ""
