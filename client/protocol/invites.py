"""Operations on invitations of new nodes."""

from typing import Final

from . import limits
from .common import EMPTY, SINCE, SMALL_BYTES, WHOLE_BYTES
from .kinds import Array, Binary, Integer, Text
from .operation import Operation, Permission, Retry, Sender
from .record import Optional, Record

INVITE_ID: Final = Text(16, 16)
INVITER: Final = Text(limits.inviter_bytes_max)
CLUSTER_ID: Final = Text(limits.cluster_id_bytes_max, 1)

NODE_INVITE: Final = Operation(
    "node_invite", 91,
    "Let one new node join, once, before the invitation expires. The client draws "
    "`ID.SECRET` as for a token, and gives the node the line "
    "`ID.SECRET.CLUSTER.CA.CHECKSUM`. `cluster` and `ca` come from the answer. The checksum "
    "is the CRC-32 (zlib) of the text before the last dot, in 8 hexadecimal digits.",
    Sender.OPERATOR, Permission.ADMIN, Retry.IDEMPOTENT,
    Record({"id": INVITE_ID, "digest": Binary(32, 32), "expires_ms": Integer(1), **SINCE}),
    Record({"cluster": CLUSTER_ID, "ca": Text(64, 1)}, loose=True), SMALL_BYTES,
)  # fmt: skip
NODE_INVITES: Final = Operation(
    "node_invites", 92,
    "Return the invitations that no node has used, without their secrets.",
    Sender.OPERATOR, Permission.ADMIN, Retry.SAFE, EMPTY,
    Record({"invites": Array(
        Record({"id": INVITE_ID, "by": Optional(INVITER, ""), "created_ms": Integer(),
                "expires_ms": Integer()}, loose=True),
        limits.invites_max,
    )}, loose=True),
    WHOLE_BYTES,
)  # fmt: skip
NODE_UNINVITE: Final = Operation(
    "node_uninvite", 93, "Revoke an invitation.",
    Sender.OPERATOR, Permission.ADMIN, Retry.ONCE,
    Record({"id": INVITE_ID}), EMPTY, SMALL_BYTES,
)  # fmt: skip

INVITES: Final = (NODE_INVITE, NODE_INVITES, NODE_UNINVITE)
