"""Restoring entries with the seqs and timestamps that they had when a backup was made.

A range that has nothing but restored entries takes more of them, in the order of seq. The first
append ends this, so that no restored entry ever comes after an entry of the range's own. A
repetition is recognised by its seqs, and changes nothing.
"""

from array import array
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

from ..client.protocol import limits
from ..client.protocol.errors import Conflict, CorruptData, GenerationMismatch, LognodeError
from ..client.protocol.key_column import KeyColumn
from ..client.protocol.records import Batch, decode_batch
from .forms import is_number
from .memtable import Memtable
from .segments import SegmentStore
from .sparse_memtable import SparseMemtable

SEQ_BYTES: Final = 8


class Row(NamedTuple):
    """A batch of records of one timestamp, with the seq of each record."""

    timestamp_ms: int
    seqs: "array[int]"
    data: bytes
    batch: Batch


def fits(payload: Any) -> bool:
    """Whether this is the payload of a RESTORE command: [next seq, rows]."""
    return (
        type(payload) is list
        and len(payload) == 2
        and is_number(payload[0])
        and payload[0] <= limits.restored_seq_max
        and type(payload[1]) is list
        and all(type(row) is list and len(row) == 3 and _is_row(*row) for row in payload[1])
    )


def _is_row(timestamp_ms: Any, seqs: Any, data: Any) -> bool:
    return (
        is_number(timestamp_ms)
        and timestamp_ms <= limits.timestamp_max_ms
        and type(seqs) is bytes
        and len(seqs) % SEQ_BYTES == 0
        and type(data) is bytes
    )


def rows_of(
    payload: list[Any], start: bytes, end: bytes | None
) -> tuple[int, list[Row]] | LognodeError:
    """Return the next seq and the rows of a payload, or the reason why no range can take it."""
    next_seq, packed = payload
    rows: list[Row] = []
    last = 0
    for timestamp_ms, seqs_data, data in packed:
        try:
            batch = decode_batch(data)
        except CorruptData as error:
            return error
        seqs = array("q", seqs_data)
        keys = batch.key_column
        if not keys.least or keys.longest > limits.key_bytes_max or len(seqs) != batch.count:
            return CorruptData("a restored batch has a bad key, or another number of seqs")
        if batch.producer or batch.expects is not None:
            return CorruptData("a restored batch has a producer or a condition")
        if keys.least < start or (end is not None and keys.greatest >= end):
            return GenerationMismatch("a key is outside of the range", ranges=[])
        for seq in seqs:
            if not last < seq < next_seq:
                return CorruptData("the seqs of restored entries do not rise")
            last = seq
        rows.append(Row(timestamp_ms, seqs, data, batch))
    return next_seq, rows


class State(Protocol):
    """The part of a range's state that a restore changes."""

    start: bytes
    end: bytes | None
    next_seq: int
    last_timestamp_ms: int
    restoring: bool
    memtable: Memtable
    store: SegmentStore


def apply(
    state: State, payload: list[Any]
) -> tuple[LognodeError | Mapping[str, Any] | None, Sequence[KeyColumn]]:
    """Apply a RESTORE command: return the error that refused the command, and the new keys."""
    if state.next_seq > 1 and not state.restoring:
        return _own_entries(state.next_seq), ()
    found = rows_of(payload, state.start, state.end)
    if isinstance(found, LognodeError):
        return found, ()
    next_seq, rows = found
    if next_seq <= state.next_seq:
        return None, ()  # a repetition
    if rows and rows[0].seqs[0] < state.next_seq:
        return CorruptData(f"a restored entry has a seq below {state.next_seq}"), ()
    memtable = state.memtable
    if not isinstance(memtable, SparseMemtable):  # the memtable is empty: nothing was appended
        begin = rows[0].seqs[0] if rows else next_seq
        state.memtable = memtable = SparseMemtable(begin, state.store.columns)
    for row in rows:
        memtable.restore(row.batch, row.data, row.seqs, row.timestamp_ms)
        state.last_timestamp_ms = max(state.last_timestamp_ms, row.timestamp_ms)
    memtable.skip_to(next_seq)
    state.next_seq, state.restoring = next_seq, True
    return None, [row.batch.key_column for row in rows]


def _own_entries(next_seq: int) -> Conflict:
    """Return the refusal of a range that has entries of its own."""
    return Conflict(
        f"the range has entries that no restore wrote; its next seq is {next_seq}. Restore into "
        "a new log"
    )
