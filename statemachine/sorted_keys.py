"""The keys of a memtable in order, for listing keys.

A memtable has up to 600,000 keys, in the order of arrival. Sorting them takes 300 ms. Within a turn
of the loop (see `turns`) a read makes objects of a bounded number of keys and sorts them, and goes
on in the next turn. So the keys are held as sorted runs, which are merged as they are read.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from heapq import merge
from itertools import groupby, islice
from typing import Final

from .column_cache import ColumnCache
from .key_store import KeyStore

_RUN: Final = 8_192
"""The most keys of a run: making and sorting them takes 3 ms."""
_SORT_COST: Final = 128
"""The cost of sorting a key into its run, 0.25 us."""
_KEY_BYTES: Final = 8 + 33
"""The memory of a key in a run, besides its bytes."""


class SortedKeys:
    """The keys of a store that only grows, and may have a key several times. `cache` knows the
    present turn of a read."""

    def __init__(self, keys: KeyStore, cache: ColumnCache) -> None:
        self._keys = keys
        self._cache = cache
        self._runs: list[list[bytes]] = []
        self._taken = 0
        self._bytes = 0

    @property
    def size(self) -> int:
        """The bytes of memory."""
        return self._bytes

    def after(self, prefix: bytes, after: bytes | None) -> Iterator[bytes]:
        """Yield the keys with the prefix and above `after`, in order.

        Raises TurnOver before the first key: sort more of them in another turn.
        """
        self._sort()
        for key, _ in groupby(merge(*(_from(run, prefix, after) for run in self._runs))):
            if not key.startswith(prefix):
                return
            yield key

    def forget(self, count: int) -> bool:
        """Free `count` keys. Return whether some are left."""
        if self._runs:
            del self._runs[-1][-count:]
            if not self._runs[-1]:
                self._runs.pop()
        return bool(self._runs)

    def _sort(self) -> None:
        while self._taken < len(self._keys):
            turns, end = self._cache.turns, min(self._taken + _RUN, len(self._keys))
            if turns is not None:
                turns.check()
                turns.spend(_SORT_COST * (end - self._taken))
            fresh = self._keys.between(self._taken, end)
            self._taken = end
            self._bytes += _KEY_BYTES * len(fresh) + sum(map(len, fresh))
            if self._runs and len(self._runs[-1]) + len(fresh) <= _RUN:
                fresh += self._runs.pop()
            self._runs.append(sorted(set(fresh)))


def _from(run: list[bytes], prefix: bytes, after: bytes | None) -> Iterator[bytes]:
    begin = bisect_left(run, prefix)
    if after is not None:
        begin = max(begin, bisect_right(run, after))
    return islice(run, begin, None)
