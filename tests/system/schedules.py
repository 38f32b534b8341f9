"""Random schedules of stops, kills and restarts of a pair's roles: drawn, and what they ask for. Touches nothing."""

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

UNITS = ("dsv4-prefill.service", "dsv4-decode.service", "dsv4-router.service")
VERBS = ("stop", "stop", "restart", "restart", "kill", "kill", "start", "teardown")
VICTIMS = ("supervisor", "engine")
LONGEST_PAUSE_S = 0.8


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """What is done to a unit, or with "teardown" to all of them. `waits`: the next comes only once this is done.

    `victim` is who is killed; `pause_s` passes before it.
    """

    verb: str
    unit: str
    victim: str
    waits: bool
    pause_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What became of one request: "whole", "cut" or "refused". Monotonic seconds."""

    began: float
    ended: float
    became: str
    stream: bool
    why: str


def drawn(seed: int) -> tuple[Command, ...]:
    """The schedule of a seed."""
    draw = random.Random(seed)  # noqa: S311 -- no secret
    return tuple(
        Command(
            verb=draw.choice(VERBS),
            unit=draw.choice(UNITS),
            victim=draw.choice(VICTIMS),
            waits=draw.random() < 0.5,
            pause_s=draw.random() * LONGEST_PAUSE_S,
        )
        for _ in range(draw.randint(1, 4))
    )


def wanted(commands: Iterable[Command]) -> Mapping[str, bool]:
    """Unit -> whether it shall run at the end, by the last command that says so; all of them run at the beginning."""
    found = dict.fromkeys(UNITS, True)
    for command in commands:
        match command.verb:
            case "teardown":
                found = dict.fromkeys(UNITS, False)
            case "stop":
                found[command.unit] = False
            case "restart" | "start":
                found[command.unit] = True
    return found


def lost(requests: Iterable[Request], times: Sequence[tuple[Command, float]]) -> list[Request]:
    """The requests that could have finished and did not.

    Those that began before the first command, for whoever is stopped drains; unless somebody was killed before they
    ended. Whatever began later may be refused; without a kill nothing may be cut.
    """
    kills = [at for command, at in times if command.verb == "kill"]
    first = min((at for _, at in times), default=float("inf"))
    killed = min(kills, default=float("inf"))
    could = [r for r in requests if r.ended < killed]
    return [r for r in could if r.became == "cut" or (r.began < first and r.became != "whole")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wrong:
    """What was wrong with one schedule, by what was promised of it."""

    ends: tuple[str, ...] = ()
    transfers: tuple[str, ...] = ()
    requests: tuple[str, ...] = ()

    @property
    def all(self) -> tuple[str, ...]:
        """Everything."""
        return self.ends + self.transfers + self.requests


def totals(found: Sequence[Wrong], requests: Sequence[Request], took_s: float) -> str:
    """What came of some schedules, in one line that can be quoted."""
    became = {what: sum(request.became == what for request in requests) for what in ("whole", "refused", "cut")}
    return (
        f"{len(found)} schedules in {took_s / 60:.0f} min; {len(requests)} requests: {became['whole']} whole, "
        f"{became['refused']} refused, {became['cut']} cut by a kill or at the limit; "
        f"lost although they could finish: {sum(len(one.requests) for one in found)}; "
        f"transfers open at a prefill's SIGTERM: {sum(len(one.transfers) for one in found)}; "
        f"wrong end states: {sum(len(one.ends) for one in found)}"
    )
