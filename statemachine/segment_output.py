"""Writing a segment file from entries that come sorted by (key, seq), in pieces of any size.

Every put appends (MDB_APPEND), which fills pages completely and looks nothing up. Each result is
checked by an invariant, since an append out of order returns False without an exception.
"""

import os
from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import lmdb
import numpy as np

from ..client.protocol import limits
from ..client.protocol.invariants import invariant
from .block_output import BlockEncoder
from .bloom_output import FilterOutput
from .entries import SortedEntries
from .file_hash import hash_file
from .order_output import OrderOutput
from .room import headers_bytes
from .segment_dictionary import choose_codec
from .segment_format import (
    BLOCK,
    BLOOM,
    DICTIONARY,
    FOOTER,
    INDEX,
    ORDER,
    ORDINAL,
    POSITION,
    Bases,
    Footer,
    SegmentInfo,
    seal,
)
from .strings import Numbers
from .write_back import write_back

_ENTRY_BYTES: Final = 10
"""The bytes of an entry in a block besides its key, value and headers."""
_PAGE_BYTES: Final = 4096
_PAGE_HEADER_BYTES: Final = 16
"""The header of the first page of a large value in LMDB."""
_INLINE_BYTES: Final = 2_000
"""The largest value that lies in a leaf page beside others."""


class SegmentOutput:
    """The output of one segment, a context manager: it removes an unfinished file. Raises OSError.

    `sample` has some of the values; it decides how values are compressed. `data_bytes`: about the
    bytes of keys, values and headers; the file has at most twice as many.
    """

    def __init__(
        self,
        path: Path,
        *,
        bases: Bases,
        data_bytes: int,
        entries: int,
        sample: Sequence[bytes | None],
    ) -> None:
        self._path = path
        self._codec = choose_codec(sample)
        self._bases = bases
        self._pending: SortedEntries | None = None
        self._block_bytes = limits.segment_block_bytes
        self._ranks = array("I")
        self._sizes = array("I")
        """The bytes of each block. `_ranks`: the number of entries before each block."""
        self._written = 0
        self._entries = 0
        self._data_bytes = 0
        self._least_ms, self._greatest_ms = 1 << 64, 0
        """The range of timestamps, less the base."""
        self._finished = False
        path.unlink(missing_ok=True)  # left by an unfinished build
        try:
            self._environment: Any = lmdb.open(
                str(path), subdir=False, map_size=2 * data_bytes + 128 * entries + (64 << 20),
                max_dbs=8, lock=False, sync=False, lib_version=0, mode=0o600,
            )  # fmt: skip
            self._index = self._environment.open_db(INDEX, dupsort=True)
            self._block = self._environment.open_db(BLOCK, integerkey=True)
            self._bloom = self._environment.open_db(BLOOM, integerkey=True)
            order = self._environment.open_db(ORDER, integerkey=True)
            self._footer = self._environment.open_db(FOOTER)
            self._transaction: Any = self._environment.begin(write=True)
            self._transaction.__enter__()
        except lmdb.Error as error:
            raise OSError(f"{path}: {error}") from error
        self._filters = FilterOutput(
            lambda at, table: self._put(self._bloom, ORDINAL.pack(at), seal(table, BLOOM, at))
        )
        self.order = OrderOutput(lambda at, data: self._put(order, ORDINAL.pack(at), data))
        """The caller adds the seq and the rank of every entry here, in the order of seq."""

    def __enter__(self) -> "SegmentOutput":
        return self

    def __exit__(self, *raised: Any) -> None:
        if not self._finished:
            self._transaction.abort()
            self._environment.close()
            self._path.unlink(missing_ok=True)

    @property
    def entries(self) -> int:
        """The number of added entries: the rank of the next entry."""
        return self._entries

    def add(self, entries: SortedEntries) -> None:
        """Append entries that follow the entries added before."""
        if len(entries):
            self._entries += len(entries)
            self._least_ms = min(self._least_ms, int(entries.timestamps.min()))
            self._greatest_ms = max(self._greatest_ms, int(entries.timestamps.max()))
            if self._pending is not None:
                entries = self._pending.followed_by(entries)
            self._pending = self._cut(entries, last=False)

    def finish(self, first_seq: int, end_seq: int) -> SegmentInfo:
        """Write the rest, sync, and close. The file covers the seqs in [first_seq, end_seq)."""
        invariant(self._entries > 0, "a segment would have no entries")
        if self._pending is not None:
            self._cut(self._pending, last=True)
        self._filters.finish()
        self.order.finish()
        invariant(
            self._entries == self.order.entries, "the order of a segment is of other entries",
            entries=self._entries, order=self.order.entries,
        )  # fmt: skip
        footer = Footer(
            entries=self._entries, keys=self._filters.keys, first_seq=first_seq, end_seq=end_seq,
            min_key=self._filters.first_keys[0], max_key=self._filters.last_key,
            min_timestamp_ms=self._bases.timestamp_ms + self._least_ms,
            max_timestamp_ms=self._bases.timestamp_ms + self._greatest_ms,
            data_bytes=self._data_bytes, ranks=self._ranks, sizes=self._sizes,
            order_seqs=array("Q", self.order.first_seqs), bloom_keys=self._filters.first_keys,
        )  # fmt: skip
        if self._codec.dictionary is not None:
            self._put(self._footer, DICTIONARY, seal(self._codec.dictionary, DICTIONARY))
        self._put(self._footer, FOOTER, footer.pack())
        try:
            self._transaction.__exit__(None, None, None)
            write_back(self._path)
            self._environment.sync(True)
        except lmdb.Error as error:
            raise OSError(f"{self._path}: {error}") from error
        self._finished = True
        self._environment.close()
        fd = os.open(self._path, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
        return SegmentInfo(
            content_id=hash_file(self._path), size=self._path.stat().st_size,
            entries=footer.entries, first_seq=first_seq, end_seq=end_seq,
            min_key=footer.min_key, max_key=footer.max_key,
            min_timestamp_ms=footer.min_timestamp_ms, max_timestamp_ms=footer.max_timestamp_ms,
        )  # fmt: skip

    # Blocks.

    def _cut(self, entries: SortedEntries, *, last: bool) -> SortedEntries | None:
        """Write whole blocks and return the remaining entries, which may grow into a block.

        `last`: write all entries.
        """
        ends = _ends(entries)
        encoder = BlockEncoder(entries, self._codec, self._bases)
        self._filters.begin(entries.keys)
        count, begin, before = len(entries), 0, 0
        while begin < count:
            end = int(ends.searchsorted(before + self._block_bytes, "right"))
            end = max(end, begin + 1)  # a larger entry has a block of its own
            if end == count and not last:
                break
            data = encoder.encode(begin, end, len(self._ranks))
            first, behind = encoder.keys_of(begin, end)
            self._put_block(entries.keys[first], entries.seqs.item(begin), data)
            self._filters.add(behind)
            self._written += end - begin
            size, before = ends.item(end - 1) - before, ends.item(end - 1)
            if end - begin > 1:
                self._block_bytes = _fitting(size, len(data))
            begin = end
        self._filters.end()
        self._data_bytes += before - _ENTRY_BYTES * begin
        return entries.from_(begin) if begin < count else None

    def _put_block(self, key: bytes, seq: int, data: bytes) -> None:
        """Store a block that begins with this key, and this seq less the base."""
        ordinal = len(self._ranks)
        self._put(self._index, key, POSITION.pack(self._bases.seq + seq, ordinal), dupdata=True)
        self._put(self._block, ORDINAL.pack(ordinal), data)
        self._ranks.append(self._written)
        self._sizes.append(len(data))

    def _put(self, database: Any, key: bytes, data: bytes, *, dupdata: bool = False) -> None:
        try:
            stored = self._transaction.put(key, data, append=True, dupdata=dupdata, db=database)
        except lmdb.Error as error:
            raise OSError(f"{self._path}: {error}") from error
        invariant(stored, "the file did not store a row of the segment", block=len(self._ranks))


def _ends(entries: SortedEntries) -> Numbers:
    """Return where each entry would end if the entries stood one after the other.

    Headers count: otherwise a block of entries with little else would be decoded to 12 MB.
    """
    sizes = np.repeat(entries.keys.lengths + _ENTRY_BYTES, entries.key_counts)
    sizes += entries.values.lengths
    for at, headers in entries.headers.items():
        sizes[at] += headers_bytes(headers)
    return np.cumsum(sizes)


def _fitting(size: int, stored: int) -> int:
    """Return the bytes of entries for the next block, after a block of `size` bytes took `stored`.

    The result is about the limit, and lets the block fill its pages, apart from variations of the
    compression.
    """
    target = limits.segment_block_bytes
    if stored * target <= _INLINE_BYTES * size:
        return target
    pages = max(1, round(stored * target / size / _PAGE_BYTES))
    room = pages * _PAGE_BYTES - _PAGE_HEADER_BYTES
    percent = 99 if stored > size - (size >> 4) else 96
    return max(target // 2, min(2 * target, room * size * percent // (100 * stored)))
