"""Which records an idempotent producer may send again: those of its last batches.

A Kafka producer has at most five requests under way, so it sends none of its batches again but the
last five, and Kafka remembers five for each producer and partition. Ranges are told the first
number that may come again, and forget the numbers below (`client.appends`). Until this node has
seen enough batches, it takes the largest number of records that five batches may have: an earlier
leader of the partition may have taken them.
"""

from collections import OrderedDict
from typing import Final

from ...client.protocol import limits

BATCHES: Final = 5
"""Batches before the newest that may come again."""
RECORDS: Final = BATCHES * limits.batch_records_max
PLACES_MAX: Final = 16_384
"""Pairs of a producer and a partition that are remembered; the pairs that wrote last."""

Place = tuple[str, int, int]
"""Topic, partition and producer."""


class RecentBatches:
    """The first numbers of the last batches of each pair of a producer and a partition."""

    def __init__(self) -> None:
        self._firsts: OrderedDict[Place, tuple[int, ...]] = OrderedDict()

    def oldest(self, place: Place, first: int) -> int:
        """Note a batch by its first number, which is there again when the batch comes again; return
        the first number that may come again."""
        firsts = self._firsts.pop(place, ())
        if not firsts or first > firsts[-1]:
            firsts = (*firsts, first)[-BATCHES - 1 :]
        self._firsts[place] = firsts
        if len(self._firsts) > PLACES_MAX:
            self._firsts.popitem(last=False)
        oldest = firsts[0] if len(firsts) > BATCHES else first - RECORDS
        return min(oldest, first)
