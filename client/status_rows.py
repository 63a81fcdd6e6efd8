"""Rows for people, made of a status: nodes with what they lead, ranges with their load, hot keys.

Each function yields rows one after the other, so that a caller with an event loop can make rows in
slices. A value that no node told is None.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

Row = dict[str, Any]
Status = Mapping[str, Any]
_SUMMED = ("records_per_s", "bytes_per_s", "reads_per_s", "segment_bytes", "entries_held")


class Totals:
    """What all ranges together hold and take. `add` takes a range of a status."""

    def __init__(self) -> None:
        self._sums: dict[str, float | None] = dict.fromkeys(_SUMMED)
        self.states: Counter[str] = Counter()
        self.leaderless = 0
        self.hot = 0

    def add(self, row: Mapping[str, Any]) -> None:
        """Count a range."""
        for name in _SUMMED:
            if (value := row.get(name)) is not None:
                self._sums[name] = (self._sums[name] or 0) + value
        self.states[row["state"]] += 1
        self.leaderless += row["leader"] is None
        self.hot += row.get("hot_key") is not None

    def row(self) -> Row:
        """Return the sums; None where no range told the value."""
        return {**self._sums, "states": dict(self.states), "leaderless": self.leaderless,
                "hot": self.hot}  # fmt: skip


class NodeLoads:
    """The nodes with the load of the ranges that they lead. `add` takes a range of a status."""

    def __init__(self) -> None:
        self._leads: Counter[int] = Counter()
        self._sums: dict[str, Counter[int]] = {name: Counter() for name in _SUMMED[:3]}

    def add(self, row: Mapping[str, Any]) -> None:
        """Count a range for its leader."""
        leader = row["leader"]
        if leader is None:
            return
        self._leads[leader] += 1
        for name, sums in self._sums.items():
            sums[leader] += row.get(name) or 0

    def rows(self, status: Status) -> Iterator[Row]:
        """Yield the nodes of the status, by id, without removed nodes."""
        controller = status["cluster"].get("controller_leader")
        members = status["cluster"].get("controller") or ()
        for node in sorted(status["nodes"], key=lambda row: int(row["id"])):
            if node["state"] != "REMOVED":
                number = node["id"]
                role = "leader" if number == controller else "member"
                yield {
                    **node,
                    "leads": self._leads[number],
                    "controller": role if number in members else None,
                    **{name: sums[number] for name, sums in self._sums.items()},
                }


def ranges_of(status: Status, log: str | None = None) -> Iterator[Row]:
    """Yield the ranges of the status, or of one log, each with the operation that changes it now
    (`running_operation`) and the bytes that it stores (`bytes`)."""
    running = {operation["id"]: operation for operation in status["operations"]}
    for row in status["ranges"]:
        if log is None or row["log"] == log:
            stored = row.get("segment_bytes")
            yield {
                **row,
                "bytes": None if stored is None else stored + row["memtable_bytes"],
                "running_operation": running.get(row.get("operation")),
            }


def hot_keys_of(status: Status) -> list[Row]:
    """Return the keys that take a large part of the load of their ranges, the busiest first. A
    rate is the range's, times the share of the key."""
    found = []
    for row in status["ranges"]:
        hot = row.get("hot_key")
        if hot is not None:
            load = (row["records_per_s"] or 0) + (row["reads_per_s"] or 0)
            found.append(
                {
                    "log": row["log"],
                    "key": hot["key"],
                    "share": hot["share"],
                    "per_s": round(load * hot["share"], 1),
                    "range": row["id"],
                    "leader": row["leader"],
                    "records_per_s": row["records_per_s"],
                    "reads_per_s": row["reads_per_s"],
                }
            )
    return sorted(found, key=lambda row: (-row["per_s"], row["range"]))
