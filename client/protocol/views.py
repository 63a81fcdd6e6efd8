"""Operations of views: names of consumer groups and kept cursors that appends can wait for.

The controller keeps the names. After an append was acknowledged, its client asks the leader of the
range with `views_wait`, which answers when the views have acknowledged the entries, or at the limit
of the wait. The append itself knows nothing of this.
"""

from typing import Final

from . import limits
from .common import BOUND, GROUP, KEY, LOG_NAME, PATTERNS, SINCE, SMALL_BYTES
from .kinds import Array, Column, Flag, Integer, Row, Text
from .operation import Operation, Permission, Retry, Sender, Subject
from .record import Optional, Record, Shape

WAIT: Final = "wait"
"""An append waits for the view up to its limit."""
LIVE: Final = "live"
"""An append does not wait for the view while no consumer of the group lives."""

_ID: Final = Integer(1)
_NAME: Final = Text(limits.view_name_chars_max, 1, chars=True)
_GROUP_NAME: Final = Text(limits.group_name_chars_max, 1, chars=True)
_CURSOR_NAME: Final = Text(limits.cursor_name_chars_max, 1, chars=True)
_POLICY: Final = Text(0, among=(WAIT, LIVE))

VIEWS_WAIT: Final = Operation(
    "views_wait", 63,
    "Wait until views have acknowledged entries, and say which entries each view has "
    "acknowledged. A majority has stored each acknowledgement that the answer tells of.",
    Sender.CLIENT, Permission.READ, Retry.SAFE,
    Record({
        **GROUP,
        "node": Optional(Integer()),
        "keys": Array(Row(key=KEY, seq=Integer(1)), limits.view_wait_keys_max, 1,
                      limit="view_wait_keys_max"),
        "views": Column(int, limits.view_waits_for_max, low=1, limit="view_waits_for_max"),
        "wait_ms": Optional(Integer(0, limits.view_wait_ms_max), 0),
        "enough": Optional(Integer(1, limits.view_waits_for_max)),
        "together": Optional(Flag(), False),
        "live": Optional(Flag(), False),
    }),
    Record({"seen": Column(int, limits.view_wait_keys_max)}, loose=True),
    SMALL_BYTES + 9 * limits.view_wait_keys_max,
    subject=Subject.KEYS,
)  # fmt: skip

_VIEW_ROW: Final[Shape] = {
    "id": _ID,
    "name": _NAME,
    "group": Optional(_GROUP_NAME),
    "cursor": Optional(_CURSOR_NAME),
    "prefix": BOUND,
    "patterns": PATTERNS["patterns"],
    "policy": _POLICY,
    "created_ms": Integer(),
}
_VIEW_BYTES: Final = 8 * limits.KIB

VIEW_REGISTER: Final = Operation(
    "view_register", 119,
    "Register a consumer group or a cursor under a name that appends can wait for. A view that "
    "exists with the same options is the answer; CONFLICT where the options differ.",
    Sender.OPERATOR, Permission.GROUP, Retry.IDEMPOTENT,
    Record({
        "log": LOG_NAME,
        "name": _NAME,
        "group": Optional(_GROUP_NAME),
        "cursor": Optional(_CURSOR_NAME),
        "prefix": Optional(BOUND, b""),
        "policy": Optional(_POLICY, WAIT),
        **SINCE,
    }),
    Record(_VIEW_ROW, loose=True),
    SMALL_BYTES + _VIEW_BYTES,
    subject=Subject.LOG,
)  # fmt: skip
VIEW_DELETE: Final = Operation(
    "view_delete", 120,
    "Delete a view of a log. The group or the cursor stays.",
    Sender.OPERATOR, Permission.GROUP, Retry.ONCE,
    Record({"log": LOG_NAME, "name": _NAME}),
    Record({"id": _ID}, loose=True),
    SMALL_BYTES,
    subject=Subject.LOG,
)  # fmt: skip
VIEW_LIST: Final = Operation(
    "view_list", 121,
    "Return the views of a log whose keys the asker may read.",
    Sender.CLIENT, Permission.NONE, Retry.SAFE,
    Record({"log": LOG_NAME}),
    Record({"views": Array(Record(_VIEW_ROW, loose=True), limits.views_per_log_max)}, loose=True),
    SMALL_BYTES + limits.views_per_log_max * _VIEW_BYTES,
    subject=Subject.VISIBLE,
)  # fmt: skip

VIEWS: Final = (VIEWS_WAIT, VIEW_REGISTER, VIEW_DELETE, VIEW_LIST)
