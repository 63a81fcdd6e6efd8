"""A block: sorted entries as columns of offsets and data, decoded without an object per entry.

    crc32c u32
    head    HEAD, then zstandard of: key lengths u16, entries per key u32 (absent when each key has
            one), seqs and timestamps less the segment's least (u32, or u64 where they need it),
            value lengths u32 (ABSENT for none), the keys, and msgpack [first key of the next
            block or nil, headers or nil, positions of snapshots or nil]
    values  joined; zstandard with or without the segment's dictionary, or as they are

The block's own first key and the first key of the next block bracket the keys of the block, so that
a wrong index page is detected (x28). Zstandard compresses shared prefixes of keys: such keys lie
side by side.
"""

import struct
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from operator import add, sub
from typing import Final, Literal

import msgpack
import zstandard

from ..client.protocol import limits
from ..client.protocol.chunks import ABSENT, Chunk, totals
from ..client.protocol.errors import CorruptData
from ..client.protocol.records import decompress
from ..client.protocol.types import Entry, Headers
from .room import CHUNK_BYTES, ENTRY_BYTES, headers_bytes
from .segment_format import BLOCK, Stored, unseal

LEVEL: Final = 1
RAW, PLAIN, WITH_DICTIONARY = range(3)
"""How the values of a block are kept."""
HEAD: Final = struct.Struct("<BBIIQQIIII")
"""How values are kept, wide columns, entries, keys, first seq and timestamp, then the bytes of the
key column, of the unpacked head, of the packed head, and of the unpacked values."""
WIDE_SEQS, WIDE_TIMESTAMPS = 1, 2
BYTES_MAX: Final = 32 << 20
"""Blocks of earlier versions, which did not count headers, have up to 17 MB."""
_HEADER_OVERHEAD_BYTES: Final = 100
"""The size of the Python objects of one header, and of the map of an entry's headers."""
_KEY_OVERHEAD_BYTES: Final = 120
_ENTRY_OVERHEAD_BYTES: Final = 28
"""The size of the Python objects of a key and an entry of a decoded block, besides its bytes."""


class Codec:
    """Compresses and decompresses the blocks of one segment, always on one thread.

    `value_gain`: values stay compressed where this saves one part in so many of their bytes.
    """

    def __init__(
        self, mode: int, dictionary: bytes | None, *, value_gain: int = limits.value_gain
    ) -> None:
        self._value_gain = value_gain
        self.mode = mode
        self.dictionary = dictionary
        shared = zstandard.ZstdCompressionDict(dictionary) if dictionary else None
        self._plain = zstandard.ZstdCompressor(level=LEVEL)
        self._values = zstandard.ZstdCompressor(level=LEVEL, dict_data=shared)
        # Frames without a dictionary decode with it, too. Once used it takes 50 KB, or 60 with one.
        self._decompressor = zstandard.ZstdDecompressor(dict_data=shared)

    def pack_head(self, head: bytes) -> bytes:
        """Compress the part of a block besides the values."""
        return self._plain.compress(head)

    def pack_values(self, values: bytes) -> tuple[int, bytes]:
        """Compress values where it pays. Return how they are kept, and the bytes to keep."""
        if self.mode != RAW:
            packed = self._values.compress(values)
            if len(packed) < len(values) - len(values) // self._value_gain:
                return self.mode, packed
        return RAW, values

    def unpack(self, data: bytes | memoryview, mode: int, size: int) -> bytes:
        """Undo `pack_head` or `pack_values`. Raises ValueError."""
        if mode != RAW:
            return decompress(data, size, self._decompressor)
        if len(data) != size:
            raise ValueError(f"the block has {len(data)} bytes instead of {size}")
        return bytes(data)


class Block:
    """A decoded block: columns over its entries, sorted by (key, seq).

    A read of everything passes the columns on as they are. Only reads by key make a list of the
    keys, and of the places of the values.
    """

    __slots__ = (
        "_absent", "_data", "_first_ms", "_first_seq", "_key_data", "_key_lengths", "_lengths",
        "_made_ends", "_made_keys", "_made_starts", "_repeats", "_seqs", "_timestamps", "count",
        "headers", "last", "next_first_key", "size", "snapshots",
    )  # fmt: skip

    def __init__(self, data: Stored, codec: Codec, ordinal: int) -> None:
        """Decode the block. Raises CorruptData."""
        body = memoryview(unseal(data, BLOCK, ordinal))
        try:
            (
                mode, wide, self.count, distinct, self._first_seq, self._first_ms, key_bytes,
                head_bytes, packed_bytes, value_bytes,
            ) = HEAD.unpack_from(body)  # fmt: skip
            if max(head_bytes, value_bytes) > BYTES_MAX:
                raise ValueError(f"the block has {head_bytes} and {value_bytes} bytes")
            start = HEAD.size + packed_bytes
            head = codec.unpack(body[HEAD.size : start], PLAIN, head_bytes)
            self._data = codec.unpack(body[start:], mode, value_bytes)
            self._decode_head(head, wide, distinct, key_bytes)
        except Exception as error:  # msgpack raises half a dozen unrelated classes
            raise CorruptData(f"a segment block does not decode: {error}") from None
        self.size = (
            len(head) + value_bytes
            + _KEY_OVERHEAD_BYTES * distinct + _ENTRY_OVERHEAD_BYTES * self.count
        )  # fmt: skip
        if self.headers:
            pairs = sum(map(len, self.headers.values()))
            self.size += _HEADER_OVERHEAD_BYTES * (len(self.headers) + pairs)

    def _decode_head(self, head: bytes, wide: int, distinct: int, key_bytes: int) -> None:
        count = self.count
        view = memoryview(head)
        at = 0

        def column(code: Literal["H", "I", "Q"], width: int, length: int) -> "memoryview[int]":
            nonlocal at
            begin, at = at, at + length * width
            if at > len(head) or not length:
                raise ValueError("a column is too short")
            return view[begin:at].cast(code)

        self._key_lengths = column("H", 2, distinct)
        self._repeats = None if distinct == count else column("I", 4, distinct)
        self._seqs = column("Q", 8, count) if wide & WIDE_SEQS else column("I", 4, count)
        is_wide = wide & WIDE_TIMESTAMPS
        self._timestamps = column("Q", 8, count) if is_wide else column("I", 4, count)
        self._lengths = column("I", 4, count)
        sizes, absent = totals("I", self._lengths)
        self._absent: frozenset[int] = frozenset()
        if absent:
            self._absent = frozenset(i for i, n in enumerate(self._lengths) if n == ABSENT)
        if sizes - ABSENT * absent != len(self._data):
            raise ValueError("the values have another length")
        if self._repeats is not None and totals("I", self._repeats)[0] != count:
            raise ValueError("the columns have different lengths")
        if totals("H", self._key_lengths)[0] != key_bytes or at + key_bytes > len(head):
            raise ValueError("the keys end too early")
        self._key_data = head[at : at + key_bytes]
        begin = key_bytes - self._key_lengths[-1]
        self.last: tuple[bytes, int] = self._key_data[begin:], self.seq(count - 1)
        """The key and seq of the last entry."""
        self._made_keys: list[bytes] | None = None
        self._made_starts: Sequence[int] | None = None
        self._made_ends: array[int] | None = None
        tail = msgpack.unpackb(head[at + key_bytes :], strict_map_key=False)
        self.next_first_key: bytes | None = tail[0]
        self.headers: dict[int, Headers] = tail[1] or {}
        self.snapshots: frozenset[int] = frozenset(tail[2] or ())

    @property
    def keys(self) -> list[bytes]:
        """The distinct keys, in order."""
        found = self._made_keys
        if found is None:
            data, ends = self._key_data, accumulate(self._key_lengths, initial=0)
            found = self._made_keys = [data[a:b] for a, b in pairwise(ends)]
        return found

    @property
    def _starts(self) -> Sequence[int]:
        """The position of the first entry of each key, and the number of entries."""
        found = self._made_starts
        if found is None:
            found = range(self.count + 1)
            if self._repeats is not None:
                found = list(accumulate(self._repeats, initial=0))
            self._made_starts = found
        return found

    @property
    def _ends(self) -> "array[int]":
        """The place of each value among the values, and of their end."""
        found = self._made_ends
        if found is None:
            lengths: Sequence[int] = self._lengths
            if self._absent:
                lengths = [0 if n == ABSENT else n for n in lengths]
            found = self._made_ends = array("I", accumulate(lengths, initial=0))
        return found

    # Positions.

    @property
    def first(self) -> tuple[bytes, int]:
        """The key and seq of the first entry."""
        return self._key_data[: self._key_lengths[0]], self.seq(0)

    def seq(self, at: int) -> int:
        """Return the seq of the entry at a position."""
        return int(self._first_seq + self._seqs[at])

    def timestamp(self, at: int) -> int:
        """Return the timestamp of the entry at a position."""
        return int(self._first_ms + self._timestamps[at])

    def span(self, key: bytes) -> tuple[int, int]:
        """Return the half-open positions of the key's entries, or where they would be."""
        at = bisect_left(self.keys, key)
        begin = self._starts[at]
        if at < len(self.keys) and self.keys[at] == key:
            return begin, self._starts[at + 1]
        return begin, begin

    def slice(self, key: bytes, start: int, end: int | None) -> tuple[int, int]:
        """Return the half-open positions of the key's entries with seq in [start, end)."""
        low, high = self.span(key)
        low = bisect_left(self._seqs, start - self._first_seq, low, high)
        if end is not None:
            high = bisect_left(self._seqs, end - self._first_seq, low, high)
        return low, high

    # Content.

    def value(self, at: int) -> bytes | None:
        """Return the value at a position."""
        if at in self._absent:
            return None
        ends = self._ends
        return self._data[ends[at] : ends[at + 1]]

    def sizes(self, begin: int, end: int) -> list[tuple[bytes, int]]:
        """Return the keys at these positions, each with the bytes of its keys and values there."""
        ends = self._ends
        return [
            (key, (high - low) * len(key) + ends[high] - ends[low])
            for key, low, high in self.runs(begin, end)
        ]

    def runs(self, begin: int, end: int) -> Iterator[tuple[bytes, int, int]]:
        """Yield the keys of the entries at these positions, each with its own positions."""
        starts, keys = self._starts, self.keys
        for at in range(bisect_right(starts, begin) - 1, len(keys)):
            low, high = max(begin, starts[at]), min(end, starts[at + 1])
            if low >= high:
                break
            yield keys[at], low, high

    def key_at(self, at: int) -> bytes:
        """Return the key of the entry at a position."""
        return self.keys[bisect_right(self._made_starts or self._starts, at) - 1]

    def entry(self, at: int) -> Entry:
        """Return the entry at a position."""
        return Entry(
            self.key_at(at), self.seq(at), self.timestamp(at),
            self.headers.get(at), self.value(at), at in self.snapshots,
        )  # fmt: skip

    def chunk(self, begin: int, end: int) -> Chunk:
        """Return the entries at these positions, at least one, in the form of the block."""
        if not begin and end == self.count:
            return self._whole()
        keys, repeats = self.keys[begin:end], None
        if self._repeats is not None:
            low = bisect_right(self._starts, begin) - 1
            high = bisect_left(self._starts, end)
            edges = [begin, *self._starts[low + 1 : high], end]
            keys, repeats = self.keys[low:high], array("I", map(sub, edges[1:], edges)).tobytes()
        headers = {at - begin: found for at, found in self.headers.items() if begin <= at < end}
        snapshots = sorted(at - begin for at in self.snapshots if begin <= at < end)
        return Chunk(
            end - begin, self._first_seq, self._first_ms,
            array("H", map(len, keys)).tobytes(), repeats, b"".join(keys),
            self._seqs[begin:end].tobytes(), self._timestamps[begin:end].tobytes(),
            self._lengths[begin:end].tobytes(), self._data[self._ends[begin] : self._ends[end]],
            headers or None, snapshots or None,
        )  # fmt: skip

    def _whole(self) -> Chunk:
        repeats = None if self._repeats is None else self._repeats.tobytes()
        return Chunk(
            self.count, self._first_seq, self._first_ms, self._key_lengths.tobytes(), repeats,
            self._key_data, self._seqs.tobytes(), self._timestamps.tobytes(),
            self._lengths.tobytes(), self._data, self.headers or None,
            sorted(self.snapshots) or None,
        )  # fmt: skip

    def fitting(self, begin: int, end: int, bytes_max: int) -> int:
        """Return the position up to `end` where a chunk from `begin` on reaches `bytes_max`."""
        sizes = [
            ENTRY_BYTES + len(key)
            for key, low, high in self.runs(begin, end)
            for _ in range(low, high)
        ]
        for at, found in self.headers.items():
            if begin <= at < end:
                sizes[at - begin] += headers_bytes(found)
        values = map(sub, self._ends[begin + 1 : end + 1], self._ends[begin:end])
        ends = list(accumulate(map(add, sizes, values), initial=CHUNK_BYTES))
        return begin + max(0, bisect_right(ends, bytes_max) - 1)

    def numbers(self, begin: int, end: int) -> tuple[list[int], list[int], list[bool], list[bool]]:
        """Return seqs, timestamps, which entries have no value, and which are snapshots."""
        places = range(begin, end)
        return (
            list(map(self.seq, places)),
            list(map(self.timestamp, places)),
            [at in self._absent for at in places],
            [at in self.snapshots for at in places],
        )
