"""When producers were last used, by the leader's monotonic clock, to retire rows that nobody needs.

Wall clocks jump; a row that went too early would let a retry be stored twice (executions 1.11). So
only the leader counts, from when it began to lead, and what it finds is a replicated command.
"""

from collections.abc import Callable, Iterable
from typing import Final

from ..client import limits

_UNUSED_S: Final = limits.producer_expiry_ms / 1000
retire_at_once_max: Final = 1_000
"""Rows of one command."""


class ProducerUse:
    """Of one range, on its leader. `monotonic` gives seconds."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._used_at: dict[int, float] = {}

    def began_to_lead(self) -> None:
        """What happened under other leaders is not known: every row counts as used now."""
        self._used_at.clear()

    def used(self, producer: int) -> None:
        """A batch of the producer arrived."""
        self._used_at[producer] = self._monotonic()

    def unused(self, rows: Iterable[int]) -> list[int]:
        """Of the range's rows, those that nobody used for 24 h; at most `retire_at_once_max`."""
        now = self._monotonic()
        self._used_at = {producer: self._used_at.get(producer, now) for producer in rows}
        found = [p for p, used_at in self._used_at.items() if now - used_at >= _UNUSED_S]
        return found[:retire_at_once_max]
