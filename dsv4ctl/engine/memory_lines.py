"""SGLang's log lines about memory -> what each rank took. Knows the lines of 0.5.3 to 0.5.23; its "GB" are GiB."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from dsv4ctl.model import Capacity

_STAMP = re.compile(r"^(?:\x1b\[[0-9;]*m)*\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)?(?P<rank>(?: [A-Z_]+\d+)*)\] ?")
_AVAILABLE = re.compile(r"avail mem=(\d+(?:\.\d+)?) GB")
_USED = re.compile(r"mem usage=(\d+(?:\.\d+)?) GB")
# Ranks are few; a log full of made-up ones must not grow a supervisor that lives for months.
MOST_RANKS = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Rank:
    """One rank's memory so far. With a draft model weights are loaded twice and graphs captured in several rounds."""

    free_at_start_gb: float | None = None
    weights_gb: float | None = None
    graphs_gb: float | None = None


def heard(ranks: Mapping[str, Rank], lines: Iterable[str]) -> Mapping[str, Rank]:
    """The ranks after more lines; a line that tells nothing of memory changes nothing."""
    found = dict(ranks)
    for line in lines:
        # Nearly every line of a serving engine ends here.
        if "mem" not in line or (stamp := _STAMP.match(line)) is None:
            continue
        before = found.get(stamp["rank"], Rank())
        after = _after(before, line[stamp.end() : stamp.end() + 1000])
        if after is not before and (len(found) < MOST_RANKS or stamp["rank"] in found):
            found[stamp["rank"]] = after
    return found


def told(ranks: Mapping[str, Rank], capacity: Capacity) -> Capacity:
    """The capacity with what was heard of the rank that had least free and of those that took most."""
    free = [rank.free_at_start_gb for rank in ranks.values() if rank.free_at_start_gb is not None]
    weights = [rank.weights_gb for rank in ranks.values() if rank.weights_gb is not None]
    graphs = [rank.graphs_gb for rank in ranks.values() if rank.graphs_gb is not None]
    return replace(
        capacity,
        free_at_start_gb=min(free, default=None),
        weights_gb=max(weights, default=None),
        graphs_gb=max(graphs, default=None),
    )


def _after(rank: Rank, body: str) -> Rank:
    low = body.lower()
    if low.startswith("load weight begin") and rank.free_at_start_gb is None and (free := _AVAILABLE.search(body)):
        return replace(rank, free_at_start_gb=float(free[1]))
    if low.startswith("load weight end") and (used := _USED.search(body)):
        return replace(rank, weights_gb=round((rank.weights_gb or 0.0) + float(used[1]), 2))
    if low.startswith("capture ") and " graph end" in low and (used := _USED.search(body)):
        return replace(rank, graphs_gb=round((rank.graphs_gb or 0.0) + float(used[1]), 2))
    return rank
