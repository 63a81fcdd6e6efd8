"""When producers were last used, by the leader's monotonic clock, to retire unused rows.

Wall clocks jump, and a row that is removed too early lets a retry be stored twice (x11). So only
the leader measures, from the time when it began to lead, and proposes the removal as a replicated
command.

The leader also knows which principal brought which producers. The number per principal is bounded,
so that others find room in the table. Producers from before the leader began to lead count for no
principal.
"""

from collections import Counter
from collections.abc import Callable, Container, Iterable
from typing import Final

from ...client.protocol import limits
from ...client.protocol.errors import Overloaded

_UNUSED_S: Final = limits.producer_expiry_ms / 1000
retire_at_once_max: Final = 1_000
"""The most rows that one command removes."""
_COUNT_S: Final = 1.0
"""Seconds between two counts of the rows of a principal that is at its limit."""


class ProducerUse:
    """The use of producers of one range, on its leader. `monotonic` gives seconds."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._used_at: dict[int, float] = {}
        self._brought_by: dict[int, str] = {}
        self._brought: Counter[str] = Counter()
        self._count_at = 0.0

    def began_to_lead(self) -> None:
        """Count every row as used now: their use under other leaders is not known."""
        self._used_at.clear()
        self._brought_by.clear()
        self._brought.clear()

    def bring(self, producer: int, principal: str, rows: Container[int]) -> None:
        """Note a batch of the producer from a principal that the cluster knows.

        `rows` are the producers of the range. Raises Overloaded for a new producer beyond the
        principal's limit.
        """
        if producer not in self._used_at and producer not in rows:
            if self._brought[principal] >= limits.producers_of_principal_max:
                self._count(rows)
            if self._brought[principal] >= limits.producers_of_principal_max:
                raise Overloaded(
                    f"{principal!r} has {limits.producers_of_principal_max} producers in "
                    "the range, the limit; close producers that are not in use",
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
        """Note a batch of the producer."""
        self._used_at[producer] = self._monotonic()

    def unused(self, rows: Iterable[int]) -> list[int]:
        """Return rows of the range that were unused for 24 h; at most `retire_at_once_max`."""
        now = self._monotonic()
        self._used_at = {producer: self._used_at.get(producer, now) for producer in rows}
        found = [p for p, used_at in self._used_at.items() if now - used_at >= _UNUSED_S]
        return found[:retire_at_once_max]
