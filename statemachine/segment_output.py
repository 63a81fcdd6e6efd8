"""Writing a segment file from entries that come sorted by (key, seq), in pieces of any size.

Every put appends (MDB_APPEND), which fills pages completely and looks nothing up. Each result is
checked by an invariant, since an append out of order returns False without an exception.
"""

import os
from array import array
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

import lmdb
import numpy as np

from ..client.protocol import limits
from ..client.protocol.invariants import invariant
from .block_layout import ALL_BYTES, ENTRY_BYTES, Laid, layout_of
from .block_output import BlockEncoder, HeaderMarks
from .bloom_output import FilterOutput
from .entries import Entries, joined
from .file_hash import hash_file
from .order_output import OrderOutput
from .recent_pages import NEW_BYTES_MAX, forget_pages
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
from .strings import Marks, Numbers
from .write_back import write_back

_PAGE_BYTES: Final = 4096
_PAGE_HEADER_BYTES: Final = 16
"""The header of the first page of a large value in LMDB."""
_INLINE_BYTES: Final = 2_000
"""The largest value that lies in a leaf page beside others."""


class _Held(NamedTuple):
    """Entries in order that may grow into a block, and which of them begin a key."""

    entries: Entries
    fresh: Marks


class SegmentOutput:
    """The output of one segment, a context manager: it removes an unfinished file. Raises OSError.

    `sample` has some of the values; it decides with `value_gain` how values are compressed
    (`segment_dictionary`). `data_bytes`: about the
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
        value_gain: int,
    ) -> None:
        self._path = path
        self._codec = choose_codec(sample, value_gain)
        self._encoder = BlockEncoder(self._codec, bases)
        self._bases = bases
        self._held: _Held | None = None
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

    def add(self, entries: Entries, order: Numbers, fresh: Marks) -> None:
        """Append entries that follow the entries added before, in this order of their positions.

        `fresh` tells which of them have another key than the entry before.
        """
        if not len(order):
            return
        self._entries += len(order)
        timestamps = entries.timestamps[order]
        self._least_ms = min(self._least_ms, int(timestamps.min()))
        self._greatest_ms = max(self._greatest_ms, int(timestamps.max()))
        fresh = fresh.copy()
        fresh[0] = True
        held = self._held
        if held is not None:
            before = held.entries
            fresh[0] = before.keys[len(before) - 1] != entries.keys[order.item(0)]
            entries = joined([before, entries])
            order = np.concatenate((np.arange(len(before)), order + len(before)))
            fresh = np.concatenate((held.fresh, fresh))
        self._held = self._cut(entries, order, fresh, last=False)

    def finish(self, first_seq: int, end_seq: int) -> SegmentInfo:
        """Write the rest, sync, and close. The file covers the seqs in [first_seq, end_seq)."""
        invariant(self._entries > 0, "a segment would have no entries")
        if self._held is not None:
            entries, fresh = self._held
            self._cut(entries, np.arange(len(entries)), fresh, last=True)
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
        content_id, size = hash_file(self._path), self._path.stat().st_size
        if size > NEW_BYTES_MAX:
            with suppress(OSError):  # it costs memory alone
                forget_pages(self._path)
        return SegmentInfo(
            content_id=content_id, size=size,
            entries=footer.entries, first_seq=first_seq, end_seq=end_seq,
            min_key=footer.min_key, max_key=footer.max_key,
            min_timestamp_ms=footer.min_timestamp_ms, max_timestamp_ms=footer.max_timestamp_ms,
        )  # fmt: skip

    # Blocks.

    def _cut(self, entries: Entries, order: Numbers, fresh: Marks, *, last: bool) -> "_Held | None":
        """Write whole blocks and return the remaining entries, which may grow into a block.

        `last`: write all entries.
        """
        keys = entries.keys.take(order[fresh])
        layout = layout_of(entries, order, fresh, keys, _header_sizes(entries))
        marks = HeaderMarks(entries, order)
        self._filters.begin(keys)
        end = 0
        while (found := layout.take(self._block_bytes, last)) is not None:
            laid = Laid._make(found)
            data = self._encoder.encode(laid, marks, len(self._ranks))
            self._put_block(laid.first_key, laid.first_seq, data)
            self._filters.add(laid.behind)
            self._written += laid.entries
            self._data_bytes += laid.size - ENTRY_BYTES * laid.entries
            if laid.entries > 1:
                self._block_bytes = _fitting(laid.size, len(data))
            end = laid.end
        self._filters.end()
        rest = layout.take(ALL_BYTES, True)
        if rest is None:
            return None
        fresh = fresh[end:].copy()
        fresh[0] = True
        return _Held(entries.held(order[end:], Laid._make(rest).values), fresh)

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


def _header_sizes(entries: Entries) -> Numbers | None:
    """Return the bytes of the headers of each entry, or None without headers.

    Headers count: otherwise a block of entries with little else would be decoded to 12 MB.
    """
    if not entries.headers:
        return None
    sizes: Numbers = np.zeros(len(entries), np.int64)
    for at, headers in entries.headers.items():
        sizes[at] = headers_bytes(headers)
    return sizes


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
