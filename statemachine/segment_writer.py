"""Building a segment: sort by (key, seq), cut into blocks, load in order into a fresh file.

Runs in the builder process. Every put appends (MDB_APPEND), which fills pages completely and
never looks anything up; each result is an invariant, since an append out of order returns False
without an exception.
"""

import hashlib
import os
from array import array
from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Sequence
from itertools import accumulate, repeat
from operator import add
from pathlib import Path
from typing import Any, Final, NamedTuple

import lmdb
import zstandard

from ..client import limits
from ..client.invariants import invariant
from ..client.records import decode_batch
from . import bloom
from .segment_format import (
    BLOCK,
    BLOOM,
    FOOTER,
    INDEX,
    ORDER,
    ORDINAL,
    POSITION,
    Columns,
    Footer,
    encode_block,
    seal,
)

_ENTRY_BYTES: Final = 16
"""Of an entry in a block beside its key and value."""


class SegmentInfo(NamedTuple):
    """A finished file: its content id is the SHA-256 of its bytes, in hex."""

    content_id: str
    size: int
    entries: int
    first_seq: int
    end_seq: int
    min_key: bytes
    max_key: bytes
    min_timestamp_ms: int
    max_timestamp_ms: int

    @classmethod
    def from_wire(cls, fields: Sequence[Any]) -> "SegmentInfo":
        """Undo `list`. The id becomes a file's name. Raises ValueError, TypeError."""
        info = cls(*fields)
        for value, kind in zip(info, cls.__annotations__.values(), strict=True):
            if type(value) is not kind:
                raise ValueError(f"{value!r} in a segment's row is no {kind.__name__}")
        if not (info.content_id.isascii() and info.content_id.isalnum()):
            raise ValueError(f"{info.content_id!r} is no content id")
        return info


class Source(NamedTuple):
    """A batch to be built in: its bytes, the positions that were new or None, its timestamp."""

    data: bytes
    selected: list[int] | None
    timestamp_ms: int


class _Rows:
    """All records as columns: first as they came, in the order of seq; then sorted.

    Nothing here is done in Python per record that a function of C can do per column.
    """

    def __init__(self, sources: Sequence[Source]) -> None:
        self.keys: list[bytes] = []
        self.values: list[bytes | None] = []
        self.timestamps: list[int] = []
        self.headers: dict[int, Any] = {}
        self.snapshots: set[int] = set()
        for source in sources:
            self._add(source)
        # Stable, so it is by (key, seq).
        self.order = sorted(range(len(self.keys)), key=self.keys.__getitem__)

    def _add(self, source: Source) -> None:
        batch = decode_batch(source.data)
        keys, values, headers = batch.keys, batch.values(), batch.headers()
        chosen = source.selected
        begin = len(self.keys)
        if chosen is not None:
            keys = [keys[i] for i in chosen]
            values = [values[i] for i in chosen]
        places = range(batch.count) if chosen is None else chosen
        if headers is not None or batch.snapshots:
            for at, place in enumerate(places, begin):
                if headers is not None and headers[place]:
                    self.headers[at] = headers[place]
                if place in batch.snapshots:
                    self.snapshots.add(at)
        self.keys += keys
        self.values += values
        self.timestamps += [source.timestamp_ms] * len(keys)

    def sort(self) -> None:
        """Bring keys, values and timestamps into order; `order` keeps where they came from."""
        order = self.order
        self.keys = list(map(self.keys.__getitem__, order))
        self.values = list(map(self.values.__getitem__, order))
        self.timestamps = list(map(self.timestamps.__getitem__, order))

    def blocks(self) -> list[tuple[int, int]]:
        """Half-open slices of the sorted columns, about one block's bytes each."""
        lengths = map(len, [value or b"" for value in self.values])
        sizes = map(add, map(len, self.keys), lengths)
        ends = list(accumulate(map(add, sizes, repeat(_ENTRY_BYTES))))
        blocks = []
        begin = before = 0
        while begin < len(ends):
            end = bisect_right(ends, before + limits.segment_block_bytes, begin)
            end = max(end, begin + 1)
            blocks.append((begin, end))
            begin, before = end, ends[end - 1]
        return blocks

    def columns(self, begin: int, end: int, first_seq: int) -> Columns:
        """The block of a slice."""
        counts = Counter(self.keys[begin:end])  # in the order in which they come
        positions = self.order[begin:end]
        headers, snapshots = {}, []
        if self.headers or self.snapshots:
            for at, position in enumerate(positions):
                if position in self.headers:
                    headers[at] = self.headers[position]
                if position in self.snapshots:
                    snapshots.append(at)
        return Columns(
            distinct=list(counts),
            counts=list(counts.values()),
            seqs=list(map(first_seq.__add__, positions)),
            timestamps=self.timestamps[begin:end],
            values=self.values[begin:end],
            headers=headers,
            snapshots=snapshots,
        )


def build(path: Path, first_seq: int, sources: Sequence[Source]) -> SegmentInfo:
    """Write the segment of these batches to `path`, synced. Raises OSError."""
    rows = _Rows(sources)
    count = len(rows.keys)
    invariant(count > 0, "a segment without entries is built")
    rows.sort()
    blocks = rows.blocks()
    data_bytes = sum(map(len, filter(None, rows.values))) + sum(map(len, rows.keys))
    path.unlink(missing_ok=True)  # of a build that did not end
    try:
        environment = lmdb.open(
            str(path), subdir=False, map_size=2 * data_bytes + 64 * count + (64 << 20),
            max_dbs=4, lock=False, sync=False, lib_version=0,
        )  # fmt: skip
        try:
            _load(environment, rows, blocks, first_seq)
            environment.sync(True)
        finally:
            environment.close()
    except lmdb.Error as error:
        raise OSError(f"{path}: {error}") from error
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
    return SegmentInfo(
        content_id=hash_file(path),
        size=path.stat().st_size,
        entries=count,
        first_seq=first_seq,
        end_seq=first_seq + count,
        min_key=rows.keys[0],
        max_key=rows.keys[-1],
        min_timestamp_ms=min(rows.timestamps),
        max_timestamp_ms=max(rows.timestamps),
    )


def hash_file(path: Path) -> str:
    """SHA-256 of a file, in hex."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _load(
    environment: Any,
    rows: _Rows,
    blocks: list[tuple[int, int]],
    first_seq: int,
) -> None:
    index = environment.open_db(INDEX, dupsort=True)
    block = environment.open_db(BLOCK, integerkey=True)
    footer = environment.open_db(FOOTER)
    distinct_keys: list[bytes] = []
    count = len(rows.keys)
    with environment.begin(write=True) as transaction:
        for ordinal, (begin, end) in enumerate(blocks):
            columns = rows.columns(begin, end, first_seq)
            following = rows.keys[end] if end < count else None
            stored = transaction.put(
                columns.distinct[0], POSITION.pack(columns.seqs[0], ordinal),
                append=True, dupdata=True, db=index,
            )  # fmt: skip
            invariant(stored, "a segment index entry was not stored", ordinal=ordinal)
            stored = transaction.put(
                ORDINAL.pack(ordinal), encode_block(columns, following), append=True, db=block
            )
            invariant(stored, "a segment block was not stored", ordinal=ordinal)
            fresh = columns.distinct
            distinct_keys += fresh[1:] if distinct_keys[-1:] == fresh[:1] else fresh
        ranks = [begin for begin, _ in blocks]
        body = Footer(
            entries=count, keys=len(distinct_keys), blocks=len(blocks),
            first_seq=first_seq, end_seq=first_seq + count,
            min_key=distinct_keys[0], max_key=distinct_keys[-1],
            min_timestamp_ms=min(rows.timestamps), max_timestamp_ms=max(rows.timestamps),
            ranks=ranks,
        )  # fmt: skip
        rank_of = array("I", bytes(4 * count))
        deque(map(rank_of.__setitem__, rows.order, range(count)), maxlen=0)  # a loop in C
        packed_order = zstandard.ZstdCompressor(level=1).compress(rank_of.tobytes())
        for name, data in (
            (BLOOM, seal(bloom.build(distinct_keys))),
            (FOOTER, body.pack()),
            (ORDER, seal(packed_order)),
        ):
            invariant(transaction.put(name, data, append=True, db=footer), "footer not stored")
