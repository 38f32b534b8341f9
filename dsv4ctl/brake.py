"""The arithmetic of the brake on failing starts, and of pauses: who may start, when, who is parked, in words. Pure.

A start counts when it came to nothing, or when its engine ended unasked. One that was stopped on request does not, one
that is under way does not yet, and one that left no end (a killed supervisor, a power cut) does.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime

from dsv4ctl.model import Failure, Limits, Pause, Tally
from dsv4ctl.quantity import duration_text

# More than any limit that a config may set.
KEPT = 200
VANISHED = "it left no word of its end: its supervisor was killed, or the host went down"
ADVICE = "dsv4ctl resume"


def begun(tally: Tally, now: float) -> Tally:
    """The tally of an instance that starts now. The start before it failed when it is still open."""
    before = failed(tally, VANISHED, now) if tally.open_since is not None else tally
    return replace(before, open_since=now)


def stopped(tally: Tally) -> Tally:
    """The tally after a stop that somebody asked for."""
    return replace(tally, open_since=None)


def failed(tally: Tally, words: str, now: float) -> Tally:
    """The tally after a start that came to nothing, or an engine that ended unasked."""
    return replace(tally, open_since=None, failed=(*tally.failed, Failure(at=now, words=words))[-KEPT:])


def recent(tallies: Mapping[str, Tally], window_s: float, now: float) -> tuple[tuple[str, Failure], ...]:
    """The failures of all instances within the window, oldest first, each with its instance.

    One from the future counts: the clock was set back since, and nobody can tell how long ago it was.
    """
    found = ((name, one) for name, tally in tallies.items() for one in tally.failed if now - one.at < window_s)
    return tuple(sorted(found, key=lambda pair: pair[1].at))


def verdict(tallies: Mapping[str, Tally], limits: Limits, now: float) -> str:
    """Why the next start of any instance of this host is not to be; '' when it may be."""
    found = recent(tallies, limits.window_s, now)
    if len(found) < limits.starts:
        return ""
    by_name = Counter(name for name, _ in found)
    each = f" ({', '.join(f'{name} {count}' for name, count in by_name.items())})" if len(by_name) > 1 else ""
    name, last = found[-1]
    window = duration_text(limits.window_s)
    return f"{len(found)} starts failed within {window} on this host{each}; the last, of {name}: {last.words}"


def steps(limits: Limits) -> int:
    """In how many steps the wait before a restart grows from limits.restart to limits.restart_max; 0: it does not."""
    return max(1, limits.starts - 1) if limits.restart_max_s > limits.restart_s else 0


def restart_delay_s(failures: int, limits: Limits) -> float:
    """How long an instance is down after so many failures until it is restarted: limits.restart after the first one,
    and each further one takes it by the same factor nearer to limits.restart_max.

    As systemd 254 and newer reckons it from RestartSteps= and RestartMaxDelaySec= (service_restart_usec_next()).
    """
    grown = steps(limits)
    if failures <= 1 or not grown or not limits.restart_s:
        return limits.restart_s
    if failures > grown:
        return limits.restart_max_s
    return float(limits.restart_s * (limits.restart_max_s / limits.restart_s) ** ((failures - 1) / grown))


def owed_s(tally: Tally, limits: Limits, now: float) -> float:
    """For how much longer an automatic restart has to wait where systemd waits limits.restart alone; 0: not at all.

    A restart that comes before that time is somebody's own wish, who did not want to wait. How long ago a supervisor
    ended that left no word of it nobody knows; systemd has waited that time, at the least.
    """
    failures = len(recent({"": tally}, limits.window_s, now))
    if tally.open_since is not None:
        return restart_delay_s(failures + 1, limits) - limits.restart_s
    gone_s = now - tally.failed[-1].at if failures else 0.0
    return max(0.0, restart_delay_s(failures, limits) - gone_s) if failures and gone_s >= limits.restart_s else 0.0


def owed_words(tally: Tally, limits: Limits, left_s: float, now: float) -> str:
    """What a restart waits for and how long: `waiting 27s, until 03:12:44, with this restart: …`."""
    before = failed(tally, VANISHED, now) if tally.open_since is not None else tally
    count = len(recent({"": before}, limits.window_s, now))
    ends, left = moment(now + left_s, now), duration_text(math.ceil(left_s))
    failures = f"{count} starts failed within {duration_text(limits.window_s)}"
    return f"waiting {left}, until {ends}, with this restart: {failures}; the last: {before.failed[-1].words}"


def parked(tally: Tally, why: str, now: float) -> Tally:
    """The tally of an instance that is started no more."""
    return replace(tally, parked=Failure(at=now, words=why))


def parked_words(since: Failure, now: float) -> str:
    """`parked since 03:12:09: 6 starts failed within 4h on this host; …`."""
    return f"parked since {moment(since.at, now)}: {since.words}"


def is_over(pause: Pause, now: float) -> bool:
    """Whether a pause has ended."""
    return now >= pause.until


def pause_words(pause: Pause, now: float) -> str:
    """`paused until 05:10:00 by alice: a fan is swapped`."""
    return f"paused until {moment(pause.until, now)} by {pause.who}: {pause.reason}"


def objection(lasting: Pause | None, now: float) -> str:
    """Why a new pause may not take the place of the one that lasts unless that is asked for; '' where none does."""
    if lasting is None:
        return ""
    return f"cannot pause: {pause_words(lasting, now)}; another pause would put its reason and its end out of sight"


def summary(tallies: Mapping[str, Tally], limits: Iterable[Limits], now: float) -> str:
    """How near the brake is, in words; '' when no start has failed. `limits`: of the instances that are installed."""
    strictest = min(limits, key=lambda limit: limit.starts, default=Limits())
    found = recent(tallies, strictest.window_s, now)
    if not found:
        return ""
    rest = f"{len(found)} of {strictest.starts} starts failed within {duration_text(strictest.window_s)}"
    return f"{rest}; the next one after {strictest.starts} is parked"


def parkings(tallies: Mapping[str, Tally]) -> Iterator[tuple[str, Failure]]:
    """The instances that are parked, each with when and why."""
    return ((name, tally.parked) for name, tally in sorted(tallies.items()) if tally.parked is not None)


def way_past(typed: str) -> str:
    """The command that a pause refused, made to end the pause. `typed`: as a shell would read it; a plan alone changes
    nothing, so that it is its deploy that ends one."""
    _, verb, *options = (*typed.split(" ", 2), "", "")[:3] if " " in typed else ("", "", "")
    if verb not in ("deploy", "rollback"):
        return "dsv4ctl deploy --resume …"
    return " ".join(("dsv4ctl", verb, "--resume", *options)).rstrip()


def moment(at: float, now: float) -> str:
    """The local time of day, with its date when it is another day's."""
    then, today = (datetime.fromtimestamp(seconds, UTC).astimezone() for seconds in (at, now))
    return then.strftime("%H:%M:%S" if then.date() == today.date() else "%Y-%m-%d %H:%M:%S")
