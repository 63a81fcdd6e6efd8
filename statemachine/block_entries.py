"""A block decoded as columns over numpy, for a merge. `segment_block` describes the bytes."""

from typing import Any, Final

import msgpack
import numpy as np
from numpy.typing import NDArray

from ..client.protocol.chunks import ABSENT
from ..client.protocol.errors import CorruptData
from .entries import Column, Entries
from .scattered import Scattered
from .segment_block import BYTES_MAX, HEAD, PLAIN, WIDE_SEQS, WIDE_TIMESTAMPS, Codec
from .segment_format import BLOCK, Bases, Stored, unseal
from .strings import SLACK, Marks, Numbers, Strings

_SLACK: Final = bytes(SLACK)


class EntryBlock:
    """The columns of a block. Raises CorruptData."""

    def __init__(self, data: Stored, codec: Codec, ordinal: int) -> None:
        body = unseal(data, BLOCK, ordinal)
        try:
            (
                mode, wide, self.count, distinct, self._first_seq, self._first_ms, key_bytes,
                head_bytes, packed_bytes, value_bytes,
            ) = HEAD.unpack_from(body)  # fmt: skip
            if max(head_bytes, value_bytes) > BYTES_MAX:
                raise ValueError(f"the block has {head_bytes} and {value_bytes} bytes")
            start = HEAD.size + packed_bytes
            head = codec.unpack(body[HEAD.size : start], PLAIN, head_bytes)
            values = codec.unpack(body[start:], mode, value_bytes)
            self._decode(_Head(head, self.count, distinct), wide, key_bytes, values)
        except Exception as error:  # msgpack raises half a dozen unrelated classes
            raise CorruptData(f"a segment block does not decode: {error}") from None

    def _decode(self, head: "_Head", wide: int, key_bytes: int, values: bytes) -> None:
        distinct, count = head.distinct, self.count
        key_lengths = head.column("H", distinct).astype(np.int64)
        counts: Numbers = np.ones(distinct, np.int64)
        if distinct != count:
            counts = head.column("I", distinct).astype(np.int64)
        self._starts = np.concatenate(([0], np.cumsum(counts)))
        """The position of the first entry of each key, and the number of entries."""
        self._seqs = head.column("Q" if wide & WIDE_SEQS else "I", count)
        self._timestamps = head.column("Q" if wide & WIDE_TIMESTAMPS else "I", count)
        lengths = head.column("I", count)
        absent: Marks = lengths == ABSENT
        self._absent = absent if absent.any() else None
        sizes = np.where(absent, 0, lengths).astype(np.int64)
        keys = head.rest(key_bytes)
        self.keys = Strings(
            np.frombuffer(keys + _SLACK, np.uint8), np.cumsum(key_lengths) - key_lengths,
            key_lengths,
        )  # fmt: skip
        self._values = Scattered.side_by_side(values, sizes)
        tail = msgpack.unpackb(head.rest(None), strict_map_key=False)
        self.next_first_key: bytes | None = tail[0]
        self._headers: dict[int, Any] = tail[1] or {}
        self._snapshots: frozenset[int] = frozenset(tail[2] or ())
        if (int(self._starts[-1]), int(key_lengths.sum()), int(sizes.sum())) != (
            count, len(keys), len(values),
        ):  # fmt: skip
            raise ValueError("the columns have different lengths")

    @property
    def first(self) -> tuple[bytes, int]:
        """The key and seq of the first entry."""
        return self.keys[0], self._first_seq + self._seqs.item(0)

    @property
    def last(self) -> tuple[bytes, int]:
        """The key and seq of the last entry."""
        return self.keys[len(self.keys) - 1], self._first_seq + self._seqs.item(-1)

    def span(self, key: bytes) -> tuple[int, int]:
        """Return the half-open positions of the key's entries, or where they would be."""
        low, high = 0, len(self.keys)
        while low < high:
            middle = (low + high) // 2
            if self.keys[middle] < key:
                low = middle + 1
            else:
                high = middle
        found = low < len(self.keys) and self.keys[low] == key
        return self._starts.item(low), self._starts.item(low + found)

    def entries(self, begin: int, end: int, bases: Bases) -> Entries:
        """Return the entries at these positions, for a segment with these bases."""
        counts = np.diff(self._starts.clip(begin, end))
        headers, snapshots = self._headers, self._snapshots
        if begin or end < self.count:
            headers = {at - begin: found for at, found in headers.items() if begin <= at < end}
            snapshots = frozenset(at - begin for at in snapshots if begin <= at < end)
        return Entries(
            self.keys.repeated(counts),
            _moved(self._seqs[begin:end], self._first_seq - bases.seq, bases.seq_code),
            _moved(
                self._timestamps[begin:end], self._first_ms - bases.timestamp_ms,
                bases.timestamp_code,
            ),
            self._values.slice(begin, end),
            None if self._absent is None else self._absent[begin:end], headers, snapshots,
        )  # fmt: skip


class _Head:
    """The columns of a block's head, read one after the other."""

    def __init__(self, data: bytes, count: int, distinct: int) -> None:
        if not count or not distinct:
            raise ValueError("the block has no entries")
        self.distinct = distinct
        self._data = data
        self._at = 0

    def column(self, code: str, length: int) -> NDArray[Any]:
        """Return the next column of numbers. Raises ValueError when it is too short."""
        kind = np.dtype(code)
        found: NDArray[Any] = np.frombuffer(self._data, kind, length, self._at)
        self._at += length * kind.itemsize
        return found

    def rest(self, length: int | None) -> bytes:
        """Return so many of the next bytes, or all."""
        begin, self._at = self._at, len(self._data) if length is None else self._at + length
        return self._data[begin : self._at]


def _moved(column: NDArray[Any], more: int, code: str) -> Column:
    """Return the numbers with `more` added to each."""
    if not more and column.dtype == np.dtype(code):
        return column
    return (column.astype(np.int64) + more).astype(code)
