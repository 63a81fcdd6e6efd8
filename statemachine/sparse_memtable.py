"""A memtable of restored entries, whose seqs have gaps.

A restored range gives entries the seqs that they had in the backup. Entries between them went to
other ranges at a split, or were removed. So this memtable keeps its entries in a dense memtable,
and a column with the seq of each entry. Entries appended later go on from the end.
"""

from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from ..client.protocol.key_column import KeyColumn
from ..client.protocol.records import Batch
from ..client.protocol.types import Entry
from .column_cache import ColumnCache
from .memtable import Memtable
from .spans import Span

if TYPE_CHECKING:
    from numpy.typing import NDArray

_FIRST: Final = 1
"""The first seq of the dense memtable: 0 says that a key has no entry."""
_SEQ_BYTES: Final = 8


class SparseMemtable(Memtable):
    """See the module. All seqs of the methods are the entries' own."""

    def __init__(self, first_seq: int, cache: ColumnCache) -> None:
        super().__init__(first_seq, cache)
        self._dense = Memtable(_FIRST, cache)
        self._seqs = array("q")
        self._end = first_seq

    def __len__(self) -> int:
        return len(self._seqs)

    @property
    def size(self) -> int:
        """The bytes of memory held, to within a fifth."""
        return self._dense.size + _SEQ_BYTES * len(self._seqs)

    @property
    def end_seq(self) -> int:
        """The seq that the next entry gets."""
        return self._end

    def restore(self, batch: Batch, data: bytes, seqs: "array[int]", timestamp_ms: int) -> None:
        """Add the batch's records with these seqs, which rise from `end_seq` on."""
        self._dense.add(batch, data, None, timestamp_ms)
        self._seqs += seqs
        self._end = seqs[-1] + 1
        self.unpacked_bytes = self._dense.unpacked_bytes

    def skip_to(self, seq: int) -> None:
        """Let the next entry have this seq, which is not below `end_seq`."""
        self._end = seq

    def add(
        self, batch: Batch, data: bytes, selected: list[int] | None, timestamp_ms: int
    ) -> KeyColumn:
        """Append the batch's records, or the selected ones, and return their keys."""
        keys = self._dense.add(batch, data, selected, timestamp_ms)
        self._seqs.extend(range(self._end, self._end + keys.count))
        self._end += keys.count
        self.unpacked_bytes = self._dense.unpacked_bytes
        return keys

    def last_seq(self, key: bytes) -> int:
        """Return the key's last seq here, or 0 without an entry of the key."""
        return self._own(self._dense.last_seq(key))

    def last_seqs(self, keys: list[bytes]) -> list[int]:
        """Return the last seq of each key here, or 0 without an entry of the key."""
        return list(map(self._own, self._dense.last_seqs(keys)))

    def seqs_reversed(self, key: bytes, start: int, end: int | None) -> Iterator[int]:
        """Return the key's seqs in [start, end), descending."""
        return map(self._own, self._dense.seqs_reversed(key, *self._bounds(start, end)))

    def seqs(self, key: bytes, start: int, end: int | None) -> Iterator[int]:
        """Return the key's seqs in [start, end), ascending."""
        return map(self._own, self._dense.seqs(key, *self._bounds(start, end)))

    def count(self, key: bytes, start: int, end: int | None) -> int:
        """Return how many entries of the key lie in [start, end)."""
        return self._dense.count(key, *self._bounds(start, end))

    def seq_from_end(self, key: bytes, n: int, end: int | None) -> int:
        """Return the seq of the key's n-th entry below `end`, counted back; it must exist."""
        return self._own(self._dense.seq_from_end(key, n, self._bounds(0, end)[1]))

    def prefixes(self, begin: int) -> tuple["NDArray[np.int64]", "NDArray[np.int64]"]:
        """Return the first two bytes of the key, as a number, and the seq of each entry from
        `begin` on. Entries with shorter keys are left out."""
        found, dense = self._dense.prefixes(self._at(begin))
        return found, np.array(self._seqs, np.int64)[dense - _FIRST]

    def entry(self, seq: int) -> Entry:
        """Return the entry of a held seq."""
        return self._dense.entry(self._at(seq))._replace(seq=seq)

    def key_at(self, seq: int) -> bytes:
        """Return the key of a held seq."""
        return self._dense.key_at(self._at(seq))

    def held(self, begin: int, end: int) -> Sequence[int]:
        """Return the seqs in [begin, end) that have an entry."""
        return self._seqs[bisect_left(self._seqs, begin) : bisect_left(self._seqs, end)]

    def entries(self, begin: int, end: int) -> list[Entry]:
        """Return the entries of the held seqs in [begin, end), in the order of seq."""
        low, high = self._at(begin), self._at(end)
        if low >= high:
            return []
        seqs = self._seqs[low - _FIRST : high - _FIRST]
        found = self._dense.entries(low, high)
        return [entry._replace(seq=seq) for entry, seq in zip(found, seqs, strict=True)]

    def runs(self, begin: int, end: int, span: Span) -> Iterator[tuple[int, int]]:
        """Yield the begins and ends of the seqs in [begin, end) that may have keys of the span."""
        low, high = self._bounds(begin, end)
        assert high is not None
        if low < high:
            for left, right in self._dense.runs(low, high, span):
                yield self._own(left), end if right == high else self._own(right)

    def plain(self, begin: int, end: int) -> None:
        """Return nothing: the seqs of these entries have gaps."""

    def portion_end(self, seq: int, entries_max: int) -> int:
        """Return the end of the portion that is read together from `seq` on."""
        low = self._at(seq)
        if low >= _FIRST + len(self):
            return self._end
        high = self._dense.portion_end(low, entries_max)
        return self._end if high >= _FIRST + len(self) else self._own(high)

    def keys_after(self, prefix: bytes, after: bytes | None) -> Iterator[bytes]:
        """Return the keys with the prefix and above `after`, in order."""
        return self._dense.keys_after(prefix, after)

    def first_seq_from(self, timestamp_ms: int) -> int | None:
        """Return the first seq whose timestamp is not below `timestamp_ms`, or None."""
        found = self._dense.first_seq_from(timestamp_ms)
        return None if found is None else self._own(found)

    @property
    def batch_count(self) -> int:
        """The number of held batches."""
        return self._dense.batch_count

    def sources(self, begin: int, end: int) -> list[tuple[bytes, list[int] | None, int, bytes]]:
        """Return some of the batches as `batches`, each with the seqs of its new records."""
        starts = self._dense.starts(begin, end)
        return [
            (*batch, self._seqs[low:high].tobytes())
            for batch, low, high in zip(
                self._dense.batches(begin, end), starts, starts[1:], strict=False
            )
        ]

    def shrink(self, count: int) -> bool:
        """Free `count` keys and batches of a memtable without readers. False once it is empty."""
        del self._seqs[:]
        return self._dense.shrink(count)

    def _own(self, dense: int) -> int:
        """Return the entry's seq, or 0 for 0."""
        return self._seqs[dense - _FIRST] if dense else 0

    def _at(self, seq: int) -> int:
        """Return the dense seq of the first entry with this seq or a higher one."""
        return _FIRST + bisect_left(self._seqs, seq)

    def _bounds(self, start: int, end: int | None) -> tuple[int, int | None]:
        return self._at(start), None if end is None else self._at(end)
