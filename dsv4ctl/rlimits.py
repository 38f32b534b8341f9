"""What the kernel lets the processes of a unit have, held against what the unit asks for. Changes nothing."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Short:
    """A limit that living processes of a unit have lower than it asks for. `inherited`: it is systemd's own."""

    setting: str
    asked: str
    has: str
    pids: tuple[int, ...]
    inherited: bool

    @property
    def words(self) -> str:
        """What is asked for, and what there is."""
        return f"{self.setting}={self.asked} (has {self.has})"


def short(settings: Settings, pids: Iterable[int]) -> tuple[Short, ...]:
    """Every limit that is lower than the unit asks for, once for each value."""
    return tuple(_short(settings, {pid: parse(text) for pid in pids if (text := _text(pid))}))


def lowered(unit: str, found: Iterable[Short]) -> Iterator[str]:
    """The limits that somebody lowered, in words, with the processes."""
    for one in (one for one in found if not one.inherited):
        name, _, why = LIMITS[one.setting]
        more = f" and {len(one.pids) - 1} more" if len(one.pids) > 1 else ""
        yield (
            f"pid {one.pids[0]}{more} of {unit} live with {name.lower()} {one.has}, and the unit asks for "
            f"{one.setting}={one.asked}: {why}; somebody lowered it"
        )


def inherited(found: Mapping[str, Iterable[Short]]) -> Iterator[str]:
    """The limits that systemd itself may not raise, in one line for all units that lack the same: the cause is one."""
    lacks = {unit: ", ".join(one.words for one in some if one.inherited) for unit, some in found.items()}
    for words in dict.fromkeys(filter(None, lacks.values())):
        units = ", ".join(unit for unit, same in lacks.items() if same == words)
        yield f"systemd may not raise {words} of {units}: as in a container without CAP_SYS_RESOURCE"


def _short(settings: Settings, seen: Mapping[int, Mapping[str, tuple[str, str]]]) -> Iterator[Short]:
    systemd = parse(_text(1))
    for setting, (name, column, _) in LIMITS.items():
        asked = settings.last("Service", setting)
        lower: dict[str, list[int]] = {}
        for pid, limits in seen.items():
            if name in limits and _is_less(has := limits[name][column], asked):
                lower.setdefault(has, []).append(pid)
        own = systemd[name][1] if name in systemd else ""
        for has, some in lower.items():
            yield Short(setting=setting, asked=asked, has=has, pids=tuple(some), inherited=has == own)


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
