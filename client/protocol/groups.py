"""Operations of consumer groups.

A consumer asks the leader of each range for batches with `group_take`, which waits until a key is
ready, and settles them with `group_settle`. Nothing is pushed: a consumer that asks another leader
after a change goes on where the earlier leader stopped. Positions are the next seq wanted.
"""

from typing import Any, Final

from . import limits
from .appends import BATCH, RESULT, result_bytes
from .common import (
    BOUND,
    COUNT,
    ENTRY_BYTES,
    GRANT,
    GROUP,
    HEADERS,
    KEY,
    LOG_NAME,
    PATTERNS,
    READ,
    READ_ANSWER,
    SEQ,
    SINCE,
    SMALL_BYTES,
)
from .kinds import Array, Binary, Column, Flag, Integer, Nullable, Row, Text
from .operation import Operation, Permission, Retry, Sender, Subject
from .record import Optional, Record, Shape

TEXT: Final = Text(limits.group_text_chars_max, chars=True)
"""An error of a consumer, or a reason of an operator."""
PARK: Final = "park"
DEAD_LETTER: Final = "dead_letter:"
"""How an `on_dead` begins that names a log for the entries that failed too often."""
BY_KEY: Final = "key"
"""A key is with at most one consumer at a time, which gets its entries in order."""
BY_ENTRY: Final = "none"
"""An entry is with at most one consumer at a time; entries of a key are done in any order."""
EARLIEST: Final = "earliest"
LATEST: Final = "latest"
TIME: Final = "time"
"""The group begins with the entries of a time."""
LEASE: Final = "lease"
"""The consumer does not have the key with this token: the lease ended, or another consumer has the
key. What the consumer did with the batch may be done again by another consumer."""
POSITION: Final = "position"
"""The acknowledgement goes beyond the batch, or the key is at another position."""
FULL: Final = "full"
"""The range has no room for another position of a key. The lease stays: settle the key later."""
REFUSALS: Final = (LEASE, POSITION, FULL)
"""Why a key was refused. A later version may have other reasons."""
PARKED: Final = "parked"
IN_FLIGHT: Final = "in_flight"

_ID: Final = Integer(1)
_CONSUMER: Final = Integer(1)
_TOKEN: Final = Integer()
_KEY_ROWS: Final = limits.group_keys_a_command_max
_OF_GROUP: Final[Shape] = {**GROUP, "group": _ID, "node": Optional(Integer())}
_READ: Final[Shape] = {
    **READ,
    "group": _ID,
    "prefix": Optional(BOUND, b""),
    "start_key": Optional(BOUND, b""),
    "end_key": Optional(KEY),
}


def _rows(**kinds: Any) -> Optional:
    return Optional(Array(Row(key=KEY, **kinds), _KEY_ROWS, limit="group_keys_a_command_max"), ())


GROUP_SETTLE: Final = Operation(
    "group_settle", 44,
    "Acknowledge, give back, reject or keep batches. Each key that does not fit is refused on its "
    "own. The answer comes after a majority has stored what was settled.",
    Sender.CLIENT, Permission.READ, Retry.IDEMPOTENT,
    Record({
        **_OF_GROUP,
        "consumer": _CONSUMER,
        "acks": _rows(token=_TOKEN, through=Integer(1)),
        "releases": _rows(token=_TOKEN, delay_ms=Integer(0, limits.group_delay_ms_max), error=TEXT),
        "rejects": _rows(token=_TOKEN, error=TEXT),
        "extends": _rows(token=_TOKEN),
        "leave": Optional(Flag(), False),
        "patient": Optional(Flag(), False),
    }),
    Record({
        "refused": Array(Row(key=KEY, reason=Text(32), position=SEQ), 4 * _KEY_ROWS),
        "tokens": Optional(Column(int, 4 * _KEY_ROWS), ()),
    }, loose=True),
    SMALL_BYTES + 4 * _KEY_ROWS * (limits.key_bytes_max + 57),
    subject=Subject.KEYS,
)  # fmt: skip
GROUP_APPEND: Final = Operation(
    "group_append", 47,
    "Append a batch and acknowledge batches of a consumer in one step: all of it, or nothing. The "
    "batch is atomic and has a producer; a repetition is answered like the first request.",
    Sender.CLIENT, Permission.APPEND, Retry.IDEMPOTENT,
    Record({
        **_OF_GROUP,
        "consumer": _CONSUMER,
        "acks": Array(Row(key=KEY, token=_TOKEN, first=Integer(1), through=Integer(1)),
                      limits.group_append_keys_max, 1, limit="group_append_keys_max"),
        "batch": BATCH,
        "grant": Optional(GRANT),
    }),
    Record({
        "result": RESULT,
        "refused": Array(Row(key=KEY, reason=Text(32), position=SEQ), limits.group_append_keys_max),
        "tokens": Optional(Column(int, limits.group_append_keys_max), ()),
    }, loose=True),
    lambda body: (
        SMALL_BYTES + result_bytes(body["batch"]) + len(body["acks"]) * (limits.key_bytes_max + 57)
    ),
    subject=Subject.BATCHES,
)  # fmt: skip
GROUP_DECIDE: Final = Operation(
    "group_decide", 45,
    "Let parked keys go on, pass entries of keys, or set positions of the group. Each decision is "
    "remembered with the name of the principal.",
    Sender.CLIENT, Permission.GROUP, Retry.IDEMPOTENT,
    Record({
        **_OF_GROUP,
        "retry": Optional(Column(bytes, _KEY_ROWS, low=1, high=limits.key_bytes_max,
                                 limit="group_keys_a_command_max"), ()),
        "skip": _rows(expected=Integer(1), through=Integer(1)),
        "spans": Optional(Array(
            Row(start=BOUND, end=Nullable(KEY), to=Integer(1)), limits.group_reset_spans_max,
            limit="group_reset_spans_max"), ()),
        "keys": _rows(to=Integer(1)),
        "why": Optional(TEXT, ""),
    }),
    Record({"refused": Array(Row(key=KEY, position=SEQ), 3 * _KEY_ROWS)}, loose=True),
    SMALL_BYTES + 3 * _KEY_ROWS * (limits.key_bytes_max + 16),
    subject=Subject.KEYS,
)  # fmt: skip
GROUP_TAKE: Final = Operation(
    "group_take", 59,
    "Return batches of keys that no other consumer has, one batch of a key, or wait for one. The "
    "consumer has a key until it settles the batch, or until the lease ends.",
    Sender.CLIENT, Permission.READ, Retry.SAFE,
    Record({
        **_OF_GROUP,
        "consumer": _CONSUMER,
        "prefix": Optional(BOUND, b""),
        "count": Optional(Integer(0, limits.group_take_keys_max), limits.group_take_keys_max),
        "bytes": Optional(Integer(1, limits.page_bytes_max), limits.page_bytes_default),
        "wait_ms": Optional(Integer(0, limits.group_wait_ms_max), 0),
        "fence": Optional(Integer(), 0),
        "holds": Optional(Array(Row(key=KEY, token=_TOKEN), limits.group_holds_max,
                                limit="group_holds_max")),
        "seqs": Optional(Column(int, limits.group_holds_max, limit="group_holds_max"), ()),
        "fences": Optional(Column(int, limits.group_holds_max, limit="group_holds_max"), ()),
    }),
    Record({
        "fence": Integer(),
        "lease_ms": Integer(1),
        "refused": Optional(Column(bytes, limits.group_holds_max, low=1,
                                   high=limits.key_bytes_max), ()),
        "refused_seqs": Optional(Column(int, limits.group_holds_max), ()),
        "keys": Column(bytes, limits.group_take_keys_max, low=1, high=limits.key_bytes_max),
        "tokens": Column(int, limits.group_take_keys_max),
        "deliveries": Column(int, limits.group_take_keys_max),
        "counts": Column(int, limits.group_take_keys_max, low=1, high=limits.page_entries_max),
        "seqs": Column(int, limits.page_entries_max),
        "timestamps": Column(int, limits.page_entries_max),
        "values": Column(bytes, limits.page_entries_max, high=limits.value_bytes_max, nil=True),
        "headers": Optional(HEADERS),
    }, loose=True),
    lambda body: (
        SMALL_BYTES + int(body["bytes"]) + ENTRY_BYTES
        + len(body["holds"] or ()) * (limits.key_bytes_max + 12)
    ),
    subject=Subject.KEYS,
)  # fmt: skip
GROUP_LAG: Final = Operation(
    "group_lag", 60,
    "Return what a group has not done in a range, exact at the index of the answer.",
    Sender.CLIENT, Permission.READ, Retry.SAFE,
    Record(_READ),
    Record({
        "at_index": Integer(),
        "entries": COUNT,
        "bytes": COUNT,
        "oldest_ms": Optional(Integer()),
        "waiting": COUNT,
        "in_flight": COUNT,
        "parked": COUNT,
        "begun": Flag(),
        "consumers": COUNT,
        **READ_ANSWER,
    }, loose=True),
    SMALL_BYTES,
    subject=Subject.KEYS,
)  # fmt: skip
GROUP_KEYS: Final = Operation(
    "group_keys", 61,
    "Return a page of the keys of a group that are parked, or that consumers have, or one key.",
    Sender.CLIENT, Permission.READ, Retry.SAFE,
    Record({**_READ, "key": Optional(KEY), "after": Optional(KEY),
            "after_seq": Optional(Integer(), 0),
            "what": Optional(Text(0, among=(PARKED, IN_FLIGHT)), PARKED)}),
    Record({
        "rows": Array(Row(key=KEY, position=SEQ, deliveries=COUNT, consumer=Integer(),
                          parked=Flag(), error=TEXT), limits.group_page_rows),
        "after": Optional(KEY),
        "after_seq": Optional(Integer(), 0),
        **READ_ANSWER,
    }, loose=True),
    SMALL_BYTES + limits.group_page_rows * (limits.key_bytes_max + limits.group_text_bytes + 48),
    subject=Subject.KEYS,
)  # fmt: skip
GROUP_HISTORY: Final = Operation(
    "group_history", 62,
    "Return a page of the decisions about keys of a group, the oldest first.",
    Sender.CLIENT, Permission.READ, Retry.SAFE,
    Record({**_READ, "after": Optional(Integer(), 0)}),
    Record({
        "decisions": Array(Row(at_ms=Integer(), what=Integer(), who=TEXT, start=BOUND,
                               end=Nullable(Binary(limits.key_bytes_max + 1, 1)), begin=SEQ,
                               through=SEQ, why=TEXT), limits.group_page_rows),
        "after": Optional(Integer()),
        **READ_ANSWER,
    }, loose=True),
    SMALL_BYTES
    + limits.group_page_rows * (2 * limits.key_bytes_max + 2 * limits.group_text_bytes + 64),
    subject=Subject.KEYS,
)  # fmt: skip

_NAME: Final = Text(limits.group_name_chars_max, 1, chars=True)
_ON_DEAD: Final = Text(len(DEAD_LETTER) + limits.log_name_bytes_max, len(PARK))
_DELIVERIES: Final = Integer(1, limits.group_deliveries_max)
_LEASE_MS: Final = Integer(limits.group_lease_ms_min, limits.group_lease_ms_max)
_BEGIN: Final = Text(0, among=(EARLIEST, LATEST, TIME))
_TIME: Final = Integer(0, limits.timestamp_max_ms)
_ORDERING: Final = Text(0, among=(BY_KEY, BY_ENTRY))
_PATTERNS: Final = PATTERNS["patterns"]
_GROUP_ROW: Final[Shape] = {
    "id": _ID,
    "name": _NAME,
    "prefix": BOUND,
    "patterns": _PATTERNS,
    "max_deliveries": _DELIVERIES,
    "on_dead": _ON_DEAD,
    "lease_ms": _LEASE_MS,
    "begin": _BEGIN,
    "begin_ms": Integer(),
    "waits": Flag(),
    "created_ms": Integer(),
    "ordering": Optional(_ORDERING, BY_KEY),
}
_GROUP_BYTES: Final = 4 * limits.KIB

GROUP_CREATE: Final = Operation(
    "group_create", 116,
    "Create a consumer group of a log. A group that exists with the same options is the answer; "
    "CONFLICT where the options differ.",
    Sender.OPERATOR, Permission.GROUP, Retry.IDEMPOTENT,
    Record({
        "log": LOG_NAME,
        "name": _NAME,
        "prefix": Optional(BOUND, b""),
        "patterns": _PATTERNS,
        "max_deliveries": Optional(_DELIVERIES, limits.group_deliveries_default),
        "on_dead": Optional(_ON_DEAD, PARK),
        "lease_ms": Optional(_LEASE_MS, limits.group_lease_ms_default),
        "begin": Optional(_BEGIN, EARLIEST),
        "begin_ms": Optional(_TIME, 0),
        "waits": Optional(Flag(), False),
        "ordering": Optional(_ORDERING, BY_KEY),
        **SINCE,
    }),
    Record({**_GROUP_ROW, "created": Flag()}, loose=True),
    SMALL_BYTES + _GROUP_BYTES,
    subject=Subject.LOG,
)  # fmt: skip
GROUP_DELETE: Final = Operation(
    "group_delete", 117,
    "Delete a consumer group of a log, with its positions.",
    Sender.OPERATOR, Permission.GROUP, Retry.ONCE,
    Record({"log": LOG_NAME, "name": _NAME, "id": Optional(_ID)}),
    Record({"id": _ID}, loose=True),
    SMALL_BYTES,
    subject=Subject.LOG,
)  # fmt: skip
GROUP_LIST: Final = Operation(
    "group_list", 118,
    "Return the consumer groups of a log whose keys the asker may read.",
    Sender.CLIENT, Permission.NONE, Retry.SAFE,
    Record({"log": LOG_NAME, "name": Optional(_NAME)}),
    Record({"groups": Array(Record(_GROUP_ROW, loose=True), limits.groups_per_log_max)},
           loose=True),
    SMALL_BYTES + limits.groups_per_log_max * _GROUP_BYTES,
    subject=Subject.VISIBLE,
)  # fmt: skip

GROUPS: Final = (
    GROUP_SETTLE, GROUP_APPEND, GROUP_DECIDE, GROUP_TAKE, GROUP_LAG, GROUP_KEYS, GROUP_HISTORY,
    GROUP_CREATE, GROUP_DELETE, GROUP_LIST,
)  # fmt: skip
