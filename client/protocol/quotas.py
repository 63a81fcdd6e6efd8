"""Operations on quotas, and what can be limited."""

from typing import Final

from . import limits
from .common import EMPTY, LOG_NAME, SMALL_BYTES, WHOLE_BYTES
from .kinds import Array, Integer, Nullable, Table, Text
from .operation import Operation, Permission, Retry, Sender
from .record import Optional, Record, Shape

RATES: Final = (
    "append_bytes", "append_records", "read_bytes", "read_records", "requests", "cpu_ms",
)  # fmt: skip
"""What is limited per second, on each node. `cpu_ms` are milliseconds of the node's event loop."""

OF_CLASSES: Final = ("connections", "follows", "producers")
"""What each principal of a class may have at a time: connections and follows on each node, names of
producers in the cluster."""
STORED: Final = "stored_bytes"
OF_TENANTS: Final = ("follows", "logs", STORED)
"""What a tenant may have at a time: follows on each node, logs and stored bytes in the cluster. Of
each range one copy counts, as its leader stores it."""
COUNTS: Final = tuple(dict.fromkeys((*OF_CLASSES, *OF_TENANTS)))
KINDS: Final = (*RATES, *COUNTS)
"""All that can be limited."""

COUNTERS: Final = (*RATES, "refused")
"""What a node counts: what is limited, and requests that were refused for a quota."""

_QUOTA: Final = Record({"name": LOG_NAME, "limits": Table(Text(32), Integer(1), 16)}, loose=True)

QUOTA_SET: Final = Operation(
    "quota_set", 84,
    "Change limits of a quota. The quota is created if there is none.",
    Sender.OPERATOR, Permission.ADMIN, Retry.IDEMPOTENT,
    Record({
        "name": LOG_NAME,
        "limits": Table(Text(32), Nullable(Integer(1, limits.quota_max)), 16),
    }),
    _QUOTA, SMALL_BYTES,
)  # fmt: skip
QUOTA_DELETE: Final = Operation(
    "quota_delete", 85, "Delete a quota: nothing is limited by it any more.",
    Sender.OPERATOR, Permission.ADMIN, Retry.ONCE,
    Record({"name": LOG_NAME}), EMPTY, SMALL_BYTES,
)  # fmt: skip
QUOTA_LIST: Final = Operation(
    "quota_list", 86, "Return all quotas, with their limits.",
    Sender.OPERATOR, Permission.DESCRIBE, Retry.SAFE, EMPTY,
    Record({"quotas": Array(_QUOTA, limits.quotas_max)}, loose=True), WHOLE_BYTES,
)  # fmt: skip
_USED: Final[Shape] = {"name": Text(512), **{name: Optional(Integer(), 0) for name in COUNTERS}}
USAGE: Final = Operation(
    "usage", 87,
    "Return what tenants and principals have used of this node since it started.",
    Sender.OPERATOR, Permission.DESCRIBE, Retry.SAFE, EMPTY,
    Record({
        "since_ms": Integer(),
        "tenants": Array(
            Record({**_USED, STORED: Optional(Integer(), 0)}, loose=True), limits.frame_array_max
        ),
        "principals": Array(Record(_USED, loose=True), limits.usage_rows_max),
    }, loose=True),
    WHOLE_BYTES,
)  # fmt: skip

QUOTAS: Final = (QUOTA_SET, QUOTA_DELETE, QUOTA_LIST, USAGE)
