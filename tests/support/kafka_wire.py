"""Kafka's protocol from a client's side, as bytes: requests, record batches, answers."""

import gzip
import struct
from collections.abc import Mapping, Sequence
from typing import Any

import google_crc32c

Row = tuple[bytes | None, bytes | None] | tuple[bytes | None, bytes | None, list[Any]]


def text(value: str | None) -> bytes:
    """A text or null."""
    if value is None:
        return struct.pack(">h", -1)
    return struct.pack(">h", len(value.encode())) + value.encode()


def data(value: bytes | None) -> bytes:
    """Bytes or null."""
    return struct.pack(">i", -1) if value is None else struct.pack(">i", len(value)) + value


def array(values: Sequence[bytes]) -> bytes:
    """An array of encoded values."""
    return struct.pack(">i", len(values)) + b"".join(values)


def request(api: int, version: int, body: bytes, *, number: int = 7, size: int | None = None,
            client: str | None = "test") -> bytes:  # fmt: skip
    """A request with its length."""
    found = struct.pack(">hhi", api, version, number) + text(client) + body
    return struct.pack(">i", len(found) if size is None else size) + found


def varint(number: int) -> bytes:
    """A number in zigzag form."""
    left = (number << 1) ^ (number >> 63)
    found = bytearray()
    while left > 0x7F:
        found.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes([*found, left])


def field(value: bytes | None) -> bytes:
    """Bytes of a record, with their length."""
    return varint(-1) if value is None else varint(len(value)) + value


def record(offset: int, row: Row) -> bytes:
    """A record of a batch."""
    key, value, *more = row
    headers = more[0] if more else []
    body = b"\0" + varint(3) + varint(offset) + field(key) + field(value) + varint(len(headers))
    body += b"".join(field(name) + field(each) for name, each in headers)
    return varint(len(body)) + body


def batch(rows: Sequence[Row], *, packed: bytes | None = None, **head: int) -> bytes:
    """A batch as a producer sends it. `packed`: bytes in place of the records. `head`: fields of
    the head that are to be wrong."""
    body = b"".join(record(at, row) for at, row in enumerate(rows)) if packed is None else packed
    fields = {"attributes": 0, "last": len(rows) - 1, "first_ms": 5, "last_ms": 8, "producer": -1,
              "epoch": -1, "sequence": -1, "count": len(rows)}  # fmt: skip
    fields |= {name: value for name, value in head.items() if name in fields}
    tail = struct.pack(">hiqqqhii", *fields.values()) + body
    crc = head.get("crc", google_crc32c.value(tail))
    length = head.get("length", len(tail) + 9)
    return struct.pack(">qiibI", 0, length, 0, head.get("magic", 2), crc) + tail


def gzipped(rows: Sequence[Row]) -> bytes:
    """The batch, compressed."""
    body = b"".join(record(at, row) for at, row in enumerate(rows))
    return batch(rows, packed=gzip.compress(body), attributes=1)


def produce(topic: str, partition: int, records: bytes, *, acks: int = -1) -> bytes:
    """A request to append, of version 7."""
    row = struct.pack(">i", partition) + data(records)
    body = text(None) + struct.pack(">hi", acks, 5_000) + array([text(topic) + array([row])])
    return request(0, 7, body)


def fetch(topic: str, partition: int, offset: int, *, wait_ms: int = 0, least: int = 1) -> bytes:
    """A request for records, of version 4."""
    row = struct.pack(">iqi", partition, offset, 1 << 20)
    head = struct.pack(">iiiib", -1, wait_ms, least, 1 << 20, 0)
    return request(1, 4, head + array([text(topic) + array([row])]))


def join(group: str, member: str = "", *, protocols: Sequence[tuple[str, bytes]] = (),
         session_ms: int = 10_000, rebalance_ms: int = 10_000) -> bytes:  # fmt: skip
    """A request to join a group, of version 3."""
    rows = array([text(name) + data(metadata) for name, metadata in protocols])
    times = struct.pack(">ii", session_ms, rebalance_ms)
    return request(11, 3, text(group) + times + text(member) + text("consumer") + rows)


def sync(group: str, member: str, generation: int, given: Mapping[str, bytes]) -> bytes:
    """A request for an assignment, of version 2."""
    rows = array([text(name) + data(assignment) for name, assignment in given.items()])
    return request(14, 2, text(group) + struct.pack(">i", generation) + text(member) + rows)


def heartbeat(group: str, member: str, generation: int) -> bytes:
    """A heartbeat, of version 2."""
    return request(12, 2, text(group) + struct.pack(">i", generation) + text(member))


def commit(group: str, marks: Sequence[tuple[str, int, int, str | None]], *, member: str = "",
           generation: int = -1) -> bytes:  # fmt: skip
    """A commit of offsets, of version 6."""
    rows = [
        text(topic) + array([struct.pack(">iqi", partition, offset, -1) + text(metadata)])
        for topic, partition, offset, metadata in marks
    ]
    head = text(group) + struct.pack(">i", generation) + text(member)
    return request(8, 6, head + array(rows))


def positions(group: str, partitions: Sequence[tuple[str, int]] | None) -> bytes:
    """A request for committed offsets, of version 5."""
    if partitions is None:
        return request(9, 5, text(group) + struct.pack(">i", -1))
    rows = [text(topic) + array([struct.pack(">i", number)]) for topic, number in partitions]
    return request(9, 5, text(group) + array(rows))


def handshake(mechanism: str, version: int = 1) -> bytes:
    """A choice of the SASL mechanism."""
    return request(17, version, text(mechanism))


def authenticate(message: bytes, version: int = 1) -> bytes:
    """The bytes of a SASL mechanism."""
    return request(36, version, data(message))
