"""The operation with which a node tells people of itself: storage, settings, connections."""

from typing import Final

from . import limits
from .kinds import Integer, Opaque, Text
from .operation import Operation, Permission, Retry, Sender
from .record import Optional, Record

STORAGE: Final = "storage"
SETTINGS: Final = "settings"
CONNECTIONS: Final = "connections"
PARTS: Final = (STORAGE, SETTINGS, CONNECTIONS)
_PAGE_BYTES: Final = 4 * limits.MIB
"""The maximum bytes of a page: connections with the longest names of principals."""

NODE_REPORT: Final = Operation(
    "node_report", 126,
    "Return a page of what the answering node tells people of itself: its storage with its "
    "replicas, its settings with their sources, or the connections of its clients.",
    Sender.OPERATOR, Permission.DESCRIBE, Retry.SAFE,
    Record({
        "part": Text(16, among=PARTS),
        "offset": Optional(Integer(), 0),
        "limit": Optional(Integer(1, limits.status_page_max), limits.status_page_max),
    }),
    Record({
        "node": Integer(),
        "facts": Opaque("node.serving.node_reports", dict, about="for people"),
        "rows": Opaque("node.serving.node_reports", list, about="for people"),
        "total": Integer(),
    }, loose=True),
    _PAGE_BYTES,
)  # fmt: skip

NODE_REPORTS: Final = (NODE_REPORT,)
