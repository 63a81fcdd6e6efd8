"""Reports what an operator must know before unsafe recovery. It changes nothing.

The report says what each member has of the range, from which member to continue, and why the
controller would refuse that now. Every member that answers says how far its log reaches on its
disk. A majority of the members has each acknowledged entry. An acknowledged entry that is missing
in the longest log, by term and index of the last entry, exists only on members that do not answer.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, Final

from ...client.connection import Connection
from ...client.protocol.errors import LognodeError, NotFound, RangeNotFound, RemoteProtocolError
from ...client.protocol.peers import REPLICA_END
from ...partitions import recovery
from ...partitions.model import Descriptor
from ...raft.types import GroupId
from ..metadata.view import View
from ..replicas.host import Host
from ..runtime import fields

_ASK_S: Final = 1.0
"""How long to wait for the members' answers."""
_HELD: Final = ("last_term", "last_index", "applied", "last_seq", "last_timestamp_ms")
"""Fields of a member's answer on its replica: the last entry of its log, the last entry that it
knows to be committed and has applied, and the last applied record."""

Body = dict[str, Any]


class Recoveries:
    """Reports on the members of a range: `report` asks them, `serve` answers."""

    def __init__(
        self,
        *,
        node_id: int,
        host: Host,
        view: View,
        connection: Callable[[int], Connection | None],
    ) -> None:
        self._node_id = node_id
        self._host = host
        self._view = view
        self._connection = connection

    async def serve(self, _: int, body: Body) -> Body:
        """Answer what this node has of a generation."""
        return {"held": self._here(fields.group(body))}

    async def report(self, body: Body) -> Body:
        """Report what the members of the range have, and which member is `proposed` to survive.

        `refused` says why recovery from that member is refused now; nil: it is allowed. Raises
        NotFound.
        """
        metadata = self._view.metadata
        try:
            range_ = metadata.descriptor(body["range"])
        except RangeNotFound as error:
            raise NotFound(error.message) from None
        gid = GroupId(range_.range_id, range_.generation)
        told = await asyncio.gather(*(self._of(node, gid) for node in range_.members))
        damaged = self.damaged(range_)
        members = [
            {"node": node, "state": metadata.nodes[node].state, "answers": held is not None,
             "damaged": damaged.get(node), **(held or dict.fromkeys(_HELD))}
            for node, held in zip(range_.members, told, strict=True)
        ]  # fmt: skip
        proposed = longest(members)
        log = metadata.logs.get(range_.log_id)
        return {
            "range": range_.range_id,
            "log": "" if log is None else log.name,
            "start": range_.span.start,
            "end": range_.span.end,
            "generation": range_.generation,
            "operation": range_.operation,
            "members": members,
            "proposed": proposed,
            "refused": self._refusal(range_, proposed),
        }

    def damaged(self, range_: Descriptor) -> dict[int, str]:
        """Return the nodes whose replica of this generation takes no part any more, and why."""
        return {
            node: reason
            for node, replicas in self._view.damaged.items()
            for range_id, generation, reason in replicas
            if (range_id, generation) == (range_.range_id, range_.generation)
        }

    def _refusal(self, range_: Descriptor, survivor: int | None) -> str | None:
        """Return the refusal that the controller will give, as far as this node knows."""
        metadata = self._view.metadata
        if self._view.controller_leader() is None:
            return (
                "the controller, range 0, has no leader, and a recovery needs its decision: "
                "start most members of the controller "
                f"({', '.join(map(str, metadata.controller.members))})"
            )
        operation = metadata.operations.get(range_.operation)
        able = recovery.able(range_, metadata.nodes)
        node = survivor or (able or range_.members)[0]
        try:
            recovery.check(range_, metadata.nodes, operation, self.damaged(range_), node)
        except LognodeError as error:
            return error.message
        return None if survivor else "no member with a sound replica answers; start a member"

    async def _of(self, node: int, gid: GroupId) -> Body | None:
        if node == self._node_id:
            return self._here(gid)
        connection = self._connection(node)
        if connection is None:
            return None
        asked = {"range": gid.range_id, "generation": gid.generation}
        deadline = asyncio.get_running_loop().time() + _ASK_S
        try:
            answer = await connection.request(REPLICA_END, asked, deadline=deadline)
            return held_of(answer["held"])
        except (LognodeError, KeyError):
            return None  # the node is busy, gone, or of a version without recovery

    def _here(self, gid: GroupId) -> Body | None:
        replica = self._host.replica(gid)
        if replica is None:
            return None
        raft_log, state = replica.raft_log, replica.state
        last = raft_log.durable_index
        ends = (raft_log.term_at(last) or 0, last, replica.applied_index,
                state.next_seq - 1, state.last_timestamp_ms)  # fmt: skip
        return dict(zip(_HELD, ends, strict=True))


def longest(members: Iterable[Body]) -> int | None:
    """Return the node with the last entry, by term and index; None when no node answers."""
    there = [member for member in members if member["answers"] and member["damaged"] is None]
    best = max(
        there, key=lambda m: (m["last_term"], m["last_index"], m["applied"], -m["node"]),
        default=None,
    )  # fmt: skip
    return None if best is None else int(best["node"])


def held_of(told: object) -> Body | None:
    """Check another node's answer of `Recoveries.serve`.

    Raises RemoteProtocolError if it is invalid.
    """
    if told is None:
        return None
    if not isinstance(told, dict) or any(type(told.get(name)) is not int for name in _HELD):
        raise RemoteProtocolError("the reported end of a replica is not valid")
    return {name: told[name] for name in _HELD}
