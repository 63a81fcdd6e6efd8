"""The seqs of each key in a memtable: sorted runs of hashes, as in a log-structured merge tree.

An append adds the hash of its key to a column. After `_TAIL` entries the column is sorted to a run
of (hash, position), and runs of like size are merged, so that a memtable has a few runs (the
logarithmic method: Bentley and Saxe, 1980). All of this is done by C over columns.
A dict of the newest position of each key took 0.85 us with a million keys, since each look-up
reads four places of memory that no cache holds.

A look-up asks the column and each run, from the newest on, and compares the keys that it finds. The
last seqs of many keys, which conditions need, come from a table (`newest_table`, or without a
compiler `newest_positions`, where that knows them). The hash is Python's own, keyed by a secret of
the process (SipHash), so nobody can choose keys of equal hashes. For keys with many entries and
repeated reads, the seqs found are kept, and extended later. Within a turn of the loop (see `turns`)
a read follows a bounded number of entries, and goes on from there in the next turn.
"""

import struct
from array import array
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..client.protocol.key_column import KeyColumn
from ..client.protocol.native import native
from .column_cache import ColumnCache
from .compiled import memtables
from .key_store import KeyStore
from .newest_positions import NewestPositions
from .newest_table import NewestTable

_TAIL: Final = 1_024
"""Entries that are in no run yet; a look-up searches all of them in 1 us."""
_HASH_BYTES: Final = 8
_packed: Final = struct.Struct("=q").pack
_RUN_MAX: Final = 1 << 17
"""The most entries of a run: to merge two halves takes 2 ms."""
_ENTRY_BYTES: Final = 8 + 4
"""The memory of an entry, besides its key: the hash and the position."""
_CHAIN_MIN: Final = 64
"""The least number of seqs of a key that are kept: fewer are found as quickly."""
_CHAINED_MAX: Final = 1 << 17
"""The kept seqs of a memtable: 1 MiB. A single key may have more."""
_STEP: Final = 2_048
"""The entries of a key that are passed between two checks of the turn."""
_MANY: Final = 16
"""From so many keys on, all are searched together."""
_ENTRY_COST: Final = 64
"""The cost of passing an entry of a key, 0.1 us."""


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
    """The seqs of a key that a read has found, descending from the newest, or ascending once all
    are there."""

    owner: "SeqIndex"
    seqs: "array[int]"


_NOWHERE: Final = np.empty(0, np.intp)


class _Hashes(NamedTuple):
    """A run of entries: their hashes, ascending, and positions, ascending where hashes are equal.

    The positions are all from `begin` up to the begin of the next run.
    """

    begin: int
    hashes: "NDArray[np.int64]"
    positions: "NDArray[np.int32]"
    bisected: memoryview
    """The hashes once more: `bisect` finds a hash here in a third of NumPy's time."""

    @classmethod
    def ended(cls, begin: int, tail: bytearray) -> "_Hashes":
        """Return the entries with these hashes, packed, at the positions from `begin` on."""
        if native is not None:
            return cls.packed(begin, *native.sorted_run(tail, begin))
        hashes = np.frombuffer(tail, np.int64)
        return cls.sorted(begin, hashes, np.arange(begin, begin + len(hashes), dtype=np.int32))

    def merged(self, newer: "_Hashes") -> "_Hashes":
        """Return the entries of both runs."""
        if native is not None:
            runs = (self.hashes, self.positions, newer.hashes, newer.positions)
            return self.packed(self.begin, *native.merged_runs(*runs))
        hashes = np.concatenate((self.hashes, newer.hashes))
        return self.sorted(self.begin, hashes, np.concatenate((self.positions, newer.positions)))

    @classmethod
    def packed(cls, begin: int, hashes: bytes, positions: bytes) -> "_Hashes":
        """Return a run of sorted columns."""
        column = np.frombuffer(hashes, np.int64)
        return cls(begin, column, np.frombuffer(positions, np.int32), column.data)

    @classmethod
    def sorted(
        cls, begin: int, hashes: "NDArray[np.int64]", positions: "NDArray[np.int32]"
    ) -> "_Hashes":
        """Return the entries with these hashes at these positions, which ascend."""
        order = hashes.argsort(kind="stable")  # Timsort: it merges runs that ascend already
        hashes = hashes[order]
        return cls(begin, hashes, positions[order], hashes.data)

    def of(self, hash_: int) -> "NDArray[Any]":
        """Return the positions with this hash."""
        hashes = self.bisected
        low = bisect_left(hashes, hash_)
        if low == len(hashes) or hashes[low] != hash_:
            return _NOWHERE
        return self.positions[low : bisect_right(hashes, hash_, low)]


class SeqIndex:
    """See the module. `cache` knows the present turn of a read."""

    def __init__(self, first_seq: int, cache: ColumnCache) -> None:
        self.keys = KeyStore()
        """The key of each position: a seq less the first."""
        self._first_seq = first_seq
        self._cache = cache
        self._tail = bytearray()
        """The hashes of the newest positions, side by side."""
        self._runs: list[_Hashes] = []
        self._newest: NewestTable | NewestPositions | None = None
        """Made by the first look-up of last seqs; without entries that came since the last look."""
        self._kept: OrderedDict[bytes, array[int]] = OrderedDict()
        """The seqs of some keys from their first on, ascending; the least recently used is first.
        """
        self._kept_entries = 0

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def size(self) -> int:
        """The bytes of memory, without the kept seqs."""
        newest = 0 if self._newest is None else self._newest.size
        return _ENTRY_BYTES * len(self.keys) + self.keys.size + newest

    def add(self, keys: KeyColumn) -> None:
        """Append an entry of each of the keys."""
        self.keys.add(keys)
        self._tail += keys.hashes
        if len(self._tail) >= _TAIL * _HASH_BYTES:
            self._end_tail()

    def last(self, key: bytes) -> int:
        """Return the key's last seq, or 0 without an entry."""
        keys, hash_ = self.keys, hash(key)
        found = self._in_tail(hash_)
        for run in reversed(self._runs):
            if len(found):
                break
            found = run.of(hash_)
        if not len(found):
            return 0
        position = int(found[-1])
        if keys[position] == key:
            return self._first_seq + position
        return next(self.back(key, 0), 0)  # another key has the same hash

    def lasts(self, keys: list[bytes]) -> list[int]:
        """Return the last seq of each key, or 0 without an entry."""
        end = len(self.keys)
        if not end:
            return [0] * len(keys)
        newest = self._newest
        if newest is None or not newest.has_room(end):
            newest = NewestPositions(end) if memtables is None else NewestTable(self.keys)
            for run in self._runs:
                newest.add(run.hashes, run.positions)
            self._newest = newest
        self._catch_up(newest)
        if isinstance(newest, NewestTable):
            return newest.lasts(keys, self._first_seq - 1)
        return self._lasts_by_places(newest, keys)

    def _lasts_by_places(self, newest: NewestPositions, keys: list[bytes]) -> list[int]:
        """Do what `lasts` does, without the compiled table."""
        held, before = self.keys, self._first_seq - 1
        places = newest.of(np.fromiter(map(hash, keys), np.int64, len(keys)))
        found, others = [0] * len(keys), list[int]()
        data, ends = held.data, held.ends
        there = places.nonzero()[0]
        for at, place in zip(there.tolist(), places[there].tolist(), strict=True):
            if data[ends[place - 1] : ends[place]] == keys[at]:
                found[at] = before + place
            else:
                others.append(at)
        for at, seq in zip(others, self._searched([keys[at] for at in others]), strict=True):
            found[at] = seq
        return found

    def _searched(self, keys: list[bytes]) -> list[int]:
        """Do what `lasts` does without any table, for keys whose places other keys have."""
        if len(keys) < _MANY:
            return list(map(self.last, keys))
        found, first, data, ends = [0] * len(keys), self._first_seq, self.keys.data, self.keys.ends
        hashes, places = np.fromiter(map(hash, keys), np.int64, len(keys)), np.arange(len(keys))
        for run in (*self._tail_run(), *reversed(self._runs)):
            at = run.hashes.searchsorted(hashes, "right") - 1
            hits = run.hashes[at] == hashes  # at -1 the largest hash is compared: larger, no hit
            positions = run.positions[at[hits]].tolist()
            for place, position in zip(places[hits].tolist(), positions, strict=True):
                key, low, high = keys[place], ends[position], ends[position + 1]
                found[place] = first + position if data[low:high] == key else self.last(key)
            places, hashes = places[~hits], hashes[~hits]
            if not len(places):
                break
        return found

    def _catch_up(self, newest: NewestTable | NewestPositions) -> None:
        """Add the entries of the tail that the table does not have."""
        begin = newest.count
        fresh = _HASH_BYTES * (len(self.keys) - begin)
        if fresh:
            hashes = np.frombuffer(self._tail, np.int64, offset=len(self._tail) - fresh)
            newest.add(hashes, begin)

    def back(self, key: bytes, least: int, end: int | None = None) -> Iterator[int]:
        """Yield the key's seqs below `end` from the last down to `least`."""
        first, data, ends, hash_ = self._first_seq, self.keys.data, self.keys.ends, hash(key)
        lowest = max(0, least - first)
        limit = len(self.keys) if end is None else end - first
        for found in self._descending(hash_, lowest, limit):
            for position in found:
                if position < lowest:
                    return
                if data[ends[position] : ends[position + 1]] == key:
                    yield first + position

    def run(self, key: bytes, start: int, end: int | None) -> Run:
        """Return the key's seqs in [start, end).

        Raises TurnOver: look for more of them in another turn.
        """
        chain = self._kept.get(key)
        if chain is None:
            few = array("q", islice(self.back(key, start), _CHAIN_MIN))
            if len(few) < _CHAIN_MIN:
                few.reverse()
                return _within(few, start, end)
            chain = self._kept[key] = self._walked(key)
            self._kept_entries += len(chain)
        newer = array("q", self.back(key, chain[-1] + 1))
        newer.reverse()
        chain += newer
        self._kept_entries += len(newer)
        self._kept.move_to_end(key)
        while self._kept_entries > _CHAINED_MAX and len(self._kept) > 1:
            self._kept_entries -= len(self._kept.popitem(last=False)[1])
        return _within(chain, start, end)

    def forget(self) -> None:
        """Free the memory. Nobody reads any more."""
        self._kept.clear()
        self._runs.clear()
        self._newest = None
        self._tail = bytearray()
        self.keys.clear()

    def _walked(self, key: bytes) -> "array[int]":
        """Return all seqs of the key, ascending, as of when a read began to look for them."""
        turns = self._cache.turns
        if turns is None:
            found = array("q", self.back(key, 0))
            found.reverse()
            return found
        part = ("chain", key, id(self))
        walk = turns.kept.get(part)
        if walk is None or walk.owner is not self:
            walk = turns.kept[part] = _Walk(self, array("q", [self.last(key)]))
        found = walk.seqs
        if found[0] < found[-1]:
            return found  # complete since an earlier turn, and dropped here for others
        while True:
            turns.check()
            before = len(found)
            found.extend(islice(self.back(key, 0, found[-1]), _STEP))
            turns.spend(_ENTRY_COST * (len(found) - before))
            if len(found) < before + _STEP:
                break
        found.reverse()
        return found

    def _descending(self, hash_: int, lowest: int, limit: int) -> Iterator[list[int]]:
        """Yield the positions below `limit` with this hash, descending, some at a time.

        Appends between two steps change nothing.
        """
        begin, runs = self._tail_begin, tuple(self._runs)
        if begin < limit:
            found = self._in_tail(hash_)
            yield found[found < limit][::-1].tolist()
        for run in reversed(runs):
            if begin <= lowest:
                return
            begin = run.begin
            if begin < limit:
                found = run.of(hash_)
                for until in range(len(found), 0, -_STEP):
                    some = found[max(0, until - _STEP) : until][::-1].tolist()
                    yield some if some[0] < limit else [at for at in some if at < limit]

    @property
    def _tail_begin(self) -> int:
        """The first position that is in no run yet."""
        return len(self.keys) - len(self._tail) // _HASH_BYTES

    def _in_tail(self, hash_: int) -> "NDArray[Any]":
        """Return the positions with this hash that are in no run yet."""
        if self._tail.rfind(_packed(hash_)) < 0:  # as nearly always; bytes are searched at once
            return _NOWHERE
        places: NDArray[Any] = (np.frombuffer(self._tail, np.int64) == hash_).nonzero()[0]
        places += self._tail_begin
        return places

    def _tail_run(self) -> list[_Hashes]:
        """Return the entries that are in no run yet as a run, if there are any."""
        if not self._tail:
            return []
        return [_Hashes.ended(self._tail_begin, self._tail)]

    def _end_tail(self) -> None:
        """Make a run of the newest entries; merge it with those before it that are not larger."""
        runs = self._runs
        if self._newest is not None:
            self._catch_up(self._newest)
        runs += self._tail_run()
        self._tail = bytearray()
        while len(runs) > 1:
            older, newer = runs[-2:]
            if not len(older.hashes) <= 2 * len(newer.hashes) <= _RUN_MAX:
                return
            runs[-2:] = [older.merged(newer)]


def _within(seqs: "array[int]", start: int, end: int | None) -> Run:
    """Return the part of ascending seqs in [start, end)."""
    high = len(seqs) if end is None else bisect_left(seqs, end)
    return Run(seqs, bisect_left(seqs, start, 0, high), high)
