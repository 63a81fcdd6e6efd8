"""Whether a history can vouch for anything: a test in which little happened proves nothing.

The reasons for `unknown` are: few operations succeeded, or none of a kind; a final read is missing;
no fault took place; none hit a leader of a range, though such faults were chosen; a leader was gone
for long and no successor was seen.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Any, Final

from ..history import CLUSTER, Band, History
from ..verdict import Result

_OK_MIN: Final = 20
_OK_SHARE: Final = 0.05
"""The required share of the operations that the rate asks for: a test includes whole seconds
without a majority."""
_NOT_AT_NODES: Final = frozenset({"none", "range", "client", "tier"})
"""Packages whose faults hit no node."""
_NOT_COUNTED: Final = frozenset({"final", "follow", "take", "restored"})
"""Operations that do not count as work at the rate of the test."""
_SELDOM: Final = frozenset({"final", "unregister", "restored"})
"""Operations that need not succeed: final reads have a rule of their own, others are too few."""
_TRIES_MIN: Final = {"decide": 5}
"""The tries from which on one must succeed, if not 1. An operator decides about parked keys, and
few are parked where entries become dead letters."""
_STOPS_PROCESSES: Final = frozenset({"kill", "pause", "power", "part-kill", "pause-kill"})
_ELECTION_DUE_NS: Final = 3_000_000_000
"""The latest time for a new leader after the old leader is gone (L1)."""

Leaders = dict[str, int]


def enough(history: History, test: Mapping[str, Any]) -> Result:
    """Check the amount of events; `test` has nodes, rate, time_limit_s and nemesis of test.json.

    `left` in `test`: the nodes that are there at the end; all nodes without it.
    """
    chosen = [name for name in test["nemesis"] if name != "none"]
    leads = _Leads(history)
    result = Result("enough")
    result.unknown += _operations(history, test)
    left = test.get("left", range(1, int(test["nodes"]) + 1))
    result.unknown += _finals(history, left)
    result.unknown += _faults(history.bands(), chosen, leads)
    result.unknown += _elections(history.bands(), int(test["nodes"]), leads)
    result.counts["faults"] = len(history.bands())
    result.counts["elections"] = leads.elections
    return result


def _operations(history: History, test: Mapping[str, Any]) -> Iterator[str]:
    asked: Counter[str] = Counter()
    done: Counter[str] = Counter()
    for one in history.operations():
        asked[one.f] += 1
        done[one.f] += one.outcome == "ok"
    least = max(_OK_MIN, int(_OK_SHARE * float(test["rate"]) * float(test["time_limit_s"])))
    count = sum(count for f, count in done.items() if f not in _NOT_COUNTED)
    if count < least:
        yield f"{count} operations succeeded; a verdict needs at least {least}"
    for f in sorted(asked):
        if not done[f] and f not in _SELDOM and asked[f] >= _TRIES_MIN.get(f, 1):
            yield f"no {f} succeeded, of {asked[f]}"


def _finals(history: History, nodes: Iterable[int]) -> Iterator[str]:
    done = {one.node for one in history.operations("final") if one.outcome == "ok"}
    if None not in done:
        yield "there is no linearizable read of everything at the end"
    missing = [str(node) for node in nodes if node not in done]
    if missing:
        yield f"there is no read of everything at the end from node {', '.join(missing)}"


def _faults(bands: list[Band], chosen: list[str], leads: "_Leads") -> Iterator[str]:
    if chosen and not bands:
        yield f"no fault took place, although these were chosen: {', '.join(chosen)}"
        return
    hitting = [name for name in chosen if name not in _NOT_AT_NODES]
    if hitting and not any(
        band.package not in _NOT_AT_NODES and leads.led(band.began, band.ended) & set(band.nodes)
        for band in bands
    ):
        yield f"no fault hit a leader, although these were chosen: {', '.join(hitting)}"


def _elections(bands: list[Band], nodes: int, leads: "_Leads") -> Iterator[str]:
    due = [
        band
        for band in bands
        if band.package in _STOPS_PROCESSES
        and 2 * len(band.nodes) < nodes
        and (band.ended is None or band.ended - band.began > _ELECTION_DUE_NS)
        and leads.led(band.began, band.began) & set(band.nodes)
    ]
    if due and not leads.elections:
        yield f"no election took place, although {len(due)} faults stopped leaders for a long time"


class _Leads:
    """The leaders of ranges over time."""

    def __init__(self, history: History) -> None:
        self._seen: list[tuple[int, Leaders]] = [
            (event.time, event.value["leaders"])
            for event in history.events
            if event.process is None and event.f == CLUSTER
        ]
        self.elections = sum(
            1
            for (_, before), (_, after) in pairwise(self._seen)
            for range_, node in after.items()
            if before.get(range_, node) != node
        )
        """How often a range was seen with another leader than before."""

    def led(self, began: int, ended: int | None) -> set[int]:
        """Return the nodes that led any range at a time from `began` to `ended`."""
        found: set[int] = set()
        for at, (time, leaders) in enumerate(self._seen):
            until = self._seen[at + 1][0] if at + 1 < len(self._seen) else None
            if (until is None or until > began) and (ended is None or time <= ended):
                found.update(leaders.values())
        return found
