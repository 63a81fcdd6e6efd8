"""Checks what followers get: every record of a key once, in order, as it was appended."""

import time
from array import array
from collections.abc import Iterable
from typing import Any

from lognode.client.bench.report import spread_ms

from ..stamps import Stamps


class Delivered:
    """The deliveries of all followers. A follower begins before the first record of its key.

    Latency counts from the time at which a record was due. Records due in the first `warmup_s`
    after the first of all are checked and not timed.
    """

    def __init__(self, stamps: Stamps, keys: Iterable[bytes], warmup_s: float) -> None:
        self.count = 0
        """Deliveries of a record for the first time."""
        self.skipped = 0
        self.repeated = 0
        self._stamps = stamps
        self._next = dict.fromkeys(keys, 0)
        self._warmup_s = warmup_s
        self._first_due: float | None = None
        self._latency = array("d")

    def take(self, key: bytes, value: bytes | None) -> None:
        """Note one delivery. Raises CorruptData for a record that nobody appended to the key, and
        KeyError for a key that nobody follows."""
        now = time.perf_counter()
        awaited = self._next[key]
        nth = self._stamps.nth(key, value, awaited)
        due = self._stamps.due(key, nth, value)
        if nth < awaited:
            self.repeated += 1
            return
        self.skipped += nth - awaited
        self._next[key] = nth + 1
        self.count += 1
        if self._first_due is None:
            self._first_due = due
        if due - self._first_due >= self._warmup_s:
            self._latency.append(now - due)

    def report(self, expected: int) -> dict[str, Any]:
        """Return the figures; `expected` records were appended to the followed keys."""
        return {
            "deliveries": self.count,
            "timed": len(self._latency),
            "skipped": expected - self.count,
            "out of order": self.skipped,
            "repeated": self.repeated,
            "latency_ms": spread_ms(self._latency),
        }
