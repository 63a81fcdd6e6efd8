"""Invitations in the metadata: which new nodes the operators want.

In a cluster with TLS, a new node with a key has to bring an invitation: a certificate of the
cluster's authority says that its holder is some node, but not that an operator wants the node here
now. The command that registers the node uses the invitation up, and the node's record keeps its id.
A node whose answer was lost repeats the command, and gets the same answer: by its key, its
incarnation and the same invitation. Any other node finds the invitation used.

Two kinds of new nodes need no invitation. The first are the `founders` that have named each other
(`--bootstrap-expect`), for an hour after the founding. The second is a machine that lost its disk:
its key is the key of a node of the cluster, and every node with that key is DEAD. A copy of the key
of a live node admits nobody, nor does the key of a node that an operator has removed.
"""

import hmac
from collections.abc import Mapping
from typing import Any, Final, NamedTuple, Protocol

from ..client.protocol import limits
from ..client.protocol.errors import (
    Conflict,
    InvalidArgument,
    LimitExceeded,
    NotFound,
    Unauthorized,
)
from ..client.tokens import is_id
from .command_fields import number, text
from .model import NodeRecord
from .tables import Kind, Table
from .tokens import check_digest

Command = dict[str, Any]
Answer = dict[str, Any]

KEY_IN_USE: Final = "key_in_use"
"""The reason of a refusal that ends when the live node with the same key is DEAD."""
ASK: Final = "ask an operator for a new invitation (`lognode node invite`)"
_ADVICE: Final = (
    "make an invitation with `lognode node invite --out FILE`, and start the node with "
    "--invitation FILE"
)


class Invite(NamedTuple):
    """An unused invitation. Times are milliseconds since 1970."""

    invite_id: str
    digest: bytes
    created_ms: int
    expires_ms: int
    by: str = ""
    """The principal that made the invitation; empty in records of older versions."""

    def is_expired(self, now_ms: int) -> bool:
        """Whether the invitation has expired."""
        return self.expires_ms <= now_ms

    def __repr__(self) -> str:
        return f"Invite({self.invite_id})"


def _read(told: Any) -> tuple[str, Invite]:
    invite = Invite(*told)
    return invite.invite_id, invite


INVITES: Final = Kind("invites", lambda _, invite: list(invite), _read, is_numbered=False)


class Known(Protocol):
    """The state that the commands below change."""

    invites: Table[str, Invite]
    nodes: Table[int, NodeRecord]

    @property
    def founders(self) -> int: ...

    @property
    def founded_ms(self) -> int: ...

    @property
    def next_ids(self) -> Mapping[str, int]: ...


def create(state: Known, command: Command) -> Answer:
    """Keep an invitation, and forget the expired ones. A repetition changes nothing.

    Raises InvalidArgument, LimitExceeded; Conflict for an id of another invitation.
    """
    invite_id, digest = text(command, "id"), check_digest(command.get("digest"))
    by = text(command, "by")
    created_ms, expires_ms = number(command, "at_ms"), number(command, "expires_ms")
    if not is_id(invite_id):
        raise InvalidArgument(
            f"the invitation id is {invite_id!r}; an id has 16 hexadecimal digits", what="id"
        )
    if not 0 < expires_ms - created_ms <= limits.invite_expiry_ms_max:
        raise InvalidArgument(
            f"the invitation would expire in {(expires_ms - created_ms) // 1000} s; at most "
            f"{limits.invite_expiry_ms_max // 86400000} days are allowed", what="expires_ms",
        )  # fmt: skip
    known = state.invites.get(invite_id)
    if known is not None:
        if known.digest != digest:
            raise Conflict(f"invitation {invite_id} exists already; draw another id")
        return {"id": invite_id}
    for old in [each for each in state.invites.values() if each.is_expired(created_ms)]:
        del state.invites[old.invite_id]
    if len(state.invites) >= limits.invites_max:
        raise LimitExceeded(
            f"{len(state.invites)} invitations are open, the limit is {limits.invites_max}: "
            "revoke some with `lognode node uninvite`",
            limit="invites_max", value=len(state.invites) + 1, allowed=limits.invites_max,
        )  # fmt: skip
    state.invites[invite_id] = Invite(invite_id, digest, created_ms, expires_ms, by)
    return {"id": invite_id}


def revoke(state: Known, command: Command) -> Answer:
    """Take an invitation back. Raises NotFound if it is gone, used or not."""
    invite_id = text(command, "id")
    if invite_id not in state.invites:
        raise NotFound(
            f"invitation {invite_id} does not exist: a node has used the invitation, an "
            "operator revoked it, or it has expired; `lognode node invites` shows all"
        )
    del state.invites[invite_id]
    return {}


def check_again(known: NodeRecord, command: Command) -> None:
    """Raise Unauthorized for a node that repeats its join with another invitation.

    The caller has found the record by the incarnation, and compares the keys.
    """
    if command.get("at_ms") is None or text(command, "invite") == known.invite:
        return
    said = f"with invitation {known.invite}" if known.invite else "without an invitation"
    raise Unauthorized(
        f"this data directory has joined as node {known.node_id} {said}; start the node in "
        "the same way, or give the node an empty data directory"
    )


def admit(state: Known, command: Command, key: str) -> str:
    """Use up the invitation of a new node; return its id, or "" where none is needed.

    `key` is that of the node's certificate, "" without TLS. Raises Unauthorized for a node without
    an invitation.
    """
    if command.get("at_ms") is None:
        return ""  # a version before invitations committed this: it is applied as it was then
    invite_id, digest = text(command, "invite"), command.get("digest")
    if not invite_id:
        if key and not _is_founder(state, number(command, "at_ms")):
            _check_lost_disk(state, key)
        return ""
    invite = state.invites.get(invite_id)
    if invite is None and _has_used(state, key, invite_id):
        _check_lost_disk(state, key)  # the node's flags still name the invitation of the lost node
        return invite_id
    if invite is None:
        raise Unauthorized(
            f"this cluster does not know invitation {invite_id}: a node has used the "
            f"invitation, an operator revoked it, or it is of another cluster; {ASK}"
        )
    if invite.is_expired(number(command, "at_ms")):
        raise Unauthorized(f"invitation {invite_id} has expired; {ASK}")
    if not hmac.compare_digest(check_digest(digest), invite.digest):
        raise Unauthorized(f"the secret does not belong to invitation {invite_id}; {ASK}")
    del state.invites[invite_id]
    return invite_id


def _is_founder(state: Known, now_ms: int) -> bool:
    """Whether the next node takes the place of a founder.

    An older version did not keep the time of the founding. There the places never expire, so that a
    replay of its log admits the same nodes.
    """
    is_late = state.founded_ms and now_ms >= state.founded_ms + limits.founding_ms
    return state.next_ids["node"] <= state.founders and not is_late


def _has_used(state: Known, key: str, invite_id: str) -> bool:
    """Whether a node with that TLS key has joined with the invitation."""
    return bool(key) and any(
        (node.key, node.invite) == (key, invite_id) for node in state.nodes.values()
    )


def _check_lost_disk(state: Known, key: str) -> None:
    """Raise Unauthorized unless the key belongs to a machine that lost its disk."""
    same = [node for node in state.nodes.values() if node.key == key and node.state != "REMOVED"]
    if not same:
        raise Unauthorized(f"a new node needs an invitation to join this cluster: {_ADVICE}")
    for node in same:
        if node.state != "DEAD":
            raise Unauthorized(
                f"node {node.node_id} has the same TLS key and is {node.state}. A machine "
                "that lost its disk joins again after its node is DEAD; for a further node "
                f"{_ADVICE}",
                reason=KEY_IN_USE,
            )  # fmt: skip
