"""The bytes of a WAL file: a header, then batches of items.

    header   magic 8, version u32, file number u64, file size u64, first round u64, signature 16,
             crc32c u32
    batch    payload length u32, crc32c of this header u32, crc32c of the payload u32, round u64,
             synced_through u64, payload

Both checksums of a batch begin with the file's random signature, so that the old bytes of a
recycled file never pass for new ones. (RocksDB mixes in the file's number instead; raft-engine uses
a signature, too.) A batch's header has a checksum of its own: after a damaged place, recovery finds
the next batch without hashing users' data. All integers are big-endian.

`round` counts the node's write rounds without a gap, over all files. A file's header states its
first round, so that rounds missing at the end of the previous file are noticed. `synced_through` is
the last round whose sync had returned when the batch was made. It tells a torn tail from damage
(x5).

An item begins with its kind and its group:

    ENTRY    index u64, term u64, previous term u64, length u32, command
    STATE    term u64, vote u64 (0: none), commit u64, last index u64, last term u64,
             base index u64, base term u64
    RESET    index u64, term u64: the log is empty and begins after (index, term)
    RETIRED
    NEXT     for the group the number of the file that follows, and 0: the last item of a file

STATE carries the whole state of a group except its entries. A group writes one when it is created,
when its term, vote or commit index changes, and when its front is cut. An entry names the term of
the entry before it (Raft's log matching). So recovery knows whether a lost batch held an entry, or
a conflict that replaced an entry.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

import google_crc32c

from .types import GroupId

MAGIC: Final = b"lognwal\x01"
VERSION: Final = 2
SIGNATURE_BYTES: Final = 16

_HEADER: Final = struct.Struct(">8sIQQQ16s")
_CRC: Final = struct.Struct(">I")
HEADER_BYTES: Final = _HEADER.size + _CRC.size
_BATCH: Final = struct.Struct(">IIIQQ")
_BATCH_AFTER_CRC: Final = struct.Struct(">IQQ")
BATCH_HEADER_BYTES: Final = _BATCH.size
_VERSION_END: Final = len(MAGIC) + 4
_VERSION_MAX: Final = 256
"""The largest plausible version; a larger number is not taken for a version."""
ROUND_AT: Final = 12
"""The offset of the round in a batch's header."""

ENTRY: Final = 1
STATE: Final = 2
RESET: Final = 3
RETIRED: Final = 4
NEXT: Final = 5

_ITEM: Final = struct.Struct(">BQI")
_ENTRY: Final = struct.Struct(">BQIQQQI")
_STATE: Final = struct.Struct(">BQIQQQQQQQ")
STATE_BYTES: Final = _STATE.size
_RESET: Final = struct.Struct(">BQIQQ")
_LAYOUTS: Final = {ENTRY: _ENTRY, STATE: _STATE, RESET: _RESET, RETIRED: _ITEM, NEXT: _ITEM}
LAST_BATCH_BYTES: Final = BATCH_HEADER_BYTES + _ITEM.size
"""The room kept at the end of a file for the batch with NEXT."""


class StateItem(NamedTuple):
    """The whole state of a group except its entries."""

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
    """The group is retired."""

    gid: GroupId


class NextItem(NamedTuple):
    """The WAL goes on in file `number`."""

    number: int


Item = StateItem | EntryItem | ResetItem | RetiredItem | NextItem


@dataclass(frozen=True, slots=True)
class BatchHead:
    """A batch whose header is sound. `payload_at` is the offset of its items in the file."""

    offset: int
    payload_at: int
    end: int
    checksum: int
    round: int
    synced_through: int


class Header(NamedTuple):
    """The header of a file: its number, its size, its first batch's round, its random signature."""

    number: int
    size: int
    first_round: int
    signature: bytes


def encode_header(header: Header) -> bytes:
    """Return the first bytes of a file."""
    head = _HEADER.pack(MAGIC, VERSION, *header)
    return head + _CRC.pack(google_crc32c.value(head))


def decode_header(data: bytes) -> Header | None:
    """Return the header, or None if the data has no valid header."""
    if len(data) < HEADER_BYTES:
        return None
    head = data[: _HEADER.size]
    (checksum,) = _CRC.unpack_from(data, _HEADER.size)
    magic, version, *fields = _HEADER.unpack(head)
    if checksum != google_crc32c.value(head) or magic != MAGIC or version != VERSION:
        return None
    return Header(*fields)


def other_version(data: bytes) -> int | None:
    """Return the version of a header that another lognode wrote; None for any other data.

    A header of this version in which only the version field changed is damaged.
    """
    if len(data) < HEADER_BYTES or not data.startswith(MAGIC):
        return None
    version = int.from_bytes(data[len(MAGIC) : _VERSION_END], "big")
    mended = MAGIC + VERSION.to_bytes(_VERSION_END - len(MAGIC), "big") + data[_VERSION_END:]
    known = version in range(1, _VERSION_MAX) and version != VERSION
    return version if known and decode_header(mended) is None else None


def encode_entry(gid: GroupId, index: int, term: int, previous_term: int, size: int) -> bytes:
    """Return the head of an ENTRY item; the command follows it."""
    return _ENTRY.pack(ENTRY, gid.range_id, gid.generation, index, term, previous_term, size)


def encode_state(state: StateItem) -> bytes:
    """Return a STATE item."""
    return _STATE.pack(STATE, *state.gid, *state[1:])


def encode_reset(gid: GroupId, index: int, term: int) -> bytes:
    """Return a RESET item."""
    return _RESET.pack(RESET, gid.range_id, gid.generation, index, term)


def encode_retired(gid: GroupId) -> bytes:
    """Return a RETIRED item."""
    return _ITEM.pack(RETIRED, gid.range_id, gid.generation)


def encode_next(number: int) -> bytes:
    """Return a NEXT item."""
    return _ITEM.pack(NEXT, number, 0)


def encode_batch(
    signature: bytes, round_: int, synced_through: int, parts: list[bytes]
) -> list[bytes]:
    """Return the buffers of one batch, with the payload's parts unchanged."""
    length = sum(map(len, parts))
    seed = checksum = google_crc32c.value(signature)
    for part in parts:
        checksum = google_crc32c.extend(checksum, part)
    rest = _BATCH_AFTER_CRC.pack(checksum, round_, synced_through)
    head_checksum = google_crc32c.extend(seed, length.to_bytes(4, "big") + rest)
    return [length.to_bytes(4, "big") + head_checksum.to_bytes(4, "big") + rest, *parts]


def decode_head(data: bytes, offset: int, signature: bytes) -> BatchHead | None:
    """Return the batch whose valid header stands at `offset` of a file's bytes, or None.

    The payload may be anything, and may end after the data.
    """
    payload_at = offset + BATCH_HEADER_BYTES
    if payload_at > len(data):
        return None
    length, head_checksum, checksum, round_, synced_through = _BATCH.unpack_from(data, offset)
    told = data[offset : offset + 4] + data[offset + 8 : payload_at]
    if google_crc32c.extend(google_crc32c.value(signature), told) != head_checksum:
        return None
    return BatchHead(offset, payload_at, payload_at + length, checksum, round_, synced_through)


def payload_sound(data: bytes, head: BatchHead, signature: bytes) -> bool:
    """Whether the payload is the one that was written."""
    payload = data[head.payload_at : head.end]
    seed = google_crc32c.value(signature)
    return head.end <= len(data) and google_crc32c.extend(seed, payload) == head.checksum


def items(data: bytes, head: BatchHead) -> Iterator[Item]:
    """Yield the items of a sound batch.

    Raises ValueError for items that this version does not write.
    """
    at = head.payload_at
    while at < head.end:
        kind = data[at]
        layout = _LAYOUTS.get(kind)
        if layout is None:
            raise ValueError(f"WAL item of unknown kind {kind} at offset {at}")
        if at + layout.size > head.end:
            raise ValueError(f"the WAL item at offset {at} does not end in its batch")
        _, range_id, generation, *fields = layout.unpack_from(data, at)
        gid = GroupId(range_id, generation)
        at += layout.size
        if kind == ENTRY:
            index, term, previous_term, size = fields
            if at + size > head.end:
                raise ValueError(f"the WAL entry at offset {at} does not end in its batch")
            yield EntryItem(gid, index, term, previous_term, at, size)
            at += size
        elif kind == STATE:
            yield StateItem(gid, *fields)
        elif kind == RESET:
            yield ResetItem(gid, *fields)
        elif kind == RETIRED:
            yield RetiredItem(gid)
        else:
            yield NextItem(range_id)
