"""Record batches of Kafka (magic 2): reading those of producers, and writing those for consumers.

A batch of a producer is checked as a whole first: its length, its checksum, what its attributes
claim. Its records are then decoded in steps, since a batch may have ten thousand.

The batches for consumers are made of a page of entries. Offsets are seqs, with gaps. The timestamp
is that of the log (LogAppendTime), which a batch has once for all of its records: entries with
other timestamps go into a batch of their own. A consumer that stands before a gap at the end of a
partition, because the last entries were removed, gets a control batch: consumers pass control
records without showing them, and go on behind them.
"""

import struct
from collections.abc import Callable, Generator, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any, Final, NamedTuple

import google_crc32c

from ...client.protocol import limits
from . import codes
from .refused import Refused

Header = tuple[bytes, bytes | None]


class Record(NamedTuple):
    """A record as a producer sends it."""

    key: bytes | None
    value: bytes | None
    headers: Sequence[Header]


class Batch(NamedTuple):
    """A batch whose checksum holds; its records are still packed."""

    compression: int
    count: int  # type: ignore[assignment]  # in place of the method of tuples
    producer: int
    epoch: int
    sequence: int
    packed: bytes


_HEAD: Final = struct.Struct(">qiibIhiqqqhii")
_CRC_FROM: Final = 21
"""The checksum is of the bytes from here on."""
_LENGTH_FROM: Final = 12
"""The length counts the bytes from here on."""
_MAGIC: Final = 2
_MAGIC_AT: Final = 16
_COMPRESSION: Final = 7
_LOG_APPEND_TIME: Final = 1 << 3
_TRANSACTIONAL: Final = 1 << 4
_CONTROL: Final = 1 << 5
_NO_PRODUCER: Final = (-1, -1, -1)
_NO_EPOCH: Final = -1
_COMMIT_MARKER: Final = (b"\x00\x00\x00\x01", b"\x00\x00\x00\x00\x00\x00")
"""The key and value of a control record: version 0, type 1; version 0, coordinator epoch 0."""
_STEP: Final = 64
"""Records and headers that are decoded or encoded in a step: a tenth of a millisecond."""
_HEADERS_MAX: Final = limits.header_bytes_max // 4
"""The most headers that an entry can hold: a stored header takes four bytes or more."""
_DELTA_MAX: Final = (1 << 31) - 1
"""The most that an offset of a batch lies above the first."""
_VARINT_BYTES: Final = 10
_SMALL: Final = 1 << 14


# Batches of producers.


def opened(data: bytes) -> Batch:
    """Return the only batch of these bytes. Raises Refused."""
    if len(data) > _MAGIC_AT and data[_MAGIC_AT] < _MAGIC:
        raise Refused(
            codes.UNSUPPORTED_FOR_MESSAGE_FORMAT,
            f"the records have format {data[_MAGIC_AT]}; format 2 is allowed. Use a client of "
            "Kafka 0.11 or later",
        )
    if len(data) < _HEAD.size:
        raise Refused(codes.CORRUPT_MESSAGE, "a batch ends early")
    _, length, _, magic, crc, attributes, last, _, _, producer, epoch, sequence, count = (
        _HEAD.unpack_from(data)
    )
    if magic != _MAGIC or not _HEAD.size <= length + _LENGTH_FROM <= len(data):
        raise Refused(codes.CORRUPT_MESSAGE, "a batch has a bad length or format")
    if length + _LENGTH_FROM < len(data):
        raise Refused(codes.INVALID_RECORD, "a partition has several batches. Send one batch")
    if google_crc32c.value(data[_CRC_FROM:]) != crc:
        raise Refused(codes.CORRUPT_MESSAGE, "the checksum of a batch does not hold")
    if attributes & (_TRANSACTIONAL | _CONTROL):
        raise Refused(codes.INVALID_RECORD, "transactions and control batches are not available")
    if count < 1 or last != count - 1:
        raise Refused(codes.INVALID_RECORD, f"a batch has {count} records and ends at {last}")
    return Batch(attributes & _COMPRESSION, count, producer, epoch, sequence, data[_HEAD.size :])


def records(data: bytes, count: int) -> Generator[None, None, list[Record]]:
    """Return the records of a batch in steps; `data` is unpacked. Raises Refused."""
    found: list[Record] = []
    at, left = 0, _STEP
    try:
        for number in range(count):
            length, at = _varint(data, at)
            end = at + length
            if length < 0 or end > len(data):
                raise _corrupt()
            _, at = _varint(data, at + 1)  # the attributes, then the timestamp
            offset, at = _varint(data, at)
            key, at = _nullable(data, at, end)
            value, at = _nullable(data, at, end)
            headers, at = _headers(data, at, end)
            if at != end or offset != number:
                raise _corrupt()
            found.append(Record(key, value, headers))
            left -= 1 + len(headers)
            if left <= 0:
                left = _STEP
                yield
    except IndexError:
        raise _corrupt() from None
    if at != len(data):
        raise _corrupt()
    return found


def _corrupt() -> Refused:
    return Refused(codes.CORRUPT_MESSAGE, "the records of a batch are not well-formed")


def _headers(data: bytes, at: int, end: int) -> tuple[Sequence[Header], int]:
    count, at = _varint(data, at)
    if not count:
        return (), at
    if not 0 < count <= end - at:
        raise _corrupt()
    if count > _HEADERS_MAX:  # checked before memory and time go into them
        raise Refused(
            codes.INVALID_RECORD,
            f"a record has {count} headers; {_HEADERS_MAX} are allowed. Use fewer headers",
        )
    found: list[Header] = []
    for _ in range(count):
        name, at = _nullable(data, at, end)
        value, at = _nullable(data, at, end)
        if name is None:
            raise _corrupt()
        found.append((name, value))
    return found, at


def _nullable(data: bytes, at: int, end: int) -> tuple[bytes | None, int]:
    size, at = _varint(data, at)
    if size < 0:
        return None, at
    if at + size > end:
        raise _corrupt()
    return data[at : at + size], at + size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Return a number in zigzag form and the position behind it. Raises IndexError at the end."""
    each = data[at]
    if each < 0x80:  # as nearly always
        return (each >> 1) ^ -(each & 1), at + 1
    found, shift = each & 0x7F, 7
    for position in range(at + 1, at + _VARINT_BYTES):
        each = data[position]
        found |= (each & 0x7F) << shift
        if each < 0x80:
            return (found >> 1) ^ -(found & 1), position + 1
        shift += 7
    raise _corrupt()


# Batches for consumers.


def _packed(number: int) -> bytes:
    left = (number << 1) ^ (number >> 63)
    found = bytearray()
    while left > 0x7F:
        found.append(left & 0x7F | 0x80)
        left >>= 7
    found.append(left)
    return bytes(found)


_PACKED: Final = [_packed(number) for number in range(1_024)]


def _varint_of(number: int) -> bytes:
    return _PACKED[number] if 0 <= number < len(_PACKED) else _packed(number)


_NULL: Final = _packed(-1)


def _field(value: bytes | None) -> tuple[bytes, bytes]:
    return (_NULL, b"") if value is None else (_varint_of(len(value)), value)


def packed_record(delta: int, record: Record) -> bytes:
    """Return a record whose offset lies `delta` above the first of its batch."""
    parts = [
        b"\0\0", _varint_of(delta), *_field(record.key), *_field(record.value),
        _varint_of(len(record.headers)),
    ]  # fmt: skip
    for name, value in record.headers:
        parts += (*_field(name), *_field(value))
    body = b"".join(parts)
    return _varint_of(len(body)) + body


def written(
    page: dict[str, Any], shown: Callable[[bytes, Any, bytes | None], Record]
) -> Generator[None, None, list[bytes]]:
    """Return the batches of a page of entries in steps; `shown` makes a record of a stored key,
    headers and a value."""
    seqs, keys, headers = page["seqs"], page["keys"], page.get("headers") or {}
    rows = enumerate(page["timestamps"])
    batches: list[bytes] = []
    for timestamp_ms, group in groupby(rows, itemgetter(1)):
        parts: list[bytes] = []
        first = last = 0
        for at, _ in group:
            last = seqs[at]
            first = first or last
            key = keys if type(keys) is bytes else keys[at]
            record = shown(key, headers.get(at), page["values"][at])
            parts.append(packed_record(last - first, record))
            if not (at + 1) % _STEP:
                yield
        batches.append(batch(first, last, timestamp_ms, parts, len(parts)))
    return batches


def passed(first: int, end: int) -> tuple[bytes, int]:
    """Return a batch that makes a consumer pass the offsets from `first` on, and the offset behind
    them. A batch has at most 2^31 offsets, so a wider gap takes several fetches."""
    last = min(end - 1, first + _DELTA_MAX)
    record = packed_record(last - first, Record(*_COMMIT_MARKER, ()))
    return batch(first, last, 0, [record], 1, attributes=_LOG_APPEND_TIME | _CONTROL), last + 1


def batch(
    first: int, last: int, timestamp_ms: int, parts: Sequence[bytes], count: int, *,
    attributes: int = _LOG_APPEND_TIME,
) -> bytes:  # fmt: skip
    """Return the batch of `count` records, which are the parts."""
    body = b"".join(parts)
    length = _HEAD.size + len(body) - _LENGTH_FROM
    fields = (attributes, last - first, timestamp_ms, timestamp_ms, *_NO_PRODUCER, count)
    head = _HEAD.pack(first, length, _NO_EPOCH, _MAGIC, 0, *fields)
    crc = google_crc32c.extend(google_crc32c.value(head[_CRC_FROM:]), body)
    return _HEAD.pack(first, length, _NO_EPOCH, _MAGIC, crc, *fields) + body
