"""When producers were last used, by the leader's monotonic clock, to retire rows that nobody needs.

Wall clocks jump; a row that went too early would let a retry be stored twice (x11). So
only the leader counts, from when it began to lead, and what it finds is a replicated command.

The leader also knows who brought which producers: what one principal may bring is bounded, so that
others find room in the table. Producers of before it began to lead are nobody's.
"""

from collections import Counter
from collections.abc import Callable, Container, Iterable
from typing import Final

from ...client.protocol import limits
from ...client.protocol.errors import Overloaded

_UNUSED_S: Final = limits.producer_expiry_ms / 1000
retire_at_once_max: Final = 1_000
"""Rows of one command."""
_COUNT_S: Final = 1.0
"""Between two counts of what a principal that is at its bound still has."""


class ProducerUse:
    """Of one range, on its leader. `monotonic` gives seconds."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._used_at: dict[int, float] = {}
        self._brought_by: dict[int, str] = {}
        self._brought: Counter[str] = Counter()
        self._count_at = 0.0

    def began_to_lead(self) -> None:
        """What happened under other leaders is not known: every row counts as used now."""
        self._used_at.clear()
        self._brought_by.clear()
        self._brought.clear()

    def bring(self, producer: int, principal: str, rows: Container[int]) -> None:
        """A batch of the producer arrived, from a principal whom the cluster knows; `rows` are
        those of the range. Raises Overloaded for a new producer beyond the principal's bound."""
        if producer not in self._used_at and producer not in rows:
            if self._brought[principal] >= limits.producers_of_principal_max:
                self._count(rows)
            if self._brought[principal] >= limits.producers_of_principal_max:
                raise Overloaded(
                    f"{principal!r} has {limits.producers_of_principal_max} producers in the "
                    "range; close those that are done",
                    retry_after=1.0,
                )
            self._brought_by[producer] = principal
            self._brought[principal] += 1
        self.used(producer)

    def _count(self, rows: Container[int]) -> None:
        now = self._monotonic()
        if now < self._count_at:
            return
        self._count_at = now + _COUNT_S
        there = {p: who for p, who in self._brought_by.items() if p in rows}
        self._brought_by, self._brought = there, Counter(there.values())

    def used(self, producer: int) -> None:
        """A batch of the producer arrived."""
        self._used_at[producer] = self._monotonic()

    def unused(self, rows: Iterable[int]) -> list[int]:
        """Of the range's rows, those that nobody used for 24 h; at most `retire_at_once_max`."""
        now = self._monotonic()
        self._used_at = {producer: self._used_at.get(producer, now) for producer in rows}
        found = [p for p, used_at in self._used_at.items() if now - used_at >= _UNUSED_S]
        return found[:retire_at_once_max]
