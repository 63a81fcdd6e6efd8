"""Records of Kafka as entries of lognode, and entries as records.

A record's key is stored behind the two bytes of its partition (`client.protocol.key_partitions`).
The null key is stored as these two bytes alone. Headers of Kafka are a list: names may repeat, and
values may be null. An entry has a map of headers. A record whose headers are not a map, and a
record with an empty key, is stored with one header of the reserved name, which holds the list.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgpack

from ...client.protocol import limits
from ...client.protocol.key_partitions import KEY_BYTES_MAX, PREFIX_BYTES
from ...client.protocol.types import Headers
from . import codes
from .batches import Header, Record
from .refused import Refused

RESERVED: Final = b"\0kafka"
"""The header that holds what a map of headers cannot: [whether the key is empty, the headers]."""
_PACKED_BYTES_MAX: Final = limits.header_bytes_max - len(RESERVED)

Row = tuple[bytes, bytes | None] | tuple[bytes, bytes | None, Headers]


def rows(prefix: bytes, records: Sequence[Record], *, keyed: bool) -> Iterator[Row]:
    """Yield the entries of the records of a partition. `keyed`: each record needs a key, as the
    log is compacted by keys. Raises Refused."""
    for key, value, headers in records:
        if key is not None and len(key) > KEY_BYTES_MAX:
            raise Refused(
                codes.INVALID_RECORD,
                f"a key has {len(key)} bytes; {KEY_BYTES_MAX} are allowed. Shorten the key or "
                "hash it",
            )
        if key is None and keyed:
            raise Refused(
                codes.INVALID_RECORD,
                "a record has no key, and the topic is compacted by keys. Give a key",
            )
        if value is not None and len(value) > limits.value_bytes_max:
            raise Refused(
                codes.MESSAGE_TOO_LARGE,
                f"a value has {len(value)} bytes; {limits.value_bytes_max} are allowed",
            )
        if headers or key == b"":
            yield prefix + (key or b""), value, _stored(headers, empty=key == b"")
        else:
            yield prefix + (key or b""), value


def _stored(headers: Sequence[Header], *, empty: bool) -> Headers:
    plain = {name: value for name, value in headers if value is not None}
    if empty or len(plain) < len(headers) or RESERVED in plain:
        packed: bytes = msgpack.packb([empty, [list(each) for each in headers]])
        if len(packed) > _PACKED_BYTES_MAX:
            raise _too_many(len(packed))
        return {RESERVED: packed}
    size = sum(map(len, plain)) + sum(map(len, plain.values()))
    if len(plain) > limits.headers_max or size > limits.header_bytes_max:
        raise _too_many(size)
    return plain


def _too_many(size: int) -> Refused:
    return Refused(
        codes.INVALID_RECORD,
        f"the headers of a record have {size} bytes; {limits.headers_max} headers with "
        f"{limits.header_bytes_max} bytes are allowed. Use fewer headers",
    )


def record(stored: bytes, headers: Headers | None, value: bytes | None) -> Record:
    """Return the record of an entry, also of an entry that no Kafka client has written."""
    key = stored[PREFIX_BYTES:]
    if not headers:
        return Record(key or None, value, ())
    packed = headers.get(RESERVED)
    if packed is not None and len(headers) == 1:
        found = _unpacked(packed)
        if found is not None:
            empty, listed = found
            return Record(key if key or empty else None, value, listed)
    return Record(key or None, value, list(headers.items()))


def _unpacked(data: bytes) -> tuple[bool, Sequence[Header]] | None:
    """Return what the reserved header holds; None: another program has written the header."""
    try:
        told: Any = msgpack.unpackb(data)
        empty, listed = told
        found = [(name, value) for name, value in listed]
    except (ValueError, TypeError, msgpack.exceptions.UnpackException):
        return None
    if type(empty) is not bool or not all(
        type(name) is bytes and type(value) in (bytes, type(None)) for name, value in found
    ):
        return None
    return empty, found
