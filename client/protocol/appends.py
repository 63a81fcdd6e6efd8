"""Operations that write to a range, and those of producers."""

from typing import Final

from . import limits
from .common import (
    BOUND,
    EMPTY,
    GRANT,
    GROUP,
    KEY,
    LEASE,
    READ,
    SEQ,
    SMALL_BYTES,
    TIMEOUT,
)
from .kinds import Array, Binary, Column, Flag, Integer, Opaque, Row, Text
from .operation import Operation, Permission, Retry, Sender, Subject
from .record import OMIT, Optional, Record

BATCH: Final = Binary(limits.entry_bytes_max, limit="entry_bytes_max")
RESULT: Final = Record(
    {
        "status": Text(0, among=("ok", "error")),
        "first_seq": Optional(SEQ),
        "seqs": Optional(Column(int, limits.batch_records_max, nil=True)),
        "duplicates": Optional(Column(int, limits.batch_records_max)),
        "timestamp_ms": Optional(Integer()),
        "refused": Optional(Column(int, limits.batch_records_max)),
        "actual": Optional(Column(int, limits.batch_records_max)),
        "error": Optional(
            Opaque("client.protocol.errors", about="the body of an ERROR frame"), OMIT
        ),
    },
    loose=True,
)
_KEYS: Final = Array(Row(key=KEY, before=SEQ), limits.removal_keys_max, 1, limit="removal_keys_max")


_LISTED_BYTES: Final = 13
"""The bytes of a record in an answer: a position, and the seq of a duplicate or the last seq of
its key."""


def result_bytes(batch: bytes) -> int:
    """Return the maximum bytes of the result of a batch: a repetition has a seq per record."""
    return limits.KIB + _LISTED_BYTES * min(limits.request_records_max, len(batch) // 2)


def _results_bytes(body: dict[str, object]) -> int:
    found = body["batches"]
    batches: list[bytes] = found if isinstance(found, list) else []
    # A batch of fresh records has only its first seq; a batch with duplicates has a seq per record.
    # A record has at least two bytes: those of its key.
    records = min(limits.request_records_max, sum(map(len, batches)) // 2)
    return SMALL_BYTES + len(batches) * limits.KIB + _LISTED_BYTES * records


APPEND: Final = Operation(
    "append", 32,
    "Append batches in their order. Each batch has a result of its own. The answer comes after a "
    "majority of the members has the records on disk. "
    f"The batches have at most {limits.request_records_max:,} records together.",
    Sender.CLIENT, Permission.APPEND, Retry.IDEMPOTENT,
    Record({
        **GROUP,
        "batches": Array(BATCH, limits.request_batches_max, 1, limit="request_batches_max"),
        "timeout_ms": Optional(TIMEOUT, 10_000),
        "node": Optional(Integer()),
        "grant": Optional(GRANT),
        "trace": Optional(Text(limits.trace_parent_chars_max), OMIT),
    }),
    Record({"results": Array(RESULT, limits.request_batches_max)}),
    _results_bytes,
    subject=Subject.BATCHES,
)  # fmt: skip
FENCE: Final = Operation(
    "fence", 33,
    "Have the range refuse lower epochs of the producer from now on.",
    Sender.CLIENT, Permission.APPEND, Retry.SAFE,
    Record({
        **GROUP, "id": Integer(), "epoch": Integer(), "node": Optional(Integer()),
        "grant": Optional(GRANT),
    }),
    EMPTY, SMALL_BYTES,
    subject=Subject.RANGE,
)  # fmt: skip
PRODUCER_CLOSE: Final = Operation(
    "producer_close", 34,
    "Tell the range that all numbers of the producer are settled. The range forgets the producer.",
    Sender.CLIENT, Permission.APPEND, Retry.SAFE,
    Record({
        **GROUP, "id": Integer(), "node": Optional(Integer()), "grant": Optional(GRANT),
    }),
    None, 0,
    subject=Subject.RANGE,
)  # fmt: skip
PRODUCER_NUMBER: Final = Operation(
    "producer_number", 35,
    "Say whether the range has applied a number of the producer, and with which seq.",
    Sender.CLIENT, Permission.APPEND, Retry.SAFE,
    Record({**READ, "producer": Integer(), "number": Integer(), "grant": Optional(GRANT)}),
    Record({"applied": Flag(), "seq": Optional(SEQ)}, loose=True),
    SMALL_BYTES,
    subject=Subject.RANGE,
)  # fmt: skip
TRIM: Final = Operation(
    "trim", 36,
    "Remove the entries of each key below the seq `before`. A key that has no entry left is in no "
    "list of keys, and the condition 0 holds for the key again.",
    Sender.CLIENT, Permission.TRIM, Retry.IDEMPOTENT,
    Record({**GROUP, "keys": _KEYS, "node": Optional(Integer())}),
    EMPTY, SMALL_BYTES,
    subject=Subject.KEYS,
)  # fmt: skip
DELETE_KEYS: Final = Operation(
    "delete_keys", 37,
    "Do the same as `trim`, to delete keys: `before` is the answer of `resolve` to "
    "`latest`. Therefore a repetition removes no entry that was appended later.",
    Sender.CLIENT, Permission.TRIM, Retry.IDEMPOTENT,
    Record({**GROUP, "keys": _KEYS, "node": Optional(Integer())}),
    EMPTY, SMALL_BYTES,
    subject=Subject.KEYS,
)  # fmt: skip
LEASE_TAKE: Final = Operation(
    "lease", 38,
    "Keep the entries up to the seq `through` readable in spite of retention and trims. The "
    "same request again renews the lease.",
    Sender.CLIENT, Permission.READ, Retry.IDEMPOTENT,
    Record({
        **GROUP,
        "lease": LEASE,
        "start_key": Optional(BOUND, b""),
        "end_key": Optional(KEY),
        "through": SEQ,
        "lease_ms": Integer(1, limits.lease_ms_max),
        "renew": Optional(Flag(), False),
        "node": Optional(Integer()),
    }),
    Record(
        {"end_key": Optional(KEY), "expires_ms": Integer(), "applied": Optional(Integer(), OMIT)},
        loose=True,
    ),
    SMALL_BYTES,
    subject=Subject.KEYS,
)  # fmt: skip
LEASE_RELEASE: Final = Operation(
    "release", 39,
    "End a lease on all keys of the range.",
    Sender.CLIENT, Permission.READ, Retry.IDEMPOTENT,
    Record({**GROUP, "lease": LEASE, "node": Optional(Integer())}),
    EMPTY, SMALL_BYTES,
    subject=Subject.RANGE,
)  # fmt: skip
RESTORE: Final = Operation(
    "restore", 46,
    "Put entries of a backup into a range, with their seqs and timestamps. The range has only "
    "entries that restores wrote. Entries come in the order of seq.",
    Sender.OPERATOR, Permission.ADMIN, Retry.IDEMPOTENT,
    Record({
        **GROUP,
        "next_seq": Integer(1, limits.restored_seq_max),
        "rows": Array(
            Row(
                timestamp_ms=Integer(0, limits.timestamp_max_ms),
                seqs=Binary(8 * limits.batch_records_max),
                batch=BATCH,
            ),
            limits.restored_rows_max, limit="restored_rows_max",
        ),
        "node": Optional(Integer()),
    }),
    Record({"next_seq": SEQ}, loose=True), SMALL_BYTES,
    subject=Subject.RANGE,
)  # fmt: skip

APPENDS: Final = (
    APPEND, FENCE, PRODUCER_CLOSE, PRODUCER_NUMBER, TRIM, DELETE_KEYS, LEASE_TAKE, LEASE_RELEASE,
    RESTORE,
)  # fmt: skip
