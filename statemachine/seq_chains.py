"""The seqs of each key in a memtable.

Each position stores the position of the key's previous entry, and each key its newest position. So
an append costs two dict operations a record, all of it in C, and a read follows the chain. For keys
with many entries and repeated reads, the chain is kept as an array, and extended later. Otherwise a
page from the beginning of a hot key would pass all entries of the key, at 0.1 us an entry.

A chain of a million entries takes 100 ms. Within a turn of the loop (see `turns`) a read follows a
bounded part of the chain, and goes on from there in the next turn.
"""

import sys
from array import array
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, repeat
from operator import itemgetter
from typing import Final, NamedTuple

from .column_cache import ColumnCache

_NONE: Final = -1
_first = itemgetter(0)
_CHAIN_MIN: Final = 64
"""The least length of a chain that is kept: a shorter one is followed as quickly."""
_CHAINED_MAX: Final = 1 << 17
"""The entries of all kept chains of a memtable: 1 MiB. A single chain may be longer."""
_STEP: Final = 2_048
"""The entries of a chain that are followed between two checks of the turn."""
_ENTRY_COST: Final = 64
"""The cost of following a chain by one entry, 0.1 us."""


@dataclass(frozen=True, slots=True)
class Run:
    """Some seqs of a key, ascending: the elements of an array at [low, high)."""

    seqs: "array[int]"
    low: int
    high: int

    def __iter__(self) -> Iterator[int]:
        return map(self.seqs.__getitem__, range(self.low, self.high))

    def __reversed__(self) -> Iterator[int]:
        return map(self.seqs.__getitem__, range(self.high - 1, self.low - 1, -1))

    def __len__(self) -> int:
        return self.high - self.low


class _Walk(NamedTuple):
    """The part of a chain that a read has followed.

    Its seqs descend from the newest entry on, or ascend once all of them are there.
    """

    chains: "SeqChains"
    seqs: "array[int]"


class SeqChains:
    """See the module. `cache` knows the present turn of a read."""

    def __init__(self, first_seq: int, cache: ColumnCache) -> None:
        self.newest: dict[bytes, int] = {}
        """The newest position of each key: a seq less the first. The keys are in the order of
        arrival."""
        self._first_seq = first_seq
        self._cache = cache
        self._previous = array("i")
        self._kept: OrderedDict[bytes, array[int]] = OrderedDict()
        """The seqs of some keys from their first on, ascending; the least recently used is first.
        """
        self._kept_entries = 0

    def __len__(self) -> int:
        return len(self._previous)

    @property
    def size(self) -> int:
        """The bytes of memory, without the keys and the kept chains."""
        return sys.getsizeof(self.newest) + sys.getsizeof(self._previous)

    def add(self, keys: Sequence[bytes]) -> None:
        """Append an entry of each of the keys."""
        position, newest = len(self._previous), self.newest
        # One pass in C: for each record, read the key's newest position, then replace it.
        replace = map(newest.__setitem__, keys, range(position, position + len(keys)))
        read = map(newest.get, keys, repeat(_NONE))
        self._previous.extend(map(_first, zip(read, replace, strict=False)))

    def last(self, key: bytes) -> int:
        """Return the key's last seq, or 0 without an entry."""
        position = self.newest.get(key)
        return 0 if position is None else self._first_seq + position

    def back(self, key: bytes, least: int) -> Iterator[int]:
        """Yield the key's seqs from the last down to `least`."""
        first, previous = self._first_seq, self._previous
        position, lowest = self.newest.get(key, _NONE), max(0, least - first)
        while position >= lowest:
            yield first + position
            position = previous[position]

    def run(self, key: bytes, start: int, end: int | None) -> Run:
        """Return the key's seqs in [start, end).

        Raises TurnOver: follow the chain further in another turn.
        """
        chain = self._kept.get(key)
        if chain is None:
            few = array("q", islice(self.back(key, start), _CHAIN_MIN))
            if len(few) < _CHAIN_MIN:
                few.reverse()
                return _within(few, start, end)
            chain = self._kept[key] = self._walked(key)
            self._kept_entries += len(chain)
        if chain[-1] < self.last(key):
            newer = array("q", self.back(key, chain[-1] + 1))
            newer.reverse()
            chain += newer
            self._kept_entries += len(newer)
        self._kept.move_to_end(key)
        while self._kept_entries > _CHAINED_MAX and len(self._kept) > 1:
            self._kept_entries -= len(self._kept.popitem(last=False)[1])
        return _within(chain, start, end)

    def forget(self, count: int) -> bool:
        """Free `count` keys. Return whether some are left."""
        self._kept.clear()
        for _ in repeat(None, min(count, len(self.newest))):
            self.newest.popitem()
        return bool(self.newest)

    def _walked(self, key: bytes) -> "array[int]":
        """Return all seqs of the key, ascending, as of when a read began to follow the chain."""
        turns = self._cache.turns
        if turns is None:
            found = array("q", self.back(key, 0))
            found.reverse()
            return found
        part = ("chain", key, id(self))
        walk = turns.kept.get(part)
        if walk is None or walk.chains is not self:
            walk = turns.kept[part] = _Walk(self, array("q", [self.last(key)]))
        found, first, previous = walk.seqs, self._first_seq, self._previous
        if found[0] < found[-1]:
            return found  # complete since an earlier turn, and dropped here for others
        while (position := previous[found[-1] - first]) >= 0:
            turns.check()
            before = len(found)
            found.extend(islice(self._from(position), _STEP))
            turns.spend(_ENTRY_COST * (len(found) - before))
        found.reverse()
        return found

    def _from(self, position: int) -> Iterator[int]:
        first, previous = self._first_seq, self._previous
        while position >= 0:
            yield first + position
            position = previous[position]


def _within(seqs: "array[int]", start: int, end: int | None) -> Run:
    """Return the part of ascending seqs in [start, end)."""
    high = len(seqs) if end is None else bisect_left(seqs, end)
    return Run(seqs, bisect_left(seqs, start, 0, high), high)
