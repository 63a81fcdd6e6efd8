"""The keys of a memtable in order, for those who list keys.

A memtable has up to 300,000 keys, in the order in which they came. To sort them takes 150 ms.
Within a turn of the loop (see `turns`) a read sorts a bounded number of keys, and goes on in the
next turn. So the keys are held as runs, each sorted by itself, which are merged as they are read.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping
from heapq import merge
from itertools import islice
from typing import Any, Final

from ..client import limits
from .column_cache import ColumnCache

_RUN: Final = 8_192
"""Keys of a run, at most: sorting them takes 2 ms."""
_RUN_COST: Final = limits.MIB
"""Of sorting a run: all that a turn may take."""
_KEY_BYTES: Final = 8
"""Memory of a key in a run, beside the key itself."""


class SortedKeys:
    """The keys of a mapping that only grows; `cache` knows in which turn a read goes on."""

    def __init__(self, keys: Mapping[bytes, Any], cache: ColumnCache) -> None:
        self._keys = keys
        self._cache = cache
        self._runs: list[list[bytes]] = []
        self._unsorted: list[bytes] = []
        self._taken = 0

    @property
    def size(self) -> int:
        """Bytes of memory."""
        return _KEY_BYTES * self._taken

    def after(self, prefix: bytes, after: bytes | None) -> Iterator[bytes]:
        """Return the keys with the prefix and above `after`, in order. Raises TurnOver, now or
        when the first key is asked for: sort more of them in another turn."""
        self._sort()
        for key in merge(*(_from(run, prefix, after) for run in self._runs)):
            if not key.startswith(prefix):
                return
            yield key

    def forget(self, count: int) -> bool:
        """Let go of so many keys; return whether some are left."""
        del self._unsorted[-count:]
        if self._runs:
            del self._runs[-1][-count:]
            if not self._runs[-1]:
                self._runs.pop()
        return bool(self._unsorted or self._runs)

    def _sort(self) -> None:
        if self._taken < len(self._keys):
            self._unsorted += islice(self._keys, self._taken, None)
            self._taken = len(self._keys)
        while self._unsorted:
            turns = self._cache.turns
            if turns is not None:
                turns.check()
                turns.spend(_RUN_COST)
            fresh = self._unsorted[-_RUN:]
            del self._unsorted[-_RUN:]
            if self._runs and len(self._runs[-1]) + len(fresh) <= _RUN:
                fresh += self._runs.pop()
            fresh.sort()
            self._runs.append(fresh)


def _from(run: list[bytes], prefix: bytes, after: bytes | None) -> Iterator[bytes]:
    begin = bisect_left(run, prefix)
    if after is not None:
        begin = max(begin, bisect_right(run, after))
    return islice(run, begin, None)
