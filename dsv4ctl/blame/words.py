"""Holders in words: who it is, where it runs, since when, what it holds, and what to type about it."""

from dsv4ctl import cgroups, secret, who
from dsv4ctl.blame.gpus import busy, unattributed
from dsv4ctl.blame.scene import GpuHold, Suspect, Verdict
from dsv4ctl.model import Gpu, Process
from dsv4ctl.quantity import bytes_text

LISTENS = "listens on "
FEW = 2


def suspect(found: Suspect) -> str:
    """A holder, what it holds, and why it is what it is called."""
    name = who.words(found.process) if found.process else who.unknown(found.place)
    holds = " and ".join(_held(found)) or "holds nothing that was asked for"
    return f"{name} {holds}: {found.signs[0]}" if found.signs else f"{name} {holds}"


def values(found: Suspect) -> dict[str, object]:
    """A holder for --json; a key that somebody typed on its command line is not copied anywhere."""
    return {
        "verdict": found.verdict,
        **process_values(found.process),
        "place": found.place,
        "ports": sorted(found.ports),
        "gpus": sorted(found.gpus),
        "holds": found.holds,
        "signs": found.signs,
    }


def process_values(found: Process | None) -> dict[str, object]:
    """Who a process is, for --json; null where nobody may know."""
    return {
        "pid": found.pid if found else None,
        "user": found.user if found else None,
        "comm": found.comm if found else None,
        "command": " ".join(secret.args_shown(found.command.split())) if found else None,
        "since": found.started_at if found else None,
    }


def _held(found: Suspect) -> tuple[str, ...]:
    """What it holds. Of many sockets only those that were asked for: ranks listen on several ports for each other."""
    listens = tuple(word for word in found.holds if word.startswith(LISTENS))
    if len(listens) <= FEW:
        return found.holds
    asked = tuple(word for word in listens if word.endswith(tuple(f":{port}" for port in found.ports)))
    rest = f"{LISTENS}{len(listens) - len(asked)} {'more' if asked else 'ports'}"
    others = tuple(word for word in found.holds if word not in listens)
    return (*asked, *others, *([rest] if len(asked) < len(listens) else []))


def advice(found: Suspect, same: str = "the same command with") -> str:
    """What to type to get rid of a holder that is not ended by itself. `same`: the command that takes --evict."""
    process = found.process
    if process is None:
        return "run it as root" if found.verdict is Verdict.UNKNOWN else ""
    if container := cgroups.container_of(process.cgroup):
        return f"{container.engine} stop {container.name}"
    if found.verdict is Verdict.PROTECTED:
        return f"look at it with `ps -o pid,ppid,user,args -p {process.pid}`, and end what it serves by its own means"
    unit = cgroups.unit_of(process.cgroup)
    stop = f"systemctl stop {unit}   or   " if unit.endswith(".service") else ""
    return f"{stop}{same} --evict {process.pid}"


def gpu(seen: Gpu, holds: tuple[GpuHold, ...]) -> str:
    """Why a GPU is not free, and who is on it: `GPU 0: 71.2 GiB in use: pid …`; '' when it is idle."""
    why = busy(seen)
    if not why:
        return ""
    on_it = [hold for hold in holds if hold.uuid == seen.uuid]
    named = [f"{who.words(h.process)}{_much(h)}" for h in on_it if h.believed and h.process]
    doubted = [_doubted(h) for h in on_it if not h.believed]
    nobody = [said for said in (unattributed(seen),) if said]
    return f"GPU {seen.index}: {'; '.join((why, *named, *nobody, *doubted))}"


def _much(hold: GpuHold) -> str:
    return "" if hold.used_bytes is None else f" with {bytes_text(hold.used_bytes)}"


def _doubted(hold: GpuHold) -> str:
    if hold.process is None or f"pid {hold.pid}" in hold.words:
        return hold.words
    return f"{who.words(hold.process)} {hold.words}"
