"""Encoding a block: each of its columns is a stretch of a column of all entries.

`segment_block` says what a block looks like, and decodes it.
"""

import msgpack
import numpy as np

from .entries import SortedEntries
from .segment_block import HEAD, WIDE_SEQS, WIDE_TIMESTAMPS, Codec
from .segment_format import BLOCK, Bases, seal


class BlockEncoder:
    """Encodes blocks of the same sorted entries."""

    def __init__(self, entries: SortedEntries, codec: Codec, bases: Bases) -> None:
        self._entries = entries
        self._codec = codec
        self._bases = bases
        self._wide = WIDE_SEQS * (bases.seq_code == "Q")
        self._wide |= WIDE_TIMESTAMPS * (bases.timestamp_code == "Q")
        keys, values = entries.keys, entries.values
        self._key_lengths = keys.lengths.astype(np.uint16)
        self._key_ends = np.append(keys.starts, keys.extent[1])
        self._key_data = keys.data.data
        self._value_ends = np.append(values.starts, values.extent[1])
        self._value_data = values.data.data
        self._starts = np.append(entries.starts, len(entries)).astype(np.uint32)
        self._key_of = np.repeat(np.arange(len(keys)), entries.key_counts)

    def keys_of(self, begin: int, end: int) -> tuple[int, int]:
        """Return the half-open positions of the keys of the entries at these positions."""
        return self._key_of.item(begin), self._key_of.item(end - 1) + 1

    def encode(self, begin: int, end: int, ordinal: int) -> bytes:
        """Return the bytes of a block of the entries at these positions.

        The first key of the next block is that of the entry at `end`, or nil without an entry.
        """
        entries, codec = self._entries, self._codec
        first, behind = self.keys_of(begin, end)
        counts = b""
        if behind - first != end - begin:
            edges = self._starts[first : behind + 1].copy()
            edges[0], edges[-1] = begin, end
            counts = (edges[1:] - edges[:-1]).tobytes()
        keys = self._key_data[self._key_ends.item(first) : self._key_ends.item(behind)]
        values = self._value_data[self._value_ends.item(begin) : self._value_ends.item(end)]
        head = b"".join(
            (
                self._key_lengths[first:behind].data, counts, entries.seqs[begin:end].data,
                entries.timestamps[begin:end].data, entries.lengths[begin:end].data, keys,
                msgpack.packb(self._tail(begin, end)),
            )
        )  # fmt: skip
        packed_head = codec.pack_head(head)
        mode, packed = codec.pack_values(values)
        start = HEAD.pack(
            mode, self._wide, end - begin, behind - first, self._bases.seq,
            self._bases.timestamp_ms, len(keys), len(head), len(packed_head), len(values),
        )  # fmt: skip
        return seal(b"".join((start, packed_head, packed)), BLOCK, ordinal)

    def _tail(self, begin: int, end: int) -> tuple[object, ...]:
        """Return the next block's first key, headers and snapshots: nil for what there is none."""
        entries, headers, snapshots = self._entries, None, None
        following = entries.keys[self._key_of.item(end)] if end < len(entries) else None
        if entries.headers:
            among = entries.headers.items()
            headers = {at - begin: found for at, found in among if begin <= at < end}
        if entries.snapshots:
            snapshots = sorted(at - begin for at in entries.snapshots if begin <= at < end)
        return following, headers or None, snapshots or None
