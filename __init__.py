"""lognode: a cluster that keeps millions of small ordered logs, one per key.

    import lognode

    with lognode.Client("lognode://127.0.0.1:4600") as client:
        log = client.create_log("flights", exist_ok=True)
        log.append("N14228", b"departed")
        for entry in log.scan("N14228"):
            print(entry.seq, entry.value)

`AsyncClient` is the same for asyncio. Importing this loads the client only.
"""

from .client import imports as _imports
from .client._sync import (
    Admin,
    Client,
    Consumer,
    Feed,
    Group,
    GroupBatch,
    KeptCursor,
    Log,
    Producer,
    Snapshot,
    Ticket,
)
from .client.admin import AsyncAdmin
from .client.appends import AsyncTicket
from .client.client import AsyncClient
from .client.consumer import AsyncConsumer
from .client.cursor import AsyncKeptCursor
from .client.entry_columns import EntryColumns
from .client.follow import AsyncFeed
from .client.group import AsyncGroup
from .client.group_batch import AsyncGroupBatch
from .client.log import AsyncLog, Record
from .client.producer import AsyncProducer
from .client.protocol.errors import (
    BatchSpansRanges,
    Conflict,
    CorruptData,
    Fenced,
    GenerationMismatch,
    InvalidArgument,
    LimitExceeded,
    LocalProtocolError,
    LogExists,
    LognodeError,
    LogNotFound,
    NodeNotFound,
    NotFound,
    NotLeader,
    OperationInProgress,
    OutOfOrder,
    Overloaded,
    PartialFailure,
    ProtocolError,
    RangeNotFound,
    RemoteProtocolError,
    Sealed,
    SequenceMismatch,
    Timeout,
    Unauthorized,
    Unavailable,
    Unsupported,
)
from .client.protocol.scopes import Scope
from .client.protocol.tls import Tls
from .client.protocol.types import (
    ABSENT,
    ANY,
    UNCHANGED,
    Ack,
    Consistency,
    Cursor,
    CursorInfo,
    CursorStart,
    End,
    Entry,
    FollowBatch,
    FollowStart,
    GivenHeaders,
    GroupDecision,
    GroupInfo,
    GroupKey,
    GroupLag,
    GroupStart,
    Headers,
    Pattern,
    Start,
    Tail,
    Timestamp,
    Updated,
    ViewInfo,
)
from .client.snapshot import AsyncSnapshot
from .client.vector import Part, Vector
from .client.view_choice import AllOf, AnyOf
from .client.window import Delivery

__all__ = [
    "ABSENT",
    "ANY",
    "UNCHANGED",
    "Ack",
    "Admin",
    "AllOf",
    "AnyOf",
    "AsyncAdmin",
    "AsyncClient",
    "AsyncConsumer",
    "AsyncFeed",
    "AsyncGroup",
    "AsyncGroupBatch",
    "AsyncKeptCursor",
    "AsyncLog",
    "AsyncProducer",
    "AsyncSnapshot",
    "AsyncTicket",
    "BatchSpansRanges",
    "Client",
    "Conflict",
    "Consistency",
    "Consumer",
    "CorruptData",
    "Cursor",
    "CursorInfo",
    "CursorStart",
    "Delivery",
    "End",
    "Entry",
    "EntryColumns",
    "Feed",
    "Fenced",
    "FollowBatch",
    "FollowStart",
    "GenerationMismatch",
    "GivenHeaders",
    "Group",
    "GroupBatch",
    "GroupDecision",
    "GroupInfo",
    "GroupKey",
    "GroupLag",
    "GroupStart",
    "Headers",
    "InvalidArgument",
    "KeptCursor",
    "LimitExceeded",
    "LocalProtocolError",
    "Log",
    "LogExists",
    "LogNotFound",
    "LognodeError",
    "NodeNotFound",
    "NotFound",
    "NotLeader",
    "OperationInProgress",
    "OutOfOrder",
    "Overloaded",
    "Part",
    "PartialFailure",
    "Pattern",
    "Producer",
    "ProtocolError",
    "RangeNotFound",
    "Record",
    "RemoteProtocolError",
    "Scope",
    "Sealed",
    "SequenceMismatch",
    "Snapshot",
    "Start",
    "Tail",
    "Ticket",
    "Timeout",
    "Timestamp",
    "Tls",
    "Unauthorized",
    "Unavailable",
    "Unsupported",
    "Updated",
    "Vector",
    "ViewInfo",
]

_imports.end()
