"""Chunks of entries as Arrow arrays: the columns' own bytes, without an object per entry.

An Arrow array has its values in one buffer, and offsets into it in another, one more than there are
values (Arrow Columnar Format, "Variable-size Binary Layout"). A chunk has lengths, because the
columns of several blocks are joined without changes.
"""

from typing import Any, Final

import numpy as np
import pyarrow as pa

from .protocol.chunks import ABSENT, Chunk

MILLISECONDS: Final = pa.timestamp("ms", "UTC")
_HEADER: Final = pa.struct([
    pa.field("key", pa.binary(), nullable=False),
    pa.field("value", pa.binary(), nullable=False),
])  # fmt: skip
SCHEMA: Final = pa.schema([
    pa.field("key", pa.binary(), nullable=False),
    pa.field("seq", pa.int64(), nullable=False),
    pa.field("timestamp", MILLISECONDS, nullable=False),
    pa.field("value", pa.binary()),
    pa.field("headers", pa.list_(_HEADER)),
    pa.field("snapshot", pa.bool_(), nullable=False),
])  # fmt: skip
"""The columns of a record batch that holds every column of a chunk."""
Numbers = np.ndarray[Any, np.dtype[Any]]


def record_batch(chunk: Chunk) -> pa.RecordBatch:
    """Return all columns of the entries."""
    columns = [
        keys(chunk), seqs(chunk), timestamps(chunk), values(chunk),
        headers(chunk, SCHEMA.field("headers").type), snapshots(chunk),
    ]  # fmt: skip
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def keys(chunk: Chunk) -> pa.Array:
    """Return the key of each entry."""
    lengths = _numbers("H", chunk.key_lengths)
    found = _binaries(chunk.keys, lengths, None)
    if chunk.repeats is None:
        return found
    places = np.repeat(np.arange(len(lengths), dtype=np.int32), _numbers("I", chunk.repeats))
    return found.take(pa.array(places))


def values(chunk: Chunk) -> pa.Array:
    """Return the value of each entry, null for a tombstone."""
    lengths = _numbers("I", chunk.value_lengths)
    present = lengths != ABSENT
    if present.all():
        return _binaries(chunk.values, lengths, None)
    return _binaries(chunk.values, np.where(present, lengths, 0), present)


def seqs(chunk: Chunk) -> pa.Array:
    """Return the seq of each entry."""
    return pa.array(_numbers(chunk.seq_code, chunk.seqs).astype(np.int64) + chunk.first_seq)


def timestamps(chunk: Chunk) -> pa.Array:
    """Return the timestamp of each entry, in milliseconds."""
    since = _numbers(chunk.timestamp_code, chunk.timestamps).astype(np.int64)
    return pa.array(since + chunk.first_ms).view(MILLISECONDS)


def snapshots(chunk: Chunk) -> pa.Array:
    """Return for each entry whether it is a logical snapshot."""
    marked = np.zeros(chunk.rows, np.bool_)
    marked[list(chunk.snapshots or ())] = True
    return pa.array(marked)


def headers(chunk: Chunk, kind: pa.DataType) -> pa.Array:
    """Return the headers of each entry as a list of that kind, null where it has none."""
    if not chunk.headers:
        return pa.nulls(chunk.rows, kind)
    rows: list[Any] = [None] * chunk.rows
    for at, header in chunk.headers.items():
        rows[at] = [{"key": key, "value": value} for key, value in header.items()]
    return pa.array(rows, kind)


def _numbers(code: str, column: bytes) -> Numbers:
    return np.frombuffer(column, np.dtype(code).newbyteorder("<"))


def _binaries(data: bytes, lengths: Numbers, present: Numbers | None) -> pa.Array:
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    mask = None if present is None else pa.py_buffer(np.packbits(present, bitorder="little"))
    buffers = [mask, pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), len(lengths), buffers)
