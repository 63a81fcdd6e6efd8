"""Operations on quotas, and the resources that a quota can limit."""

from typing import Final

from . import limits
from .common import EMPTY, LOG_NAME, SINCE, SMALL_BYTES, WHOLE_BYTES
from .kinds import Array, Integer, Nullable, Table, Text
from .operation import Operation, Permission, Retry, Sender
from .record import Optional, Record, Shape

RATES: Final = (
    "append_bytes", "append_records", "read_bytes", "read_records", "requests", "cpu_ms",
)  # fmt: skip
"""Limits per second, on each node. `cpu_ms` are milliseconds of the node's event loop."""

OF_CLASSES: Final = ("connections", "follows", "producers")
"""Limits at a time for each principal of a class: connections and follows on each node, names of
producers in the cluster."""
STORED: Final = "stored_bytes"
OF_TENANTS: Final = ("follows", "logs", STORED)
"""Limits at a time for a tenant: follows on each node, logs and stored bytes in the cluster.
Stored bytes count one copy of each range, as its leader stores it."""
COUNTS: Final = tuple(dict.fromkeys((*OF_CLASSES, *OF_TENANTS)))
KINDS: Final = (*RATES, *COUNTS)
"""Everything that a quota can limit."""

COUNTERS: Final = (*RATES, "refused")
"""The counters of a node: the limited resources, and requests refused because of a quota."""

_QUOTA: Final = Record({"name": LOG_NAME, "limits": Table(Text(32), Integer(1), 16)}, loose=True)

QUOTA_SET: Final = Operation(
    "quota_set", 84,
    "Change limits of a quota. The request creates a quota that does not exist.",
    Sender.OPERATOR, Permission.ADMIN, Retry.IDEMPOTENT,
    Record({
        "name": LOG_NAME,
        "limits": Table(Text(32), Nullable(Integer(1, limits.quota_max)), 16),
        **SINCE,
    }),
    _QUOTA, SMALL_BYTES,
)  # fmt: skip
QUOTA_DELETE: Final = Operation(
    "quota_delete", 85, "Delete a quota and all its limits.",
    Sender.OPERATOR, Permission.ADMIN, Retry.ONCE,
    Record({"name": LOG_NAME, **SINCE}), EMPTY, SMALL_BYTES,
)  # fmt: skip
QUOTA_LIST: Final = Operation(
    "quota_list", 86, "Return all quotas, with their limits.",
    Sender.OPERATOR, Permission.DESCRIBE, Retry.SAFE, EMPTY,
    Record({"quotas": Array(_QUOTA, limits.quotas_max)}, loose=True), WHOLE_BYTES,
)  # fmt: skip
_USED: Final[Shape] = {"name": Text(512), **{name: Optional(Integer(), 0) for name in COUNTERS}}
USAGE: Final = Operation(
    "usage", 87,
    "Return the use of this node by tenants and principals since its start.",
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
