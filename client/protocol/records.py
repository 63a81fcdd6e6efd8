"""Record batches: the columns in which records travel and are stored.

The client packs a batch once, and its bytes stay unchanged: the leader puts them into a Raft entry,
every member appends them to its WAL and holds them in its memtable. Only the key column is decoded
on the way; values stay compressed until a read needs them. Columns are msgpack arrays, which C code
packs and unpacks. No Python runs per record, and no node makes objects of keys that nobody reads.

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

When one condition does not hold, nothing of the batch is appended. The exception is a batch with
flag 4: the records whose conditions do not hold are left out, and the others are appended, in
order. Records of independent callers travel in such batches.
"""

import threading
from collections.abc import Iterator, Sequence
from itertools import islice
from operator import ge
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgpack

from . import columns, limits
from .columns import HeaderColumn
from .errors import CorruptData, InvalidArgument, LimitExceeded
from .key_column import KeyColumn
from .native import packing
from .types import Headers

if TYPE_CHECKING:  # this import takes long, and few programs need it
    import zstandard

VERSION: Final = 1
FLAG_ZSTD: Final = 1
FLAG_ATOMIC: Final = 2
FLAG_EACH: Final = 4
EXPECT_ANY: Final = -1
EXPECT_ABSENT: Final = 0

_COMPRESS_FROM_BYTES: Final = 256
_NUMBER_MAX: Final = (1 << 63) - 1
"""The largest record number: a larger number could be applied, but the range's tables could not
store it in 64 bits."""
_HEAD: Final = "count, producer, epoch, low, flags and values size"
_FIELDS: Final = 14
"""The fields of a batch; further fields of a later version are ignored."""
_LOW: Final = 4
"""The position of `low`; `numbers` and `prevs` follow."""
_VALUES: Final = 12
"""The position of the value column, which is most of a batch. Members keep the batch as it came,
and rarely need the values."""


class Batch(NamedTuple):
    """A decoded batch head. Headers and values stay packed.

    docs/design/ranges.md#producers defines `numbers` and `prevs`; `prevs` None means all 0.
    """

    count: int  # type: ignore[assignment]  # in place of the method of tuples
    producer: int
    epoch: int
    low: int
    numbers: Sequence[int]
    prevs: list[int] | None
    atomic: bool
    each: bool
    expects: list[int] | None
    snapshots: frozenset[int]
    key_column: KeyColumn
    packed_headers: bytes | None
    packed_values: bytes | memoryview
    values_compressed: bool
    values_size: int

    @property
    def keys(self) -> list[bytes]:
        """The keys as objects, which are made at the first call."""
        return self.key_column.strings()

    def values(self) -> list[bytes | None]:
        """Return the value column. Raises CorruptData when it has not `count` values."""
        try:
            raw = _unpacked(self.packed_values, self.values_size, self.values_compressed)
            return columns.column(raw, self.count, none=True)
        except ValueError as error:
            raise _corrupt("values", error) from None

    def headers(self) -> list[Headers | None] | None:
        """Return the header column, None when no record has headers. Raises CorruptData."""
        return _unpacked_headers(self.packed_headers, self.count)


class PackedBatch(NamedTuple):
    """The fields of a batch as the sender declares them, with all columns still packed."""

    data: bytes
    fields: list[Any]

    @property
    def records(self) -> int:
        """The declared number of records."""
        records: int = self.fields[1]
        return records

    @property
    def producer(self) -> int:
        """The id of the producer; 0: no producer."""
        producer: int = self.fields[2]
        return producer

    @property
    def values_size(self) -> int:
        """The declared bytes of the values column, uncompressed."""
        size: int = self.fields[13]
        return size

    @property
    def key_column(self) -> bytes:
        """The packed array of keys."""
        keys: bytes = self.fields[10]
        return keys

    def value_column(self) -> bytes:
        """Return the packed array of values, uncompressed.

        Raises CorruptData when its size is not the declared size.
        """
        flags, packed = self.fields[7], self.fields[12]
        try:
            return _unpacked(packed, self.values_size, bool(flags & FLAG_ZSTD))
        except ValueError as error:
            raise _corrupt("values", error) from None

    @property
    def has_marks(self) -> bool:
        """Whether a record may have headers, or a mark as a snapshot."""
        return self.fields[11] is not None or bool(self.fields[9])

    def headers(self) -> list[Headers | None] | None:
        """Return the header column, None when no record has headers. Raises CorruptData."""
        return _unpacked_headers(self.fields[11], self.records)

    @property
    def snapshots(self) -> list[int]:
        """The positions of the records marked as snapshots, as the sender declares them."""
        return self.fields[9] or []


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
    """Pack columns of equal length into one batch."""
    return encode_packed(
        pack_strings(keys), pack_strings(values), len(keys), producer=producer, epoch=epoch,
        low=low, numbers=numbers, prevs=prevs, headers=headers, expects=expects,
        snapshots=snapshots, atomic=atomic, each=each, compress=compress,
    )  # fmt: skip


def encode_packed(
    packed_keys: bytes,
    packed_values: bytes,
    count: int,
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
    """Pack `count` records into one batch, whose keys and values are packed arrays already."""
    size = len(packed_values)
    flags = (FLAG_ATOMIC if atomic else 0) | (FLAG_EACH if each else 0)
    if compress and size >= _COMPRESS_FROM_BYTES:
        import zstandard

        smaller = zstandard.ZstdCompressor(level=1).compress(packed_values)
        if len(smaller) < size - (size >> 3):
            packed_values = smaller
            flags |= FLAG_ZSTD
    packed: bytes = msgpack.packb(
        (
            VERSION,
            count,
            producer,
            epoch,
            low,
            numbers,
            prevs,
            flags,
            expects,
            snapshots,
            packed_keys,
            None if headers is None else msgpack.packb(headers),
            packed_values,
            size,
        )
    )
    return packed


def renumbered(data: bytes, first: int, low: int, prevs: Sequence[int]) -> bytes:
    """Return a batch of records with consecutive numbers from `first` on instead of its own. Raises
    CorruptData. The largest batch takes half a millisecond."""
    fields = _checked_fields(data)
    packed: bytes = msgpack.packb((*fields[:_LOW], low, first, prevs, *fields[_LOW + 3 :]))
    return packed


def pack_strings(strings: Sequence[bytes | None]) -> bytes:
    """Pack a column of keys or values into an array."""
    found: bytes | None = None if packing is None else packing.pack_strings(strings)
    return msgpack.packb(strings) if found is None else found


def open_batch(data: bytes) -> PackedBatch:
    """Unpack the fields of a batch, and check the declared types, counts and sizes.

    Unpacks the lists of numbers, but no column. Raises CorruptData for anything that `encode_batch`
    could not have made.
    """
    return PackedBatch(data, _checked_fields(data))


def _checked_fields(data: bytes) -> list[Any]:
    try:
        fields = _fields(data)
    except ValueError as error:
        raise CorruptData(f"a record batch does not unpack: {error}") from None
    if not fields or fields[0] != VERSION:
        raise CorruptData("the bytes are not a record batch of a version that this program knows")
    (_, count, producer, epoch, low, _, _, flags) = fields[:8]
    packed_keys, packed_headers, packed_values, size = fields[10:_FIELDS]
    head = (count, producer, epoch, low, flags, size)
    if set(map(type, head)) != {int} or min(head) < 0:
        raise CorruptData(f"one of the {_HEAD} of a record batch is not a non-negative integer")
    if flags & FLAG_ATOMIC and flags & FLAG_EACH:
        raise CorruptData(
            "a record batch has records with a common outcome and with conditions of their own"
        )
    if type(packed_keys) is not bytes or type(packed_values) not in (bytes, memoryview):
        raise CorruptData("a column of a record batch is not bytes")
    if packed_headers is not None and type(packed_headers) is not bytes:
        raise CorruptData("the header column of a record batch is not bytes")
    if size > limits.values_bytes_max:
        raise CorruptData(
            f"the value column has {size} bytes; at most {limits.values_bytes_max} are allowed"
        )
    return fields


def decode_batch(data: bytes | PackedBatch) -> Batch:
    """Unpack and check the head of a batch and its keys; values and headers stay packed.

    Raises CorruptData for anything that `encode_batch` could not have made. `check_limits` checks
    the limits on sizes; only the leader calls it, because committed batches must be applied.
    """
    fields = data.fields if isinstance(data, PackedBatch) else _checked_fields(data)
    (_, count, producer, epoch, low, numbers, prevs, flags, expects, snapshots) = fields[:10]
    packed_keys, packed_headers, packed_values, size = fields[10:_FIELDS]
    try:
        keys = KeyColumn.unpack(packed_keys, count)
    except ValueError as error:
        raise _corrupt("keys", error) from None
    if type(numbers) is int:
        numeric: tuple[tuple[str, Any], ...] = (("prevs", prevs), ("expects", expects))
        numbers = range(numbers, numbers + count)
    else:
        numeric = (("numbers", numbers), ("prevs", prevs), ("expects", expects))
        if numbers is None:
            raise CorruptData("a record batch has no numbers")
    for name, column in numeric:
        if column is not None and (
            type(column) is not list or len(column) != count or not columns.all_are(int, column)
        ):
            raise CorruptData(f"{name} of a record batch is not {count} integers")
    if snapshots is not None and not (type(snapshots) is list and columns.all_are(int, snapshots)):
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
        key_column=keys,
        packed_headers=packed_headers,
        packed_values=packed_values,
        values_compressed=bool(flags & FLAG_ZSTD),
        values_size=size,
    )


def _unpacked(packed: bytes | memoryview, size: int, compressed: bool) -> bytes:
    """Return the packed array of values, uncompressed. Raises ValueError."""
    raw = decompress(packed, size) if compressed else bytes(packed)
    if len(raw) != size:
        raise ValueError(f"the values have {len(raw)} bytes; the batch declares {size}")
    return raw


def _unpacked_headers(packed: bytes | None, count: int) -> list[Headers | None] | None:
    if packed is None:
        return None
    column = HeaderColumn(packed, count)
    for _ in header_steps(column):
        pass
    return [*column.maps]


_local: Final = threading.local()


def _decompressor() -> "zstandard.ZstdDecompressor":
    """Return the decompressor of this thread: making one takes longer than decompressing most
    frames."""
    import zstandard

    made: zstandard.ZstdDecompressor | None = getattr(_local, "decompressor", None)
    if made is None:
        made = _local.decompressor = zstandard.ZstdDecompressor()
    return made


def decompress(
    data: bytes | memoryview, size: int, by: "zstandard.ZstdDecompressor | None" = None
) -> bytes:
    """Return the content of a zstandard frame of exactly `size` bytes. Raises ValueError.

    `by` decompresses a frame with a dictionary.

    The size is checked first: the library allocates the size that the frame's head claims, even
    terabytes.
    """
    import zstandard

    try:
        claimed = zstandard.frame_content_size(data)
        if claimed != size:
            raise ValueError(f"the frame has {claimed} bytes instead of {size}")
        return (by or _decompressor()).decompress(data)
    except zstandard.ZstdError as error:
        raise ValueError(str(error)) from None


def check_key(key: bytes) -> None:
    """Raise the user's error for a key that no entry may have."""
    if not key:
        raise InvalidArgument(
            f"the key is empty; a key has 1 to {limits.key_bytes_max} bytes. Give a key", what="key"
        )
    if len(key) > limits.key_bytes_max:
        raise LimitExceeded(
            f"the key has {len(key)} bytes; the limit is {limits.key_bytes_max}. Shorten the "
            "key or hash it",
            limit="key_bytes_max", value=len(key), allowed=limits.key_bytes_max,
        )  # fmt: skip


def check_record(key: bytes, value: bytes | None, headers: Headers | None = None) -> None:
    """Raise the user's error for a record that every range would refuse."""
    check_key(key)
    if value is not None and len(value) > limits.value_bytes_max:
        raise LimitExceeded(
            f"the value has {len(value)} bytes; the limit is {limits.value_bytes_max}. Split "
            "the value, or store it elsewhere and append its address",
            limit="value_bytes_max", value=len(value), allowed=limits.value_bytes_max,
        )  # fmt: skip
    if headers:
        check_headers(headers)


def check_headers(headers: Headers) -> None:
    """Raise the user's error for headers that every range would refuse."""
    if len(headers) > limits.headers_max:
        raise LimitExceeded(
            f"the record has {len(headers)} headers; the limit is {limits.headers_max}",
            limit="headers_max", value=len(headers), allowed=limits.headers_max,
        )  # fmt: skip
    size = sum(map(len, headers)) + sum(map(len, headers.values()))
    if size > limits.header_bytes_max:
        raise LimitExceeded(
            f"the headers have {size} bytes; the limit is {limits.header_bytes_max}",
            limit="header_bytes_max", value=size, allowed=limits.header_bytes_max,
        )  # fmt: skip


def check_limits(batch: Batch) -> None:
    """Decode every column and check every limit before the leader proposes the batch.

    Raises LimitExceeded, InvalidArgument or CorruptData; the batch is then not_applied. A batch
    that passes can always be applied and read (x22).
    """
    _check_numbers(batch)
    _check_values(batch)
    if batch.packed_headers is not None:
        for _ in _checked_headers(batch.packed_headers, batch.count):
            pass


def limit_steps(batch: Batch) -> Iterator[None]:
    """Run the checks of `check_limits` in steps of at most a few milliseconds."""
    _check_numbers(batch)
    yield
    _check_values(batch)
    if batch.packed_headers is not None:
        yield
        yield from _checked_headers(batch.packed_headers, batch.count)


def _check_numbers(batch: Batch) -> None:
    """Check the count, the keys and the numbers of the records."""
    if batch.count == 0 or batch.count > limits.batch_records_max:
        raise LimitExceeded(
            f"the batch has {batch.count} records; 1 to {limits.batch_records_max} are allowed",
            limit="batch_records_max", value=batch.count, allowed=limits.batch_records_max,
        )  # fmt: skip
    if not batch.key_column.least or batch.key_column.longest > limits.key_bytes_max:
        for key in batch.keys:
            check_record(key, None)
    numbers = batch.numbers
    if not isinstance(numbers, range) and any(map(ge, numbers, islice(numbers, 1, None))):
        raise InvalidArgument("record numbers of a batch do not increase", what="numbers")
    if numbers[0] < 1 or numbers[-1] > _NUMBER_MAX:
        raise InvalidArgument(
            f"a record number is not valid; 1 to {_NUMBER_MAX} are allowed", what="numbers"
        )
    if batch.snapshots and max(batch.snapshots) >= batch.count:
        raise InvalidArgument("a snapshot mark is outside of the batch", what="snapshots")


def _check_values(batch: Batch) -> None:
    try:
        raw = _unpacked(batch.packed_values, batch.values_size, batch.values_compressed)
        longest = columns.longest(raw, batch.count)
    except ValueError as error:
        raise _corrupt("values", error) from None
    if longest > limits.value_bytes_max:
        check_record(b"k", next(v for v in batch.values() if v is not None and len(v) == longest))


def _checked_headers(packed_headers: bytes, count: int) -> Iterator[None]:
    for found in header_steps(HeaderColumn(packed_headers, count)):
        for headers in found:
            check_headers(headers)
        yield


def header_steps(column: HeaderColumn) -> Iterator[Sequence[Headers]]:
    """Unpack the rest of the column and yield the headers of a few hundred records at a time.

    Raises CorruptData.
    """
    while len(column.maps) < column.count:
        try:
            found = column.step()
        except ValueError as error:
            raise _corrupt("headers", error) from None
        yield found


def _fields(data: bytes) -> list[Any]:
    """Return the fields of a batch. A field is a scalar, or an array of at most `batch_records_max`
    elements. Raises ValueError."""
    if len(data) <= columns.few_bytes_max:
        try:
            found = columns.unpack_flat(data, min(len(data) // 2, columns.few_max))
        except ValueError:
            pass  # a batch of few bytes may have longer lists than `unpack_flat` takes
        else:
            return found if len(found) >= _FIELDS else []
    return columns.fields(
        data, width_min=_FIELDS, array_max=limits.batch_records_max, viewed=_VALUES
    )


def _corrupt(column: str, error: ValueError) -> CorruptData:
    return CorruptData(f"the {column} of a record batch are damaged: {error}")
