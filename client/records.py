"""Record batches: the columns in which records travel and are stored.

A batch is packed once, by the client, and then kept as it is: the leader puts its bytes into a
Raft entry, every member appends them to its WAL and holds them in its memtable. Only the key
column is decoded on the way; values stay compressed until somebody reads them. Columns are
msgpack arrays, which C code packs and unpacks at some 50 ns an element; no Python runs per
record.

Layout, one msgpack array:

    0 version (1)           5 numbers: int (consecutive from it) or array
    1 count                 6 prevs: nil (all 0) or array
    2 producer id           7 flags: 1 values are zstandard, 2 atomic (S10), 4 each by itself
    3 epoch                 8 expects: nil or array; -1 any, 0 absent, else the key's last seq
    4 low                   9 snapshots: nil or array of positions marked snapshot=True
                           10 keys: bin, a packed array of bin
                           11 headers: nil, or bin: a packed array of (nil or map bin -> bin)
                           12 values: bin, a packed array of (bin or nil), maybe compressed
                           13 bytes of the values column when uncompressed

Where one condition does not hold nothing of the batch is appended, unless its records are each by
itself: then those whose conditions do not hold are left out, and the others appended, in order.
Records of callers who know nothing of each other travel so.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from operator import ge
from typing import Any, Final

import msgpack
import zstandard

from . import limits
from .errors import CorruptData, InvalidArgument, LimitExceeded
from .types import Headers

VERSION: Final = 1
FLAG_ZSTD: Final = 1
FLAG_ATOMIC: Final = 2
FLAG_EACH: Final = 4
EXPECT_ANY: Final = -1
EXPECT_ABSENT: Final = 0

_COMPRESS_FROM_BYTES: Final = 256
_NUMBER_MAX: Final = (1 << 63) - 1
"""Of records: one that has no 64 bits could be applied, and the range's tables never stored."""
_HEAD: Final = "count, producer, epoch, low, flags and values size"
_values_bytes_max: Final = limits.batch_bytes_max + limits.value_bytes_max + 64 * limits.KIB


@dataclass(slots=True)
class Batch:
    """A decoded batch head: everything but headers and values, which stay packed.

    `numbers` and `prevs` are as in ranges.md section 5; `prevs` None means all 0.
    """

    count: int
    producer: int
    epoch: int
    low: int
    numbers: Sequence[int]
    prevs: list[int] | None
    atomic: bool
    each: bool
    expects: list[int] | None
    snapshots: frozenset[int]
    keys: list[bytes]
    packed_headers: bytes | None
    packed_values: bytes
    values_compressed: bool
    values_size: int

    def values(self) -> list[bytes | None]:
        """The value column. Raises CorruptData when it is not `count` values."""
        raw = self.packed_values
        if self.values_compressed:
            try:
                raw = decompress(raw, self.values_size)
            except ValueError as error:
                raise CorruptData(f"value column does not decompress: {error}") from None
        if len(raw) != self.values_size:
            raise CorruptData("value column has another size than its batch says")
        return _unpack_column(raw, self.count, "values")

    def headers(self) -> list[Headers | None] | None:
        """The header column, None when no record has headers."""
        if self.packed_headers is None:
            return None
        return _unpack_column(self.packed_headers, self.count, "headers")


def encode_batch(
    keys: Sequence[bytes],
    values: Sequence[bytes | None],
    *,
    producer: int,
    epoch: int,
    low: int,
    numbers: int | Sequence[int],
    prevs: Sequence[int] | None = None,
    headers: Sequence[Headers | None] | None = None,
    expects: Sequence[int] | None = None,
    snapshots: Sequence[int] | None = None,
    atomic: bool = False,
    each: bool = False,
    compress: bool = True,
) -> bytes:
    """Pack columns of equal length into the bytes of one batch."""
    packed_values = msgpack.packb(values)
    size = len(packed_values)
    flags = (FLAG_ATOMIC if atomic else 0) | (FLAG_EACH if each else 0)
    if compress and size >= _COMPRESS_FROM_BYTES:
        smaller = zstandard.ZstdCompressor(level=1).compress(packed_values)
        if len(smaller) < size - (size >> 3):
            packed_values = smaller
            flags |= FLAG_ZSTD
    packed: bytes = msgpack.packb(
        (
            VERSION,
            len(keys),
            producer,
            epoch,
            low,
            numbers,
            prevs,
            flags,
            expects,
            snapshots,
            msgpack.packb(keys),
            None if headers is None else msgpack.packb(headers),
            packed_values,
            size,
        )
    )
    return packed


def decode_batch(data: bytes) -> Batch:
    """Unpack and check the head of a batch; values and headers stay packed.

    Raises CorruptData for anything that `encode_batch` could not have made. Limits on sizes are
    checked by `check_limits`, which only the leader calls: what has been committed is applied.
    """
    fields = _unpack(data, "batch")
    if not isinstance(fields, list) or len(fields) < 14 or fields[0] != VERSION:
        raise CorruptData("not a record batch of a version this program knows")
    (_, count, producer, epoch, low, numbers, prevs, flags, expects, snapshots) = fields[:10]
    packed_keys, packed_headers, packed_values, size = fields[10:14]
    head = (count, producer, epoch, low, flags, size)
    if set(map(type, head)) != {int} or min(head) < 0:
        raise CorruptData(f"one of the {_HEAD} of a record batch is not a non-negative integer")
    if flags & FLAG_ATOMIC and flags & FLAG_EACH:
        raise CorruptData("a record batch whose records share a fate and have each their own")
    if type(packed_keys) is not bytes or type(packed_values) is not bytes:
        raise CorruptData("a column of a record batch is not bytes")
    if packed_headers is not None and type(packed_headers) is not bytes:
        raise CorruptData("the header column of a record batch is not bytes")
    if size > _values_bytes_max:
        raise CorruptData(f"value column of {size} bytes; at most {_values_bytes_max} are allowed")
    keys = _unpack_column(packed_keys, count, "keys")
    if not set(map(type, keys)) <= {bytes}:
        raise CorruptData("a key is not bytes")
    if type(numbers) is int:
        columns: tuple[tuple[str, Any], ...] = (("prevs", prevs), ("expects", expects))
        numbers = range(numbers, numbers + count)
    else:
        columns = (("numbers", numbers), ("prevs", prevs), ("expects", expects))
        if numbers is None:
            raise CorruptData("a record batch without numbers")
    for name, column in columns:
        if column is not None and (
            type(column) is not list or len(column) != count or set(map(type, column)) - {int}
        ):
            raise CorruptData(f"{name} of a record batch is not {count} integers")
    if snapshots is not None and (type(snapshots) is not list or set(map(type, snapshots)) - {int}):
        raise CorruptData("snapshot marks of a record batch are not integers")
    return Batch(
        count=count,
        producer=producer,
        epoch=epoch,
        low=low,
        numbers=numbers,
        prevs=prevs,
        atomic=bool(flags & FLAG_ATOMIC),
        each=bool(flags & FLAG_EACH),
        expects=expects,
        snapshots=frozenset(snapshots or ()),
        keys=keys,
        packed_headers=packed_headers,
        packed_values=packed_values,
        values_compressed=bool(flags & FLAG_ZSTD),
        values_size=size,
    )


def decompress(data: bytes, size: int, by: zstandard.ZstdDecompressor | None = None) -> bytes:
    """The bytes of a zstandard frame that has exactly `size` of them. Raises ValueError.

    `by` is for who has many of them, on one thread: to make one takes longer than most frames.

    The library allocates what the frame's head claims, whatever bound it is given: terabytes.
    """
    try:
        claimed = zstandard.frame_content_size(data)
        if claimed != size:
            raise ValueError(f"a frame of {claimed} bytes instead of {size}")
        return (by or zstandard.ZstdDecompressor()).decompress(data)
    except zstandard.ZstdError as error:
        raise ValueError(str(error)) from None


def check_key(key: bytes) -> None:
    """Raise the error a user should see for a key that no entry can have."""
    if not key:
        raise InvalidArgument(
            f"empty key; a key has 1 to {limits.key_bytes_max} bytes: give one", what="key"
        )
    if len(key) > limits.key_bytes_max:
        raise LimitExceeded(
            f"key of {len(key)} bytes; at most {limits.key_bytes_max} are allowed: shorten it "
            "or store a hash of it",
            limit="key_bytes_max", value=len(key), allowed=limits.key_bytes_max,
        )  # fmt: skip


def check_record(key: bytes, value: bytes | None, headers: Headers | None = None) -> None:
    """Raise the error a user should see for a record that no range would take."""
    check_key(key)
    if value is not None and len(value) > limits.value_bytes_max:
        raise LimitExceeded(
            f"value of {len(value)} bytes; at most {limits.value_bytes_max} are allowed: "
            "split it, or store it elsewhere and append its address",
            limit="value_bytes_max", value=len(value), allowed=limits.value_bytes_max,
        )  # fmt: skip
    if headers:
        if len(headers) > limits.headers_max:
            raise LimitExceeded(
                f"{len(headers)} headers; at most {limits.headers_max} are allowed",
                limit="headers_max", value=len(headers), allowed=limits.headers_max,
            )  # fmt: skip
        size = sum(map(len, headers)) + sum(map(len, headers.values()))
        if size > limits.header_bytes_max:
            raise LimitExceeded(
                f"headers of {size} bytes; at most {limits.header_bytes_max} are allowed",
                limit="header_bytes_max", value=size, allowed=limits.header_bytes_max,
            )  # fmt: skip


def check_limits(batch: Batch) -> None:
    """Leader side: decode every column and check every limit before the batch is proposed.

    Raises LimitExceeded, InvalidArgument or CorruptData; the batch is then not_applied. What
    passes here can always be applied and read (executions 1.22).
    """
    if batch.count == 0 or batch.count > limits.batch_records_max:
        raise LimitExceeded(
            f"batch of {batch.count} records; 1 to {limits.batch_records_max} are allowed",
            limit="batch_records_max", value=batch.count, allowed=limits.batch_records_max,
        )  # fmt: skip
    lengths = set(map(len, batch.keys))
    if min(lengths) < 1 or max(lengths) > limits.key_bytes_max:
        for key in batch.keys:
            check_record(key, None)
    numbers = batch.numbers
    if not isinstance(numbers, range) and any(map(ge, numbers, islice(numbers, 1, None))):
        raise InvalidArgument("record numbers of a batch do not increase", what="numbers")
    if numbers[0] < 1 or numbers[-1] > _NUMBER_MAX:
        raise InvalidArgument(f"record numbers are 1 to {_NUMBER_MAX}", what="numbers")
    values = batch.values()
    kinds = set(map(type, values))
    if kinds - {bytes, type(None)}:
        raise CorruptData("a value is neither bytes nor nil", outcome="not_applied")
    longest = max(map(len, filter(None, values)), default=0)
    if longest > limits.value_bytes_max:
        check_record(b"k", next(v for v in values if v is not None and len(v) == longest))
    if batch.snapshots and max(batch.snapshots) >= batch.count:
        raise InvalidArgument("snapshot mark outside the batch", what="snapshots")
    for key, headers in zip(batch.keys, batch.headers() or (), strict=False):
        if headers is None:
            continue
        if not isinstance(headers, dict) or any(
            type(name) is not bytes or type(value) is not bytes for name, value in headers.items()
        ):
            raise CorruptData("headers are not a map of bytes to bytes", outcome="not_applied")
        check_record(key, None, headers)


def _unpack(data: bytes, what: str) -> Any:
    try:
        return msgpack.unpackb(data, strict_map_key=False)
    except Exception as error:  # msgpack raises half a dozen unrelated classes
        raise CorruptData(f"{what} does not unpack: {error}") from None


def _unpack_column(data: bytes, count: int, what: str) -> list[Any]:
    column = _unpack(data, what)
    if type(column) is not list or len(column) != count:
        raise CorruptData(f"{what} of a record batch are not {count} elements")
    return column
