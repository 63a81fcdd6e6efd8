"""Operations of cursors: positions of readers that ranges keep, by a name.

Each request about keys has rows in the order of keys. The range of the first row takes the rows of
its own keys; `end_key` in the answer says where the rows begin that it did not take.
"""

from typing import Final

from . import limits
from .common import BOUND, GROUP, KEY, READ, READ_ANSWER, SEQ, SMALL_BYTES
from .kinds import Array, Integer, Nullable, Row, Text
from .operation import Operation, Permission, Retry, Sender, Subject
from .record import Optional, Record

NAME: Final = Text(limits.cursor_name_chars_max, 1, chars=True)
_HOLDER: Final = Integer(1)
_POSITION: Final = Row(start=BOUND, end=Nullable(KEY), next=SEQ)
_SPANS: Final = Array(_POSITION, limits.cursor_commit_spans_max, limit="cursor_commit_spans_max")
_ROW_BYTES: Final = 2 * limits.key_bytes_max + 32
_TAKEN: Final = Record({"end_key": Optional(KEY)}, loose=True)
_GIVEN: Final = Record({
    **GROUP, "cursor": NAME, "holder": _HOLDER, "spans": _SPANS, "node": Optional(Integer()),
})  # fmt: skip

CURSOR_OPEN: Final = Operation(
    "cursor_open", 40,
    "Make a reader the holder of a cursor in some spans of keys. Older holders are refused from "
    "now on. Keys for which the cursor does not exist begin at the position of their span.",
    Sender.CLIENT, Permission.READ, Retry.IDEMPOTENT,
    _GIVEN,
    _TAKEN, SMALL_BYTES,
    subject=Subject.KEYS,
)  # fmt: skip
CURSOR_COMMIT: Final = Operation(
    "cursor_commit", 41,
    "Raise positions of a cursor. A position that is higher already stays.",
    Sender.CLIENT, Permission.READ, Retry.IDEMPOTENT,
    Record({
        **GROUP, "cursor": NAME, "holder": _HOLDER, "spans": _SPANS,
        "keys": Array(Row(key=KEY, next=SEQ), limits.cursor_commit_keys_max,
                      limit="cursor_commit_keys_max"),
        "node": Optional(Integer()),
    }),
    _TAKEN, SMALL_BYTES,
    subject=Subject.KEYS,
)  # fmt: skip
CURSOR_SET: Final = Operation(
    "cursor_set", 42,
    "Set positions of a cursor, which may go back, and make the sender the holder of these spans. "
    "The positions of single keys in the spans go.",
    Sender.CLIENT, Permission.READ, Retry.IDEMPOTENT,
    _GIVEN,
    _TAKEN, SMALL_BYTES,
    subject=Subject.KEYS,
)  # fmt: skip
CURSOR_DELETE: Final = Operation(
    "cursor_delete", 43,
    "Forget a cursor for the keys of a span.",
    Sender.CLIENT, Permission.READ, Retry.IDEMPOTENT,
    Record({**GROUP, "cursor": NAME, "start_key": Optional(BOUND, b""), "end_key": Optional(KEY),
            "node": Optional(Integer())}),
    _TAKEN, SMALL_BYTES,
    subject=Subject.KEYS,
)  # fmt: skip
CURSOR_READ: Final = Operation(
    "cursor_read", 57,
    "Return a page of the positions of a cursor in a span of keys.",
    Sender.CLIENT, Permission.READ, Retry.SAFE,
    Record({**READ, "cursor": NAME, "start_key": Optional(BOUND, b""), "end_key": Optional(KEY)}),
    Record({
        "spans": Array(Row(start=BOUND, end=Nullable(KEY), holder=_HOLDER, next=SEQ),
                       2 * limits.cursor_page_rows),
        "keys": Array(Row(key=KEY, next=SEQ), 2 * limits.cursor_page_rows),
        "end_key": Optional(KEY),
        **READ_ANSWER,
    }, loose=True),
    SMALL_BYTES + 2 * limits.cursor_page_rows * _ROW_BYTES,
    subject=Subject.KEYS,
)  # fmt: skip
CURSOR_LIST: Final = Operation(
    "cursor_list", 58,
    "Return a page of the cursors that have positions in a span of keys, in the order of names.",
    Sender.CLIENT, Permission.READ, Retry.SAFE,
    Record({**READ, "after": Optional(NAME), "start_key": Optional(BOUND, b""),
            "end_key": Optional(KEY)}),
    Record({
        "cursors": Array(Row(cursor=NAME, holder=_HOLDER, next=SEQ, keys=Integer()),
                         limits.cursors_max),
        "after": Optional(NAME),
        "end_key": Optional(KEY),
        **READ_ANSWER,
    }, loose=True),
    SMALL_BYTES + limits.cursors_max * (4 * limits.cursor_name_chars_max + 32),
    subject=Subject.KEYS,
)  # fmt: skip

CURSORS: Final = (
    CURSOR_OPEN, CURSOR_COMMIT, CURSOR_SET, CURSOR_DELETE, CURSOR_READ, CURSOR_LIST,
)  # fmt: skip
