"""Encoding a block that is laid out. `segment_block` describes the bytes, and decodes them."""

from bisect import bisect_left
from operator import itemgetter
from typing import Any

import msgpack
import numpy as np

from .block_layout import Laid
from .entries import Entries
from .segment_block import HEAD, WIDE_SEQS, WIDE_TIMESTAMPS, Codec
from .segment_format import BLOCK, Bases, seal
from .strings import Numbers


class BlockEncoder:
    """Encodes the blocks of a segment."""

    def __init__(self, codec: Codec, bases: Bases) -> None:
        self._codec = codec
        self._bases = bases
        self._wide = WIDE_SEQS * (bases.seq_code == "Q")
        self._wide |= WIDE_TIMESTAMPS * (bases.timestamp_code == "Q")

    def encode(self, laid: Laid, marks: "HeaderMarks", ordinal: int) -> bytes:
        """Return the bytes of a block."""
        codec, bases = self._codec, self._bases
        tail = (laid.following, *marks.between(laid.end - laid.entries, laid.end))
        head = laid.head + msgpack.packb(tail)
        packed_head = codec.pack_head(head)
        mode, packed = codec.pack_values(laid.values)
        start = HEAD.pack(
            mode, self._wide, laid.entries, laid.keys, bases.seq, bases.timestamp_ms,
            laid.key_bytes, len(head), len(packed_head), len(laid.values),
        )  # fmt: skip
        return seal(start, BLOCK, ordinal, packed_head, packed)


class HeaderMarks:
    """The headers of entries, and which are snapshots, by place in an order."""

    def __init__(self, entries: Entries, order: Numbers) -> None:
        self._headers: list[tuple[int, Any]] = []
        self._snapshots: list[int] = []
        if not entries.headers and not entries.snapshots:
            return
        places = np.full(len(entries), -1)  # for entries that the order leaves out
        places[order] = np.arange(len(order))
        headers, snapshots = [*entries.headers], [*entries.snapshots]
        found = zip(places[headers].tolist(), entries.headers.values(), strict=True)
        self._headers = sorted((pair for pair in found if pair[0] >= 0), key=itemgetter(0))
        self._snapshots = sorted(at for at in places[snapshots].tolist() if at >= 0)

    def between(self, begin: int, end: int) -> tuple[dict[int, Any] | None, list[int] | None]:
        """Return the headers and snapshots at these places, counted from `begin` on; None without
        any."""
        headers, snapshots = self._headers, self._snapshots
        if headers:
            low, high = (bisect_left(headers, at, key=itemgetter(0)) for at in (begin, end))
            headers = headers[low:high]
        if snapshots:
            low, high = (bisect_left(snapshots, at) for at in (begin, end))
            snapshots = snapshots[low:high]
        return (
            {at - begin: found for at, found in headers} or None,
            [at - begin for at in snapshots] or None,
        )
