"""Chunks of entries as Arrow arrays: the columns' own bytes, without an object per entry.

An Arrow array has its values in one buffer, and offsets into it in another, one more than there are
values (Arrow Columnar Format, "Variable-size Binary Layout"). A chunk has lengths, because the
columns of several blocks are joined without changes.

Arrays are made of buffers: `pyarrow.array` imports pandas, which takes longer than a small read.
"""

from collections.abc import Sequence
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
    return found.take(_array(places, pa.int32()))


def values(chunk: Chunk) -> pa.Array:
    """Return the value of each entry, null for a tombstone."""
    lengths = _numbers("I", chunk.value_lengths)
    present = lengths != ABSENT
    if present.all():
        return _binaries(chunk.values, lengths, None)
    return _binaries(chunk.values, np.where(present, lengths, 0), present)


def seqs(chunk: Chunk) -> pa.Array:
    """Return the seq of each entry."""
    return _array(_raised(chunk.seq_code, chunk.seqs, chunk.first_seq), pa.int64())


def timestamps(chunk: Chunk) -> pa.Array:
    """Return the timestamp of each entry, in milliseconds."""
    found = _raised(chunk.timestamp_code, chunk.timestamps, chunk.first_ms)
    return _array(found, MILLISECONDS)


def snapshots(chunk: Chunk) -> pa.Array:
    """Return for each entry whether it is a logical snapshot."""
    marked = np.zeros(chunk.rows, np.bool_)
    marked[list(chunk.snapshots or ())] = True
    return pa.Array.from_buffers(pa.bool_(), chunk.rows, [None, _bits(marked)])


def headers(chunk: Chunk, kind: pa.DataType) -> pa.Array:
    """Return the headers of each entry as a list of that kind, null where it has none."""
    if not chunk.headers:
        return pa.nulls(chunk.rows, kind)
    counts = np.zeros(chunk.rows, np.int32)
    names: list[bytes] = []
    texts: list[bytes] = []
    for at, header in sorted(chunk.headers.items()):
        counts[at] = len(header)
        names += header
        texts += header.values()
    pairs = pa.StructArray.from_arrays(
        [_binaries(b"".join(part), _lengths(part), None) for part in (names, texts)],
        fields=list(kind.value_type),
    )
    present = np.zeros(chunk.rows, np.bool_)
    present[list(chunk.headers)] = True
    buffers = [_bits(present), pa.py_buffer(_offsets(counts))]
    return pa.Array.from_buffers(kind, chunk.rows, buffers, children=[pairs])


def repeated(text: str | bytes, count: int) -> pa.Array:
    """Return a text, or bytes, `count` times."""
    data, kind = (text, pa.binary()) if isinstance(text, bytes) else (text.encode(), pa.string())
    lengths = np.full(count, len(data), np.int32)
    return _binaries(data * count, lengths, None).view(kind)


def _numbers(code: str, column: bytes) -> Numbers:
    return np.frombuffer(column, np.dtype(code).newbyteorder("<"))


def _raised(code: str, column: bytes, base: int) -> Numbers:
    return np.add(_numbers(code, column), base, dtype=np.int64, casting="unsafe")


def _lengths(texts: Sequence[bytes]) -> Numbers:
    return np.fromiter(map(len, texts), np.int32, len(texts))


def _offsets(lengths: Numbers) -> Numbers:
    """Return where each text begins, and where the last text ends."""
    found = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=found[1:])
    return found


def _bits(marks: Numbers) -> pa.Buffer:
    return pa.py_buffer(np.packbits(marks, bitorder="little"))


def _array(numbers: Numbers, kind: pa.DataType) -> pa.Array:
    return pa.Array.from_buffers(kind, len(numbers), [None, pa.py_buffer(numbers)])


def _binaries(data: bytes, lengths: Numbers, present: Numbers | None) -> pa.Array:
    mask = None if present is None else _bits(present)
    buffers = [mask, pa.py_buffer(_offsets(lengths)), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), len(lengths), buffers)
