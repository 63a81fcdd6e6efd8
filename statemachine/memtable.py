"""Entries applied but not yet in a segment, kept in the batches in which they came.

A position p holds the entry of seq first_seq + p. Per position the memtable knows the position of
the key's entry before it, per key the newest position; keys and values stay packed in their batch
until they are read. So an append costs two dict operations a record, all of it in C, and a read
follows the chain. Of keys with many entries that are read again and again, the chain is kept as an
array, which goes on where it ended: else a page from the beginning of a hot key would pass all
that the key has, at 0.1 us an entry.
"""

import sys
from array import array
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from itertools import islice, repeat
from operator import itemgetter
from typing import Final

from ..client import limits
from ..client.records import Batch, decode_batch
from ..client.types import Entry, Headers
from .turns import Turns

_NONE: Final = -1
_BYTES_BYTES: Final = 33
_KEY_BYTES: Final = _BYTES_BYTES + 32
"""Of a bytes object and an int beside what they hold, in CPython."""
_BATCH_BYTES: Final = 32
"""Of a batch in the lists of batches."""
_first = itemgetter(0)
_CHAIN_MIN: Final = 64
"""Entries of a chain that is kept: a shorter one is followed as quickly."""
_CHAINED_MAX: Final = 1 << 17
"""Entries of all chains that a memtable keeps: 1 MiB. One alone may be longer."""


_BATCH_COST: Final = 2 * limits.KIB
"""The least that decoding a batch counts for in a turn: 4 us."""
_PORTION_BYTES: Final = limits.MIB
"""Keys, values and headers of the batches of a portion; one batch may have more."""
_PAIR_BYTES: Final = 100
"""Memory of a header, and of what a map of headers takes, beside its bytes."""
_KIND: Final = b"columns"


class Columns:
    """A decoded batch: what reads need of it."""

    __slots__ = ("data", "headers", "keys", "size", "snapshots", "values")

    def __init__(self, data: bytes) -> None:
        self.data = data
        batch = decode_batch(data)
        self.keys: list[bytes] = batch.keys
        self.values: list[bytes | None] = batch.values()
        self.headers: list[Headers | None] | None = batch.headers()
        self.snapshots: frozenset[int] = batch.snapshots
        self.size = len(data) + batch.values_size + 2 * (8 + 33) * batch.count
        if self.headers is not None:
            maps = list(filter(None, self.headers))
            self.size += len(batch.packed_headers or b"")
            self.size += _PAIR_BYTES * (len(maps) + sum(map(len, maps)))


class ColumnCache:
    """Decoded batches of a node's memtables, least recently used out first, bounded in bytes."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self.bytes = 0
        self._columns: OrderedDict[int, Columns] = OrderedDict()
        self.turns: Turns | None = None
        """Of the read that is going on, where it must not decode as much as it likes."""

    def columns(self, data: bytes) -> Columns:
        """The batch's columns. Raises TurnOver: they are not here, and must not be decoded now."""
        key = id(data)  # of no other object, for as long as it is held here
        found = self._columns.get(key)
        if found is not None:
            self._columns.move_to_end(key)
            return found
        turns, part = self.turns, ("", _KIND, key)
        if turns is not None:
            found = turns.kept.get(part)
            if found is not None:
                return found
            turns.check()
        columns = Columns(data)
        if turns is not None:
            turns.decoded(part, columns, cost_min=_BATCH_COST)
        self._columns[key] = columns
        self.bytes += columns.size
        while self.bytes > self._bytes_max and len(self._columns) > 1:
            _, old = self._columns.popitem(last=False)
            self.bytes -= old.size
        return columns


class Memtable:
    """See the module. Frozen by no longer adding to it."""

    def __init__(self, first_seq: int, cache: ColumnCache) -> None:
        self.first_seq = first_seq
        self.unpacked_bytes = 0
        """What keys and values take when nothing is compressed: what a builder has to hold."""
        self._cache = cache
        # Batches as columns: with an object for each, a collection of garbage would look at
        # hundreds of thousands of them, and take hundreds of milliseconds.
        self._data: list[bytes] = []
        self._selected: dict[int, list[int]] = {}
        """Of the batches of which not all was new, the positions that were."""
        self._timestamps = array("q")
        self._starts = array("q")
        """The position of each batch's first entry."""
        self._weights = array("q", [0])
        """Bytes of keys, values and headers before each batch, unpacked; at last, of all."""
        self._newest: dict[bytes, int] = {}
        self._previous = array("i")
        self._chains: OrderedDict[bytes, array[int]] = OrderedDict()
        """Of some keys the seqs from their first one on, ascending; least recently used first."""
        self._chained = 0
        self._sorted: list[bytes] = []
        self._data_bytes = 0
        self._key_bytes = 0

    def __len__(self) -> int:
        return len(self._previous)

    @property
    def size(self) -> int:
        """Bytes of memory held, to within a fifth."""
        return (
            self._data_bytes
            + self._key_bytes
            + sys.getsizeof(self._newest)
            + sys.getsizeof(self._previous)
            + sys.getsizeof(self._sorted)
            + _BATCH_BYTES * len(self._data)
        )

    @property
    def end_seq(self) -> int:
        """One above the last seq held."""
        return self.first_seq + len(self._previous)

    def add(
        self, batch: Batch, data: bytes, selected: list[int] | None, timestamp_ms: int
    ) -> Sequence[bytes]:
        """Append the batch's records, or those selected, and return their keys."""
        keys = batch.keys if selected is None else [batch.keys[i] for i in selected]
        position, distinct = len(self._previous), len(self._newest)
        newest = self._newest
        # One pass in C: for each record first what was the key's newest, then that it is this.
        replace = map(newest.__setitem__, keys, range(position, position + len(keys)))
        read = map(newest.get, keys, repeat(_NONE))
        self._previous.extend(map(_first, zip(read, replace)))  # noqa: B905  of equal length
        if selected is not None:
            self._selected[len(self._data)] = selected
        self._data.append(data)
        self._timestamps.append(timestamp_ms)
        self._starts.append(position)
        unpacked = len(data) - len(batch.packed_values) + batch.values_size
        self._weights.append(self._weights[-1] + unpacked)
        key_bytes = sum(map(len, keys))
        self._data_bytes += len(data) + _BYTES_BYTES
        fresh = len(newest) - distinct
        self._key_bytes += fresh * (_KEY_BYTES + key_bytes // len(keys))
        self.unpacked_bytes += key_bytes + batch.values_size
        return keys

    def last_seq(self, key: bytes) -> int:
        """The key's last seq here, 0 when it has none."""
        position = self._newest.get(key)
        return 0 if position is None else self.first_seq + position

    def seqs_reversed(self, key: bytes, start: int, end: int | None) -> Iterator[int]:
        """The key's seqs in [start, end), descending."""
        if end is not None and end < self.end_seq:
            return reversed(self.seqs(key, start, end))
        return self._back(key, start)

    def seqs(self, key: bytes, start: int, end: int | None) -> "array[int]":
        """The key's seqs in [start, end), ascending."""
        chain = self._chains.get(key)
        if chain is None:
            found = self._after(key, max(start, self.first_seq) - 1)
            if len(found) < _CHAIN_MIN:
                return _within(found, start, end)
            chain = found if start <= self.first_seq else self._after(key, self.first_seq - 1)
            self._chains[key] = chain
            self._chained += len(chain)
        elif chain[-1] < self._newest[key] + self.first_seq:
            newer = self._after(key, chain[-1])
            chain += newer
            self._chained += len(newer)
        self._chains.move_to_end(key)
        while self._chained > _CHAINED_MAX and len(self._chains) > 1:
            self._chained -= len(self._chains.popitem(last=False)[1])
        return _within(chain, start, end)

    def _after(self, key: bytes, seq: int) -> "array[int]":
        """The key's seqs above one, ascending."""
        found = array("q", self._back(key, seq + 1))
        found.reverse()
        return found

    def _back(self, key: bytes, least: int) -> Iterator[int]:
        """The key's seqs from its last one down to `least`."""
        first, previous = self.first_seq, self._previous
        position, lowest = self._newest.get(key, _NONE), max(0, least - first)
        while position >= lowest:
            yield first + position
            position = previous[position]

    def entry(self, seq: int) -> Entry:
        """The entry of a seq that is held."""
        batch, at = self._place(seq)
        columns = self._cache.columns(self._data[batch])
        return Entry(
            key=columns.keys[at],
            seq=seq,
            timestamp_ms=self._timestamps[batch],
            headers=None if columns.headers is None else columns.headers[at] or None,
            value=columns.values[at],
            snapshot=at in columns.snapshots,
        )

    def key_at(self, seq: int) -> bytes:
        """The key of a seq that is held."""
        batch, at = self._place(seq)
        return self._cache.columns(self._data[batch]).keys[at]

    def portion_end(self, seq: int, entries_max: int) -> int:
        """Return the end of what is read together from a held `seq` on: at most `entries_max`
        entries, of one batch or of batches that are not too large to be decoded together."""
        position, weights = seq - self.first_seq, self._weights
        batch = bisect_right(self._starts, position) - 1
        behind = bisect_right(weights, weights[batch] + _PORTION_BYTES) - 1
        behind = max(behind, batch + 1)
        end = self._starts[behind] if behind < len(self._starts) else len(self)
        return self.first_seq + min(end, position + entries_max)

    def keys_after(self, prefix: bytes, after: bytes | None) -> Iterator[bytes]:
        """Keys with the prefix and above `after`, in order."""
        ordered = self._sorted_keys()
        begin = bisect_left(ordered, prefix)
        if after is not None:
            begin = max(begin, bisect_right(ordered, after))
        for key in islice(ordered, begin, None):
            if not key.startswith(prefix):
                return
            yield key

    def first_seq_from(self, timestamp_ms: int) -> int | None:
        """The first seq whose timestamp is not below, None when there is none."""
        at = bisect_left(self._timestamps, timestamp_ms)
        return None if at == len(self._data) else self.first_seq + self._starts[at]

    @property
    def batch_count(self) -> int:
        """How many batches are held."""
        return len(self._data)

    def batches(self, begin: int, end: int) -> list[tuple[bytes, list[int] | None, int]]:
        """Some of the batches: bytes, positions that were new (None: all), timestamp."""
        selected = map(self._selected.get, range(begin, end))
        return list(zip(self._data[begin:end], selected, self._timestamps[begin:end], strict=False))

    def shrink(self, count: int) -> bool:
        """Let go of so many keys and batches of a memtable that nobody reads any more; False once
        it is empty. A million objects that went at once would hold the loop for 100 ms."""
        self._chains.clear()
        newest = self._newest
        for _ in repeat(None, min(count, len(newest))):
            newest.popitem()
        del self._sorted[-count:]
        del self._data[-count:]
        return bool(newest or self._sorted or self._data)

    def _place(self, seq: int) -> tuple[int, int]:
        """The batch that holds a seq, and where in it."""
        position = seq - self.first_seq
        batch = bisect_right(self._starts, position) - 1
        at = position - self._starts[batch]
        selected = self._selected.get(batch)
        return batch, at if selected is None else selected[at]

    def _sorted_keys(self) -> list[bytes]:
        if len(self._sorted) < len(self._newest):
            # A dict keeps the order in which its keys came.
            self._sorted += islice(self._newest, len(self._sorted), None)
            self._sorted.sort()  # two runs, nearly: a merge
        return self._sorted


def _within(seqs: "array[int]", start: int, end: int | None) -> "array[int]":
    """Those of ascending seqs that are in [start, end)."""
    high = len(seqs) if end is None else bisect_left(seqs, end)
    return seqs[bisect_left(seqs, start, 0, high) : high]
