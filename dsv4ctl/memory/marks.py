"""The plan against what the engine then said of itself, kept and shown. What a plan learns of it: see learnt."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields

from dsv4ctl.memory.sizes import gib
from dsv4ctl.model import Capacity


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """What must be the same for a measured value to hold again. `flags`: the engine's arguments and environment that
    memory depends on, as text."""

    host: str
    engine_version: str
    model: str
    gpu: str
    flags: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Amounts:
    """One GPU's memory, as planned or as the engine reported it; None where nobody told."""

    tokens: int
    free_at_start_bytes: int | None = None
    weights_bytes: int | None = None
    graphs_bytes: int | None = None
    left_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A plan and what came of it. `at`: seconds since the epoch; `digest`: of the instance that ran; `auto`: the
    fraction was the planner's; `occupied_bytes`: what others held on its fullest GPU when it started."""

    key: Key
    digest: str
    fraction: float | None
    planned: Amounts
    reported: Amounts
    at: float
    auto: bool = False
    occupied_bytes: int = 0


def reported(capacity: Capacity, server_info: object) -> Amounts:
    """What an engine says: its log lines, and where those were not heard what /server_info adds."""
    told = _memory_usage(server_info)
    return Amounts(
        tokens=capacity.max_total_tokens or _whole(server_info, "max_total_num_tokens"),
        free_at_start_bytes=_bytes(capacity.free_at_start_gb),
        weights_bytes=_bytes(capacity.weights_gb if capacity.weights_gb is not None else told.get("weight")),
        graphs_bytes=_bytes(capacity.graphs_gb if capacity.graphs_gb is not None else told.get("graph")),
        left_bytes=_bytes(
            capacity.available_gb if capacity.available_gb is not None else told.get("startup_available")
        ),
    )


def difference(mark: Mark) -> float:
    """How far the engine's tokens are from the plan's, as a share of the plan's."""
    return mark.reported.tokens / mark.planned.tokens - 1 if mark.planned.tokens else 0.0


def words(mark: Mark) -> str:
    """What was planned and what the engine says: planned 6.05 M tokens, engine reports 6.02 M, -0.5 %."""
    planned_tokens, reported_tokens = (millions(one.tokens) for one in (mark.planned, mark.reported))
    return f"planned {planned_tokens} tokens, engine reports {reported_tokens}, {100 * difference(mark):+.1f} %"


def millions(tokens: int) -> str:
    """Tokens in millions, exact below one."""
    return f"{tokens / 1_000_000:.2f} M" if tokens >= 1_000_000 else str(tokens)


def dump(mark: Mark) -> str:
    """A mark as its file."""
    return json.dumps(asdict(mark), indent=2, sort_keys=True) + "\n"


def load(text: str) -> Mark | None:
    """The mark in a file; None for anything else: it is measured again at the next start."""
    try:
        said = json.loads(text)
        return Mark(
            key=Key(**{name: str(said["key"][name]) for name in (f.name for f in fields(Key))}),
            digest=str(said["digest"]),
            fraction=None if said["fraction"] is None else float(said["fraction"]),
            planned=_amounts(said["planned"]),
            reported=_amounts(said["reported"]),
            at=float(said["at"]),
            auto=said["auto"] is True,
            occupied_bytes=int(said["occupied_bytes"]),
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def _amounts(said: Mapping[str, object]) -> Amounts:
    values = {field.name: _amount(said[field.name]) for field in fields(Amounts)}
    if (tokens := values.pop("tokens")) is None:
        raise ValueError("no tokens")
    return Amounts(tokens=tokens, **values)


def _amount(value: object) -> int | None:
    if value is None or type(value) is int:
        return value
    raise ValueError("not a whole number")


def _memory_usage(server_info: object) -> dict[str, float]:
    """memory_usage of the first rank of /server_info, in SGLang's GB; graphs of all phases summed."""
    states = server_info.get("internal_states") if isinstance(server_info, dict) else None
    state = states[0] if isinstance(states, list) and states else None
    usage = state.get("memory_usage") if isinstance(state, dict) else None
    if not isinstance(usage, dict):
        return {}
    graph = usage.get("graph")
    parts = list(graph.values()) if isinstance(graph, dict) else [graph]
    graphs = [number for part in parts if (number := _number(part)) is not None]
    numbers = {str(name): number for name, value in usage.items() if (number := _number(value)) is not None}
    return {**numbers, **({"graph": sum(graphs)} if graphs else {})}


def _whole(server_info: object, name: str) -> int:
    value = server_info.get(name) if isinstance(server_info, dict) else None
    return value if isinstance(value, int) else 0


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _bytes(gigabytes: float | None) -> int | None:
    """SGLang's GB, which are GiB."""
    return None if gigabytes is None else gib(gigabytes)
