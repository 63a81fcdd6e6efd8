"""Judges what all consumers did: every item acknowledged once, the items of a key in order."""

from array import array
from collections.abc import Iterable, Sequence
from typing import Any

import lognode
from lognode.client.bench.report import spread_ms

from .work import Done


class Verdict:
    """The counts, and the times, of a turn.

    `appended` has the number of records of each key, by the key's number. `without`: keys whose
    items nobody has to acknowledge. Items due in the first `warmup_s` after the first of all are
    judged and not timed. Raises CorruptData for an item that was never appended.
    """

    def __init__(
        self, done: Iterable[Done], appended: Sequence[int], warmup_s: float,
        without: Iterable[int] = (),
    ) -> None:  # fmt: skip
        self.acknowledged = 0
        """Items, however often they were acknowledged."""
        self.repeated = 0
        """Acknowledgements of an item that was acknowledged before."""
        self.out_of_order = 0
        """Items that a consumer got before the acknowledgement of the item before was sent, except
        within a batch."""
        self.missing = 0
        """Items that nobody acknowledged."""
        self.latency = array("d")
        """From the due time of an item to the consumer's beginning."""
        self.stood = array("d")
        """How long no consumer had a key that had something to do, item by item."""
        rows = sorted(done, key=lambda row: (row.key, row.nth, row.called))
        self._timed_from = min((row.due for row in rows), default=0.0) + warmup_s
        self.interval = (
            min((row.begun for row in rows), default=0.0),
            max((row.ended for row in rows), default=0.0),
        )
        before: Done | None = None
        for row in rows:
            if row.nth >= appended[row.key]:
                raise lognode.CorruptData(f"key {row.key} has an item {row.nth} that nobody wrote")
            before = self._take(row, before)
        self.missing = self._missing(rows, appended, set(without))

    def report(self) -> dict[str, Any]:
        """Return the counts."""
        return {"acknowledged": self.acknowledged, "missing": self.missing,
                "repeated": self.repeated, "out of order": self.out_of_order}  # fmt: skip

    def times(self) -> dict[str, Any]:
        """Return the latency, and the longest time that a key stood, in milliseconds."""
        found = {}
        for name, values in (("latency", self.latency), ("stood", self.stood)):
            spread = spread_ms(values) or {}
            found |= {f"{name} {at} ms": spread.get(at) for at in ("p50", "p99", "max")}
        return found

    def _take(self, row: Done, before: Done | None) -> Done:
        if before is not None and (before.key, before.nth) == (row.key, row.nth):
            self.repeated += 1
            return before
        self.acknowledged += 1
        free = row.due
        if before is not None and before.key == row.key:
            together = (before.consumer, before.called) == (row.consumer, row.called)
            if before.called > row.begun and not together:
                self.out_of_order += 1
            if before.nth == row.nth - 1 and not together:
                free = max(free, before.called)
        if row.due >= self._timed_from:
            self.latency.append(row.begun - row.due)
            self.stood.append(max(0.0, row.begun - free))
        return row

    def _missing(self, rows: Sequence[Done], appended: Sequence[int], without: set[int]) -> int:
        found = {(row.key, row.nth) for row in rows if row.key not in without}
        wanted = sum(count for key, count in enumerate(appended) if key not in without)
        return wanted - len(found)
