"""Applying commands that remove entries, and commands that keep removed entries readable.

Commands carry their bounds, and apply limits them again. No seq beyond the range's end is removed,
so that later entries are never hidden, and no key or span beyond the range's own. Log time is the
time of the log, whose clock never goes back (x2.21).
"""

from typing import Any, Final

from ..client.protocol.errors import GenerationMismatch, InvalidArgument, LognodeError
from . import commands
from .commands import Command
from .floors import Compaction
from .leases import Lease
from .removal import Removal
from .spans import common

KINDS: Final = frozenset(
    (
        commands.TRIM_SPANS,
        commands.TRIM_KEYS,
        commands.DELETE_KEYS,
        commands.COMPACT_TO,
        commands.TAKE_LEASE,
        commands.RENEW_LEASE,
        commands.RELEASE_LEASE,
    )
)


def apply(
    removal: Removal, command: Command, *, start: bytes, end: bytes | None, next_seq: int,
    log_ms: int,
) -> LognodeError | None:  # fmt: skip
    """Apply one of KINDS to a range of keys [start, end). An error has changed nothing."""
    removal.end_leases(log_ms)
    payload = command.payload
    if command.kind == commands.RELEASE_LEASE:
        removal.release_lease(payload[0])
        return None
    if command.kind in (commands.TRIM_KEYS, commands.DELETE_KEYS):
        return _trim_keys(removal, payload, start, end, next_seq)
    if command.kind == commands.TRIM_SPANS:
        trims = [
            (*span, min(before, next_seq))
            for first, last, before in payload
            if (span := common((first, last), (start, end))) is not None
        ]
        return removal.trim_spans(trims)
    if command.kind == commands.COMPACT_TO:
        return _compact(removal, payload, start, end, next_seq, log_ms)
    lease = _lease(removal, payload, start, end, next_seq)
    if isinstance(lease, LognodeError):
        return lease
    if command.kind == commands.RENEW_LEASE:
        return removal.renew_lease(lease, log_ms)
    return removal.take_lease(lease, log_ms)


def told(removal: Removal, command: Command) -> Any:
    """Return the rows that the command may have changed, for the hash of effects."""
    if command.kind in (commands.TRIM_KEYS, commands.DELETE_KEYS):
        floors = [removal.floors.get(key) for key, _ in command.payload]
        return [len(removal.floors), removal.rows, floors]
    if command.kind in (commands.TRIM_SPANS, commands.COMPACT_TO):
        return [len(removal.floors), removal.marks.to_wire()]
    return [
        [lease.lease_id, *lease.span, lease.through_seq, lease.expires_ms]
        for lease in removal.leases.values()
    ]


def _trim_keys(
    removal: Removal, payload: list[Any], start: bytes, end: bytes | None, next_seq: int
) -> LognodeError | None:
    floors: dict[bytes, int] = {}
    for key, before in payload:
        if key < start or (end is not None and key >= end):
            return GenerationMismatch("a key is outside of the range", ranges=[])
        floors[key] = max(min(before, next_seq), floors.get(key, 0))
    return removal.raise_floors(floors)


def _compact(
    removal: Removal, payload: list[Any], start: bytes, end: bytes | None, next_seq: int,
    log_ms: int,
) -> LognodeError | None:  # fmt: skip
    first, last, before, mode, delete_retention_ms = payload
    span = common((first, last), (start, end))
    if span is None:
        return None
    before = min(before, next_seq)
    if mode == commands.SNAPSHOT:
        return removal.pass_snapshots(*span, before)
    return removal.compact(*span, Compaction(before, max(0, log_ms - delete_retention_ms)))


def _lease(
    removal: Removal, payload: list[Any], start: bytes, end: bytes | None, next_seq: int
) -> Lease | LognodeError:
    lease_id, first, last, through_seq, expires_ms = payload
    span = common((first, last), (start, end))
    if span is None:
        return GenerationMismatch("a span is outside of the range", ranges=[])
    if through_seq >= next_seq:
        return InvalidArgument(
            f"the lease is through seq {through_seq}; the last seq is {next_seq - 1}",
            what="through_seq",
        )
    return Lease(lease_id, *span, through_seq, expires_ms, removal.marks)
