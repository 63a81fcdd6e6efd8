"""The bytes of a WAL file: a header, then batches of items.

    header   magic 8, version u32, file number u64, file size u64, signature 16, crc32c u32
    batch    payload length u32, crc32c u32, round u64, synced_through u64, payload

The crc of a batch is taken over the file's random signature, the rest of the batch's header and
the payload, so that old bytes of a recycled file never pass for new ones. All integers are
big-endian. `round` counts the node's write rounds; `synced_through` is the last round whose sync
had returned when the batch was made, which tells a torn tail from damage (executions 1.5).

An item begins with its kind and its group:

    ENTRY    index u64, term u64, previous term u64, length u32, command
    STATE    term u64, vote u64 (0: none), commit u64, last index u64, last term u64,
             base index u64, base term u64
    RESET    index u64, term u64: the log is empty and begins after (index, term)
    RETIRED

STATE carries everything of a group but its entries. One is written when the group is created,
when its term, vote or commit index changes and when its front is cut. What comes before an entry
is known by the term of the entry before it (Raft's log matching), so that recovery sees whether a
lost batch held an entry, or a conflict that replaced one.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

import google_crc32c

from .types import GroupId

MAGIC: Final = b"lognwal\x01"
VERSION: Final = 1
SIGNATURE_BYTES: Final = 16

_HEADER: Final = struct.Struct(">8sIQQ16s")
_CRC: Final = struct.Struct(">I")
HEADER_BYTES: Final = _HEADER.size + _CRC.size
_BATCH: Final = struct.Struct(">IIQQ")
_BATCH_AFTER_CRC: Final = struct.Struct(">QQ")
BATCH_HEADER_BYTES: Final = _BATCH.size

ENTRY: Final = 1
STATE: Final = 2
RESET: Final = 3
RETIRED: Final = 4

_ITEM: Final = struct.Struct(">BQI")
_ENTRY: Final = struct.Struct(">BQIQQQI")
_STATE: Final = struct.Struct(">BQIQQQQQQQ")
_RESET: Final = struct.Struct(">BQIQQ")
_LAYOUTS: Final = {ENTRY: _ENTRY, STATE: _STATE, RESET: _RESET, RETIRED: _ITEM}


class StateItem(NamedTuple):
    """Everything of a group but its entries."""

    gid: GroupId
    term: int
    vote: int
    commit: int
    last_index: int
    last_term: int
    base_index: int
    base_term: int


class EntryItem(NamedTuple):
    """An entry; its command is `size` bytes at `offset` of the file."""

    gid: GroupId
    position: int
    term: int
    previous_term: int
    offset: int
    size: int


class ResetItem(NamedTuple):
    """The log is empty and begins after (index, term)."""

    gid: GroupId
    position: int
    term: int


class RetiredItem(NamedTuple):
    """The group is no more."""

    gid: GroupId


Item = StateItem | EntryItem | ResetItem | RetiredItem


@dataclass(frozen=True, slots=True)
class BatchHead:
    """A batch whose checksum holds. `payload_at` is the offset of its items in the file."""

    offset: int
    payload_at: int
    end: int
    round: int
    synced_through: int


class Header(NamedTuple):
    """Of a file: its number, the size it was made with, its random signature."""

    number: int
    size: int
    signature: bytes


def encode_header(header: Header) -> bytes:
    """The first bytes of a file."""
    head = _HEADER.pack(MAGIC, VERSION, *header)
    return head + _CRC.pack(google_crc32c.value(head))


def decode_header(data: bytes) -> Header | None:
    """The header, or None where this is no sound one."""
    if len(data) < HEADER_BYTES:
        return None
    head = data[: _HEADER.size]
    (checksum,) = _CRC.unpack_from(data, _HEADER.size)
    magic, version, number, size, signature = _HEADER.unpack(head)
    if checksum != google_crc32c.value(head) or magic != MAGIC or version != VERSION:
        return None
    return Header(number, size, signature)


def encode_entry(gid: GroupId, index: int, term: int, previous_term: int, size: int) -> bytes:
    """The head of an ENTRY item; the command follows it."""
    return _ENTRY.pack(ENTRY, gid.range_id, gid.generation, index, term, previous_term, size)


def encode_state(state: StateItem) -> bytes:
    """A STATE item."""
    return _STATE.pack(STATE, *state.gid, *state[1:])


def encode_reset(gid: GroupId, index: int, term: int) -> bytes:
    """A RESET item."""
    return _RESET.pack(RESET, gid.range_id, gid.generation, index, term)


def encode_retired(gid: GroupId) -> bytes:
    """A RETIRED item."""
    return _ITEM.pack(RETIRED, gid.range_id, gid.generation)


def encode_batch(
    signature: bytes, round_: int, synced_through: int, parts: list[bytes]
) -> list[bytes]:
    """The buffers of one batch, the payload's parts as they are."""
    length = sum(map(len, parts))
    checksum = google_crc32c.value(signature + _BATCH_AFTER_CRC.pack(round_, synced_through))
    for part in parts:
        checksum = google_crc32c.extend(checksum, part)
    return [_BATCH.pack(length, checksum, round_, synced_through), *parts]


def batch_end(data: bytes, offset: int) -> int:
    """Where the batch whose header stands at `offset` ends; 0 when that is not in the file."""
    if offset + BATCH_HEADER_BYTES > len(data):
        return 0
    end = offset + BATCH_HEADER_BYTES + int.from_bytes(data[offset : offset + 4], "big")
    return end if end <= len(data) else 0


def decode_batch(data: bytes, offset: int, signature: bytes) -> BatchHead | None:
    """The batch at `offset` of a file's bytes, or None where none is sound."""
    payload_at = offset + BATCH_HEADER_BYTES
    if payload_at > len(data):
        return None
    length, checksum, round_, synced_through = _BATCH.unpack_from(data, offset)
    end = payload_at + length
    if length == 0 and round_ == 0:
        return None  # zeros ahead of the end
    if end > len(data):
        return None
    if google_crc32c.extend(google_crc32c.value(signature), data[offset + 8 : end]) != checksum:
        return None
    return BatchHead(offset, payload_at, end, round_, synced_through)


def items(data: bytes, head: BatchHead) -> Iterator[Item]:
    """The items of a sound batch. Raises ValueError for what this version would not write."""
    at = head.payload_at
    while at < head.end:
        kind = data[at]
        layout = _LAYOUTS.get(kind)
        if layout is None:
            raise ValueError(f"WAL item of unknown kind {kind} at offset {at}")
        if at + layout.size > head.end:
            raise ValueError(f"WAL item at offset {at} goes on behind its batch")
        _, range_id, generation, *fields = layout.unpack_from(data, at)
        gid = GroupId(range_id, generation)
        at += layout.size
        if kind == ENTRY:
            index, term, previous_term, size = fields
            if at + size > head.end:
                raise ValueError(f"WAL entry at offset {at} goes on behind its batch")
            yield EntryItem(gid, index, term, previous_term, at, size)
            at += size
        elif kind == STATE:
            yield StateItem(gid, *fields)
        elif kind == RESET:
            yield ResetItem(gid, *fields)
        else:
            yield RetiredItem(gid)
