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
        self._value_ends = np.append(values.starts, values.extent[1])
        self._starts = np.append(entries.starts, len(entries))

    def keys_of(self, begin: int, end: int) -> tuple[int, int]:
        """Return the half-open positions of the keys of the entries at these positions."""
        starts = self._entries.starts
        first = int(starts.searchsorted(begin, "right")) - 1
        return first, int(starts.searchsorted(end))

    def encode(self, begin: int, end: int, keys: tuple[int, int], ordinal: int) -> bytes:
        """Return the bytes of a block of the entries at these positions, which have these keys.

        The first key of the next block is that of the entry at `end`, or nil without an entry.
        """
        entries, codec = self._entries, self._codec
        first, behind = keys
        counts = b""
        if behind - first != end - begin:
            edges = self._starts[first : behind + 1].clip(begin, end)
            counts = np.diff(edges).astype(np.uint32).tobytes()
        key_data = entries.keys.data[self._key_ends[first] : self._key_ends[behind]]
        values = entries.values.data[self._value_ends[begin] : self._value_ends[end]]
        head = b"".join(
            (
                self._key_lengths[first:behind].data, counts, entries.seqs[begin:end].data,
                entries.timestamps[begin:end].data, entries.lengths[begin:end].data,
                key_data.data, msgpack.packb(self._tail(begin, end, behind)),
            )
        )  # fmt: skip
        packed_head = codec.pack_head(head)
        mode, packed = codec.pack_values(values.data)
        start = HEAD.pack(
            mode, self._wide, end - begin, behind - first, self._bases.seq,
            self._bases.timestamp_ms, len(key_data), len(head), len(packed_head), len(values),
        )  # fmt: skip
        return seal(b"".join((start, packed_head, packed)), BLOCK, ordinal)

    def _tail(self, begin: int, end: int, behind: int) -> tuple[object, ...]:
        """Return the next block's first key, headers and snapshots: nil for what there is none."""
        entries = self._entries
        following = None
        if end < len(entries):
            # The entry may go on with the last key of this block.
            goes_on = behind == len(entries.keys) or self._starts[behind] > end
            following = entries.keys[behind - 1 if goes_on else behind]
        headers = (
            {at - begin: found for at, found in entries.headers.items() if begin <= at < end}
            if entries.headers
            else None
        )
        snapshots = (
            sorted(at - begin for at in entries.snapshots if begin <= at < end)
            if entries.snapshots
            else None
        )
        return following, headers or None, snapshots or None
