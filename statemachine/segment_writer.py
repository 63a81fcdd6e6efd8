"""Building a segment: sort by (key, seq), cut into blocks, load in order into a fresh file.

Runs in the builder process. Every put appends (MDB_APPEND), which fills pages completely and
never looks anything up; each result is an invariant, since an append out of order returns False
without an exception.
"""

import hashlib
import os
from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

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


class Source(NamedTuple):
    """A batch to be built in: its bytes, the positions that were new or None, its timestamp."""

    data: bytes
    selected: list[int] | None
    timestamp_ms: int


class _Rows:
    """All records as columns, in the order of seq."""

    def __init__(self, sources: Sequence[Source]) -> None:
        self.keys: list[bytes] = []
        self.values: list[bytes | None] = []
        self.timestamps: list[int] = []
        self.headers: dict[int, Any] = {}
        self.snapshots: set[int] = set()
        for source in sources:
            self._add(source)

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


def build(path: Path, first_seq: int, sources: Sequence[Source]) -> SegmentInfo:
    """Write the segment of these batches to `path`, synced. Raises OSError."""
    rows = _Rows(sources)
    count = len(rows.keys)
    invariant(count > 0, "a segment without entries is built")
    order = sorted(range(count), key=rows.keys.__getitem__)  # stable: by (key, seq)
    blocks = _cut(rows, order)
    data_bytes = sum(map(len, (v for v in rows.values if v))) + sum(map(len, rows.keys))
    try:
        environment = lmdb.open(
            str(path), subdir=False, map_size=2 * data_bytes + 64 * count + (64 << 20),
            max_dbs=4, lock=False, sync=False, meminit=False, lib_version=0,
        )  # fmt: skip
        try:
            _load(environment, rows, order, blocks, first_seq)
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
        min_key=rows.keys[order[0]],
        max_key=rows.keys[order[-1]],
        min_timestamp_ms=min(rows.timestamps),
        max_timestamp_ms=max(rows.timestamps),
    )


def hash_file(path: Path) -> str:
    """SHA-256 of a file, in hex."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _cut(rows: _Rows, order: list[int]) -> list[tuple[int, int]]:
    """Half-open slices of `order`, about one block's bytes each."""
    sizes = [len(rows.keys[i]) + len(rows.values[i] or b"") + 16 for i in order]
    blocks = []
    begin = size = 0
    for at, bytes_ in enumerate(sizes):
        if size and size + bytes_ > limits.segment_block_bytes:
            blocks.append((begin, at))
            begin, size = at, 0
        size += bytes_
    blocks.append((begin, len(order)))
    return blocks


def _load(
    environment: Any,
    rows: _Rows,
    order: list[int],
    blocks: list[tuple[int, int]],
    first_seq: int,
) -> None:
    index = environment.open_db(INDEX, dupsort=True)
    block = environment.open_db(BLOCK, integerkey=True)
    footer = environment.open_db(FOOTER)
    distinct_keys: list[bytes] = []
    with environment.begin(write=True) as transaction:
        for ordinal, (begin, end) in enumerate(blocks):
            columns = _columns(rows, order[begin:end], first_seq)
            following = rows.keys[order[end]] if end < len(order) else None
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
            entries=len(order), keys=len(distinct_keys), blocks=len(blocks),
            first_seq=first_seq, end_seq=first_seq + len(order),
            min_key=distinct_keys[0], max_key=distinct_keys[-1],
            min_timestamp_ms=min(rows.timestamps), max_timestamp_ms=max(rows.timestamps),
            ranks=ranks,
        )  # fmt: skip
        rank_of = array("I", bytes(4 * len(order)))
        for rank, position in enumerate(order):
            rank_of[position] = rank
        packed_order = zstandard.ZstdCompressor(level=1).compress(rank_of.tobytes())
        for name, data in (
            (BLOOM, seal(bloom.build(distinct_keys, len(distinct_keys)))),
            (FOOTER, body.pack()),
            (ORDER, seal(packed_order)),
        ):
            invariant(transaction.put(name, data, append=True, db=footer), "footer not stored")


def _columns(rows: _Rows, positions: list[int], first_seq: int) -> Columns:
    distinct: list[bytes] = []
    counts: list[int] = []
    for position in positions:
        key = rows.keys[position]
        if distinct and distinct[-1] == key:
            counts[-1] += 1
        else:
            distinct.append(key)
            counts.append(1)
    headers = {}
    snapshots = []
    if rows.headers or rows.snapshots:
        for at, position in enumerate(positions):
            if position in rows.headers:
                headers[at] = rows.headers[position]
            if position in rows.snapshots:
                snapshots.append(at)
    return Columns(
        distinct=distinct,
        counts=counts,
        seqs=[first_seq + position for position in positions],
        timestamps=[rows.timestamps[position] for position in positions],
        values=[rows.values[position] for position in positions],
        headers=headers,
        snapshots=snapshots,
    )
