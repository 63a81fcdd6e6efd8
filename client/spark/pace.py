"""When a stream begins a micro-batch, and how many entries the micro-batch has.

Pure, but for the clock.
"""

import math
import time
from collections.abc import Callable

from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
)

from .options import ReadOptions


class Pace:
    """The pace of one run of a query."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._triggered_s = -math.inf
        """When this run began its last micro-batch that has entries, by the monotonic clock."""

    @property
    def limit(self) -> ReadLimit:
        """The bound that the options set for a micro-batch."""
        if self._options.entries_max is not None:
            return ReadMaxRows(self._options.entries_max)
        if self._options.bytes_max is not None:
            return ReadMaxBytes(self._options.bytes_max)
        if self._options.entries_min is not None:
            return ReadMinRows(self._options.entries_min)
        return ReadAllAvailable()

    def began(self) -> None:
        """Take down that a micro-batch begins now."""
        self._triggered_s = time.monotonic()

    def waits(self, unread: int, limit: ReadLimit | None) -> bool:
        """Whether a micro-batch waits for more than these entries."""
        least = self._options.entries_min
        if least is None or isinstance(limit, ReadAllAvailable):
            return False
        waited_s = time.monotonic() - self._triggered_s
        return unread < least and waited_s < self._options.trigger_delay_s

    def most(self, limit: ReadLimit | None, stored: Callable[[], tuple[int, int]]) -> int | None:
        """Return how many entries a micro-batch may have. Their bytes are estimated from what is
        `stored`: the bytes and the seqs of all remaining entries."""
        if isinstance(limit, ReadAllAvailable):
            return None
        most = [limit.max_rows] if isinstance(limit, ReadMaxRows) else []
        if self._options.bytes_max is not None:
            size, seqs = stored()
            most.append(self._options.bytes_max * max(1, seqs) // max(1, size))
        return min(most, default=None)
