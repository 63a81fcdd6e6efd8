"""The commands of a range's Raft entries: a type byte 0 for the engine, then a msgpack array.

`[kind, timestamp_ms, payload]`; the timestamp is the leader's clock, and apply takes the larger of
the timestamp and the last one (x2.21). Apply reads only the command and the state of earlier
entries, never configuration or the metadata image (x2.22).
"""

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgpack

from ..client.protocol import levels, limits, packed
from ..client.protocol.errors import CorruptData, InvalidArgument
from ..client.protocol.packed import Census
from . import restored
from .forms import NUMBER_MAX, are, is_key, is_number, is_span
from .groups import forms as of_groups

APPEND: Final = 1
"""payload: array of batches (bin), as the clients sent them."""
SEAL: Final = 2
"""payload: the operation's id. The last entry of a generation."""
RETIRE_PRODUCERS: Final = 3
"""payload: array of producer ids whose rows may go: closed with all settled, or unused for 24 h."""
FENCE: Final = 4
"""payload: [producer id, epoch, token]: a named producer was opened (x27)."""
FREEZE: Final = 5
"""payload: nil. Every member begins a new memtable at exactly this index, so that all members build
the same segments, byte for byte."""
TRIM_SPANS: Final = 6
"""payload: array of [start, end or nil, before seq], at most `removal_keys_max`: retention, per
lineage span (x12)."""
TRIM_KEYS: Final = 7
"""payload: array of [key, before seq], at most `removal_keys_max`."""
DELETE_KEYS: Final = 8
"""payload: as TRIM_KEYS; all entries of the key lie below the seq."""
COMPACT_TO: Final = 9
"""payload: [start, end or nil, before seq, mode, delete retention in ms]; see COMPACT, SNAPSHOT."""
TAKE_LEASE: Final = 10
"""payload: [lease, start, end or nil, through seq, expires ms]. The entries that are now visible in
the span up to that seq stay readable until then, by log time (x14). The same lease again renews it.
"""
RELEASE_LEASE: Final = 11
"""payload: [lease]: on all keys of the range, including leases of several parents of a merge."""
RENEW_LEASE: Final = 12
"""payload: as TAKE_LEASE. A lease that has ended is not taken anew, since entries that it held may
have been removed."""
LEVEL: Final = 13
"""payload: a feature level of the cluster. From the next entry on, members apply the rules of that
level (`rules`). A lower or equal level changes nothing."""
OPEN_CURSOR: Final = 14
"""payload: [name, holder, spans], an array of [start, end or nil, first seq]. From now on the
holder has the cursor in the spans; keys without a position begin at the first seq of their span.
From feature level 4 on, as all commands of cursors."""
COMMIT_CURSOR: Final = 15
"""payload: [name, holder, spans, keys]: arrays of [start, end or nil, next seq] and of [key, next
seq]. Positions below the present ones change nothing (x2.27)."""
SET_CURSOR: Final = 16
"""payload: as OPEN_CURSOR. The positions of the spans become those given, and may go back."""
DELETE_CURSOR: Final = 17
"""payload: [name, start, end or nil]."""
GROUP_OPEN: Final = 20
"""payload: [group, begin, waits]: a leader begins to lease keys of a group. The reply has the fence
of its leases. `groups.forms` describes this payload and the next ones."""
GROUP_ACK: Final = 21
"""payload: [group, fence, array of [key, expected, through]]."""
GROUP_NOTE: Final = 22
"""payload: [group, fence, array of [key, expected, deliveries, parked, error], who]."""
GROUP_FLOOR: Final = 23
"""payload: [group, fence, start, end or nil, from, to, pinned keys, finished keys]."""
GROUP_RETRY: Final = 24
"""payload: [group, keys, who]."""
GROUP_SKIP: Final = 25
"""payload: [group, array of [key, expected, through], what, who, why]."""
GROUP_RESET: Final = 26
"""payload: [group, array of [start, end or nil, to], array of [key, to], who]."""
GROUP_FORGET: Final = 27
"""payload: [group]: the group was deleted."""
GROUP_LETTER: Final = 28
"""payload: [group, fence, producer, array of [key, expected, seq, number]]: names for copies."""
GROUP_COPIED: Final = 29
"""payload: [group, fence, array of [key, seq], what]: keys pass the entries of their letters."""
GROUP_APPEND: Final = 30
"""payload: [group, fence, array of [key, expected, through], batch]: a batch and acknowledgements,
all of it or nothing. A batch whose records were appended before is answered, whatever its
acknowledgements."""

RESTORE: Final = 31
"""payload: [next seq, array of [timestamp ms, seqs, batch]]: entries of a backup, each with its own
seq. The seqs are eight bytes each, in the order of this machine's integers, which is little-endian
on all supported machines. See `restored`. From feature level 4 on."""

COMPACT: Final = 1
"""Mode: the last entry of each key below the seq stays. A tombstone among these goes once it is
older than the delete retention, by the log time of the command."""
SNAPSHOT: Final = 2
"""Mode: a key's entries before its newest logical snapshot below the seq go."""

_ARRAY_MAX: Final = limits.producers_per_range_max
"""The most elements of an array in a payload: all producers of a range may be retired at once."""
_PREFIX: Final = b"\x00"
_BIN_8, _BIN_16, _BIN_32 = (struct.Struct(form).pack for form in (">BB", ">BH", ">BI"))
NO_OP: Final = b"\x01"


@dataclass(frozen=True, slots=True)
class Command:
    """A decoded command."""

    kind: int
    timestamp_ms: int
    payload: Any


def encode(kind: int, timestamp_ms: int, payload: Any) -> bytes:
    """Return the bytes to propose."""
    if kind == APPEND:
        return _encode_append(timestamp_ms, payload)
    packed: bytes = msgpack.packb((kind, timestamp_ms, payload))
    return _PREFIX + packed


def _encode_append(timestamp_ms: int, batches: Sequence[bytes]) -> bytes:
    """Return the bytes of an APPEND with one copy of the batches, as msgpack would pack them.

    `packb` copies the batches three times, which took 1 ms of the event loop for 512 KiB: most of
    that is the system's time, for fresh pages.
    """
    packer = msgpack.Packer(buf_size=64)
    parts = [_PREFIX, packer.pack_array_header(3), packer.pack(APPEND), packer.pack(timestamp_ms)]
    parts.append(packer.pack_array_header(len(batches)))
    for batch in batches:
        parts += (_bin_header(len(batch)), batch)
    return b"".join(parts)


def _bin_header(size: int) -> bytes:
    """Return msgpack's header for `size` bytes (its specification, "bin format family")."""
    if size < 1 << 8:
        return _BIN_8(0xC4, size)
    return _BIN_16(0xC5, size) if size < 1 << 16 else _BIN_32(0xC6, size)


def proposal(kind: int, timestamp_ms: int, payload: Any) -> bytes:
    """Return the bytes of a command that a leader is about to propose.

    Raises InvalidArgument for a command that `decode` would refuse on every member. The batches of
    an APPEND were checked when they came.
    """
    try:
        command = encode(kind, timestamp_ms, payload)
        if not 0 <= timestamp_ms <= NUMBER_MAX:
            raise CorruptData(f"the time of the command is {timestamp_ms} ms")
        if kind != APPEND:
            decode(command)
    except (CorruptData, OverflowError, UnicodeEncodeError) as error:
        raise InvalidArgument(
            f"a command of kind {kind} has a field out of bounds ({error}); the node "
            "proposed nothing",
            what="command",
        ) from None
    return command


def decode(command: bytes) -> Command | None:
    """Return the command, or None for the engine's no-op. Raises CorruptData."""
    if command[:1] == NO_OP:
        return None
    if command[:1] != _PREFIX:
        raise CorruptData(f"a Raft entry has the unknown type {command[:1]!r}")
    try:
        kind, timestamp_ms, payload = packed.unpack(
            memoryview(command)[1:], Census(limits.frame_memory_max), array_max=_ARRAY_MAX
        )
    except (TypeError, ValueError) as error:
        raise CorruptData(f"a Raft entry does not unpack: {error}") from None
    if type(kind) is not int or kind < 1:
        raise CorruptData(f"a Raft entry has kind {kind!r}, which no program uses")
    if type(timestamp_ms) is not int or not _fits(kind, payload):
        raise CorruptData(f"a Raft entry of kind {kind!r} has fields of other types")
    return Command(kind, timestamp_ms, payload)


def _fits(kind: int, payload: Any) -> bool:
    """Whether the payload has the form of its kind. An unknown kind may have any payload."""
    fits = _FITS.get(kind)
    return fits is None or fits(payload)


def _span_trims(payload: Any) -> bool:
    return (
        are(payload, list)
        and 1 <= len(payload) <= limits.removal_keys_max
        and all(len(p) == 3 and is_span(p[0], p[1]) and is_number(p[2]) for p in payload)
    )


def _key_trims(payload: Any) -> bool:
    return (
        are(payload, list)
        and 1 <= len(payload) <= limits.removal_keys_max
        and all(len(p) == 2 and is_key(p[0]) and is_number(p[1]) for p in payload)
    )


def _compaction(payload: Any) -> bool:
    return (
        type(payload) is list
        and len(payload) == 5
        and is_span(payload[0], payload[1])
        and all(map(is_number, payload[2:]))
        and payload[3] in (COMPACT, SNAPSHOT)
    )


def _lease_id(value: Any) -> bool:
    return type(value) is str and 1 <= len(value) <= limits.lease_id_chars_max


def _lease(payload: Any) -> bool:
    return (
        type(payload) is list
        and len(payload) == 5
        and _lease_id(payload[0])
        and is_span(payload[1], payload[2])
        and all(map(is_number, payload[3:]))
    )


def _cursor_name(value: Any) -> bool:
    return type(value) is str and 1 <= len(value) <= limits.cursor_name_chars_max


def _cursor_spans(rows: Any, least: int) -> bool:
    return (
        are(rows, list)
        and least <= len(rows) <= limits.cursor_commit_spans_max
        and all(len(row) == 3 and is_span(*row[:2]) and is_number(row[2]) for row in rows)
    )


def _cursor_commit(payload: Any) -> bool:
    if type(payload) is not list or len(payload) != 4:
        return False
    name, holder, spans, keys = payload
    return (
        _cursor_name(name)
        and is_number(holder)
        and _cursor_spans(spans, 0)
        and are(keys, list)
        and len(keys) <= limits.cursor_commit_keys_max
        and all(len(row) == 2 and is_key(row[0]) and is_number(row[1]) for row in keys)
    )


def _cursor_open(payload: Any) -> bool:
    return (
        type(payload) is list
        and len(payload) == 3
        and _cursor_name(payload[0])
        and is_number(payload[1])
        and payload[1] > 0
        and _cursor_spans(payload[2], 1)
    )


def _cursor_delete(payload: Any) -> bool:
    return (
        type(payload) is list
        and len(payload) == 3
        and _cursor_name(payload[0])
        and is_span(payload[1], payload[2])
    )


_FITS: Final[dict[int, Callable[[Any], bool]]] = {
    APPEND: lambda payload: are(payload, bytes),
    SEAL: lambda payload: type(payload) is int,
    RETIRE_PRODUCERS: lambda payload: are(payload, int),
    FENCE: lambda payload: are(payload, int) and len(payload) == 3,
    FREEZE: lambda payload: payload is None,
    TRIM_SPANS: _span_trims,
    TRIM_KEYS: _key_trims,
    DELETE_KEYS: _key_trims,
    COMPACT_TO: _compaction,
    TAKE_LEASE: _lease,
    RENEW_LEASE: _lease,
    RELEASE_LEASE: lambda payload: (
        type(payload) is list and len(payload) == 1 and _lease_id(payload[0])
    ),
    LEVEL: lambda payload: type(payload) is int and levels.LEVEL_MIN <= payload < levels.LEVELS_END,
    OPEN_CURSOR: _cursor_open,
    COMMIT_CURSOR: _cursor_commit,
    SET_CURSOR: _cursor_open,
    DELETE_CURSOR: _cursor_delete,
    GROUP_OPEN: of_groups.is_open,
    GROUP_ACK: of_groups.is_ack,
    GROUP_NOTE: of_groups.is_note,
    GROUP_FLOOR: of_groups.is_floor,
    GROUP_RETRY: of_groups.is_retry,
    GROUP_SKIP: of_groups.is_skip,
    GROUP_RESET: of_groups.is_reset,
    GROUP_FORGET: of_groups.is_forget,
    GROUP_LETTER: of_groups.is_letter,
    GROUP_COPIED: of_groups.is_copied,
    GROUP_APPEND: of_groups.is_append,
    RESTORE: restored.fits,
}
KINDS: Final = _FITS.keys()
"""The kinds that this program applies. A replica stops at a command of another kind. A new meaning
needs a new kind; so does a new form of a payload or a batch. A program that does not know the form
would refuse the command and go on."""
