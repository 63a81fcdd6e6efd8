"""Applied entries that are not yet in a segment, kept in the batches in which they came.

A position p holds the entry of seq first_seq + p. Keys and values stay packed in their batch until
they are read. `seq_index` finds the positions of a key.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import repeat
from typing import TYPE_CHECKING, Final, NamedTuple

from ..client.protocol import limits
from ..client.protocol.entry_rows import entries_in
from ..client.protocol.key_column import KeyColumn
from ..client.protocol.records import Batch
from ..client.protocol.types import Entry, Headers
from . import batch_heads
from .batch_heads import BatchHeads
from .column_cache import ColumnCache
from .seq_index import SeqIndex
from .sorted_keys import SortedKeys
from .spans import Span

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_BYTES_BYTES: Final = 33
"""The overhead of a bytes object in CPython."""
_BATCH_BYTES: Final = 32 + batch_heads.BYTES
"""The size of a batch's place in the lists of batches."""
_PORTION_BYTES: Final = limits.MIB
"""The keys, values and headers of a portion's batches, in bytes; a single batch may have more."""


class Plain(NamedTuple):
    """Entries without headers, none of which is a snapshot, as columns of equal length."""

    keys: list[bytes]
    seqs: range
    timestamps: list[int]
    values: list[bytes | None]


class Memtable:
    """See the module. A memtable is frozen when nothing more is added to it."""

    def __init__(self, first_seq: int, cache: ColumnCache) -> None:
        self.first_seq = first_seq
        self.unpacked_bytes = 0
        """The size of keys and values when nothing is compressed: the builder has to hold it."""
        self._cache = cache
        # Batches are kept as columns: with an object for each batch, a garbage collection would
        # look at hundreds of thousands of objects, and take hundreds of milliseconds.
        self._data: list[bytes] = []
        self._selected: dict[int, list[int]] = {}
        """The new positions of batches that were not wholly new."""
        self._timestamps = array("q")
        self._starts = array("q")
        """The position of each batch's first entry."""
        self._weights = array("q", [0])
        """The unpacked bytes of keys, values and headers before each batch; the last element is the
        total."""
        self._heads = BatchHeads()
        self._index = SeqIndex(first_seq, cache)
        self._keys = SortedKeys(self._index.keys, cache)
        self._data_bytes = 0

    def __len__(self) -> int:
        return len(self._index)

    @property
    def size(self) -> int:
        """The bytes of memory held, to within a fifth."""
        return (
            self._data_bytes + self._index.size + self._keys.size + _BATCH_BYTES * len(self._data)
        )

    @property
    def end_seq(self) -> int:
        """One above the last held seq."""
        return self.first_seq + len(self._index)

    def add(
        self, batch: Batch, data: bytes, selected: list[int] | None, timestamp_ms: int
    ) -> KeyColumn:
        """Append the batch's records, or the selected ones, and return their keys."""
        keys = batch.key_column
        if selected is not None:
            keys = KeyColumn.of(list(map(batch.keys.__getitem__, selected)))
        position = len(self._index)
        self._index.add(keys)
        if selected is not None:
            self._selected[len(self._data)] = selected
        self._data.append(data)
        self._timestamps.append(timestamp_ms)
        self._starts.append(position)
        self._heads.add(keys)
        unpacked = len(data) - len(batch.packed_values) + batch.values_size
        self._weights.append(self._weights[-1] + unpacked)
        self._data_bytes += len(data) + _BYTES_BYTES
        self.unpacked_bytes += len(keys.data) + batch.values_size
        return keys

    def last_seq(self, key: bytes) -> int:
        """Return the key's last seq here, or 0 without an entry of the key."""
        return self._index.last(key)

    def last_seqs(self, keys: list[bytes]) -> list[int]:
        """Return the last seq of each key here, or 0 without an entry of the key."""
        return self._index.lasts(keys)

    def seqs_reversed(self, key: bytes, start: int, end: int | None) -> Iterator[int]:
        """Return the key's seqs in [start, end), descending."""
        if end is not None and end < self.end_seq:
            return reversed(self._index.run(key, start, end))
        return self._index.back(key, start)

    def seqs(self, key: bytes, start: int, end: int | None) -> Iterator[int]:
        """Return the key's seqs in [start, end), ascending."""
        return iter(self._index.run(key, start, end))

    def count(self, key: bytes, start: int, end: int | None) -> int:
        """Return how many entries of the key lie in [start, end)."""
        return len(self._index.run(key, start, end))

    def seq_from_end(self, key: bytes, n: int, end: int | None) -> int:
        """Return the seq of the key's n-th entry below `end`, counted back; it must exist."""
        run = self._index.run(key, self.first_seq, end)
        return run.seqs[run.high - n]

    def prefixes(self, begin: int) -> tuple["NDArray[np.int64]", "NDArray[np.int64]"]:
        """Return the first two bytes of the key, as a number, and the seq of each entry from
        `begin` on. Entries with shorter keys are left out."""
        found, positions = self._index.keys.prefixes(begin - self.first_seq)
        return found, positions + self.first_seq

    def entry(self, seq: int) -> Entry:
        """Return the entry of a held seq."""
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
        """Return the key of a held seq."""
        batch, at = self._place(seq)
        return self._cache.columns(self._data[batch]).keys[at]

    def entries(self, begin: int, end: int) -> list[Entry]:
        """Return the entries of the held seqs in [begin, end), in the order of seq."""
        found: list[Entry] = []
        position, behind = begin - self.first_seq, end - self.first_seq
        batch = bisect_right(self._starts, position) - 1
        while position < behind:
            start = self._starts[batch]
            stop = self._starts[batch + 1] if batch + 1 < len(self._starts) else len(self)
            stop = min(stop, behind)
            found += self._entries_of(batch, position - start, stop - start)
            position, batch = stop, batch + 1
        return found

    def runs(self, begin: int, end: int, span: Span) -> Iterator[tuple[int, int]]:
        """Yield the begins and ends of the seqs in [begin, end), all of which must be held, that
        may have keys of the span. No batch is decoded for that."""
        first = self.first_seq
        low = bisect_right(self._starts, begin - first) - 1
        high = bisect_left(self._starts, end - first)
        starts = self._starts
        for left, right in self._heads.runs(low, high, span):
            until = end if right == high else first + starts[right]
            yield max(begin, first + starts[left]), until

    def plain(self, begin: int, end: int) -> Plain | None:
        """Return the entries of the held seqs in [begin, end), some, without an object for each.
        None: an entry may have headers, be a snapshot, or come from a batch in parts."""
        keys: list[bytes] = []
        timestamps: list[int] = []
        values: list[bytes | None] = []
        position, behind = begin - self.first_seq, end - self.first_seq
        batch = bisect_right(self._starts, position) - 1
        while position < behind:
            columns = self._cache.columns(self._data[batch])
            if columns.headers or columns.snapshots or batch in self._selected:
                return None
            start = self._starts[batch]
            stop = min(start + len(columns.keys), behind)
            here = slice(position - start, stop - start)
            keys += columns.keys[here]
            values += columns.values[here]
            timestamps += repeat(self._timestamps[batch], stop - position)
            position, batch = stop, batch + 1
        return Plain(keys, range(begin, end), timestamps, values)

    def portion_end(self, seq: int, entries_max: int) -> int:
        """Return the end of the portion that is read together from a held `seq` on.

        A portion has at most `entries_max` entries, of one batch or of batches small enough to be
        decoded together.
        """
        position, weights = seq - self.first_seq, self._weights
        batch = bisect_right(self._starts, position) - 1
        behind = bisect_right(weights, weights[batch] + _PORTION_BYTES) - 1
        behind = max(behind, batch + 1)
        end = self._starts[behind] if behind < len(self._starts) else len(self)
        return self.first_seq + min(end, position + entries_max)

    def keys_after(self, prefix: bytes, after: bytes | None) -> Iterator[bytes]:
        """Return the keys with the prefix and above `after`, in order."""
        return self._keys.after(prefix, after)

    def first_seq_from(self, timestamp_ms: int) -> int | None:
        """Return the first seq whose timestamp is not below `timestamp_ms`, or None."""
        at = bisect_left(self._timestamps, timestamp_ms)
        return None if at == len(self._data) else self.first_seq + self._starts[at]

    @property
    def batch_count(self) -> int:
        """The number of held batches."""
        return len(self._data)

    def batches(self, begin: int, end: int) -> list[tuple[bytes, list[int] | None, int]]:
        """Return some of the batches: bytes, positions that were new (None: all), timestamp."""
        selected = map(self._selected.get, range(begin, end))
        return list(zip(self._data[begin:end], selected, self._timestamps[begin:end], strict=False))

    def held(self, begin: int, end: int) -> Sequence[int]:
        """Return the seqs in [begin, end), all of which must be held."""
        return range(begin, end)

    def starts(self, begin: int, end: int) -> list[int]:
        """Return the positions of the first entries of some batches, and of what follows."""
        found = self._starts[begin : end + 1].tolist()
        return found if end < len(self._starts) else [*found, len(self)]

    def shrink(self, count: int) -> bool:
        """Free `count` keys and batches of a memtable without readers. False once it is empty.

        Freeing a million objects at once would hold the loop for 100 ms.
        """
        del self._data[-count:]
        self._index.forget()
        has_sorted = self._keys.forget(count)
        return bool(self._data or has_sorted)

    def _entries_of(self, batch: int, low: int, high: int) -> list[Entry]:
        """Return the entries at these positions among the new ones of a batch."""
        columns = self._cache.columns(self._data[batch])
        selected, headers = self._selected.get(batch), columns.headers
        places: Sequence[int] = range(low, high) if selected is None else selected[low:high]
        first = self.first_seq + self._starts[batch] + low
        own: dict[int, Headers] = {}
        if headers is not None:
            named = enumerate(map(headers.__getitem__, places))
            own = {at: found for at, found in named if found}
        marks: list[int] = []
        if columns.snapshots:
            marks = [at for at, place in enumerate(places) if place in columns.snapshots]
        return entries_in(
            map(columns.keys.__getitem__, places), range(first, first + len(places)),
            [self._timestamps[batch]] * len(places), list(map(columns.values.__getitem__, places)),
            own, marks,
        )  # fmt: skip

    def _place(self, seq: int) -> tuple[int, int]:
        """Return the batch that holds a seq, and the position in the batch."""
        position = seq - self.first_seq
        batch = bisect_right(self._starts, position) - 1
        at = position - self._starts[batch]
        selected = self._selected.get(batch)
        return batch, at if selected is None else selected[at]
