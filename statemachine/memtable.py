"""Entries applied but not yet in a segment, kept in the batches in which they came.

A position p holds the entry of seq first_seq + p. Per position the memtable knows the key and
the position of the key's entry before it; per key the newest position. So an append costs a dict
update per record, all of it in C for a batch without repeated keys, and a read follows the chain.
Values stay packed in their batch until they are read.
"""

from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from itertools import islice

from ..client.records import Batch
from ..client.types import Entry, Headers


class ValueCache:
    """Decoded value columns, least recently used out first, bounded in packed bytes."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._columns: OrderedDict[int, tuple[Batch, list[bytes | None]]] = OrderedDict()

    def values(self, batch: Batch) -> list[bytes | None]:
        """The batch's value column."""
        key = id(batch)
        found = self._columns.get(key)
        if found is not None:
            self._columns.move_to_end(key)
            return found[1]
        column = batch.values()
        self._columns[key] = (batch, column)
        self._bytes += batch.values_size
        while self._bytes > self._bytes_max and len(self._columns) > 1:
            _, (old, _) = self._columns.popitem(last=False)
            self._bytes -= old.values_size
        return column


class Slice:
    """A batch, the positions in it that were new (None: all), and its timestamp."""

    __slots__ = ("batch", "data", "first_position", "selected", "timestamp_ms")

    def __init__(
        self,
        batch: Batch,
        data: bytes,
        selected: list[int] | None,
        first_position: int,
        timestamp_ms: int,
    ) -> None:
        self.batch = batch
        self.data = data
        self.selected = selected
        self.first_position = first_position
        self.timestamp_ms = timestamp_ms


class Memtable:
    """See the module. Frozen by no longer adding to it."""

    def __init__(self, first_seq: int, cache: ValueCache) -> None:
        self.first_seq = first_seq
        self.bytes = 0
        self.slices: list[Slice] = []
        self._cache = cache
        self._starts: list[int] = []
        self._keys: list[bytes] = []
        self._newest: dict[bytes, int] = {}
        self._previous: list[int | None] = []
        self._sorted: list[bytes] = []
        self._sorted_to = 0

    def __len__(self) -> int:
        return len(self._keys)

    @property
    def end_seq(self) -> int:
        """One above the last seq held."""
        return self.first_seq + len(self._keys)

    def add(
        self, batch: Batch, data: bytes, selected: list[int] | None, timestamp_ms: int
    ) -> Sequence[bytes]:
        """Append the batch's records, or those selected, and return their keys."""
        keys = batch.keys if selected is None else [batch.keys[i] for i in selected]
        position = len(self._keys)
        newest = self._newest
        if len(set(keys)) == len(keys):
            self._previous.extend(map(newest.get, keys))
            newest.update(zip(keys, range(position, position + len(keys)), strict=True))
        else:
            for at, key in enumerate(keys, position):
                self._previous.append(newest.get(key))
                newest[key] = at
        self._keys.extend(keys)
        self.slices.append(Slice(batch, data, selected, position, timestamp_ms))
        self._starts.append(position)
        self.bytes += len(data) + 64 * len(keys)
        return keys

    def last_seq(self, key: bytes) -> int:
        """The key's last seq here, 0 when it has none."""
        position = self._newest.get(key)
        return 0 if position is None else self.first_seq + position

    def seqs(self, key: bytes, start: int, end: int | None) -> list[int]:
        """The key's seqs in [start, end), ascending."""
        found = []
        position = self._newest.get(key)
        lowest = start - self.first_seq
        highest = None if end is None else end - self.first_seq
        while position is not None and position >= lowest:
            if highest is None or position < highest:
                found.append(self.first_seq + position)
            position = self._previous[position]
        found.reverse()
        return found

    def entry(self, seq: int) -> Entry:
        """The entry of a seq that is held."""
        position = seq - self.first_seq
        slice_ = self.slices[bisect_right(self._starts, position) - 1]
        at = position - slice_.first_position
        if slice_.selected is not None:
            at = slice_.selected[at]
        batch = slice_.batch
        headers: list[Headers | None] | None = batch.headers()
        return Entry(
            key=self._keys[position],
            seq=seq,
            timestamp_ms=slice_.timestamp_ms,
            headers=None if headers is None else headers[at],
            value=self._cache.values(batch)[at],
            snapshot=at in batch.snapshots,
        )

    def key_at(self, seq: int) -> bytes:
        """The key of a seq that is held."""
        return self._keys[seq - self.first_seq]

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
        at = bisect_left(self.slices, timestamp_ms, key=lambda slice_: slice_.timestamp_ms)
        if at == len(self.slices):
            return None
        return self.first_seq + self.slices[at].first_position

    def _sorted_keys(self) -> list[bytes]:
        if self._sorted_to < len(self._keys):
            fresh = [
                key
                for key, previous in zip(
                    islice(self._keys, self._sorted_to, None),
                    islice(self._previous, self._sorted_to, None),
                    strict=True,
                )
                if previous is None
            ]
            self._sorted_to = len(self._keys)
            if fresh:
                self._sorted += fresh
                self._sorted.sort()  # two runs, nearly: a merge
        return self._sorted
