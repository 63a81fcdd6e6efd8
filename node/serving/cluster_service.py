"""Operations on the cluster (logs, ranges, nodes, joining), and requests to the controller.

The controller's leader executes every command; a node that is not the leader forwards the command
to the leader. A refusal is final. While the controller has no leader, the node retries for a
second and then says so: the client asks again, and its last answer says that nothing was changed.
After an attempt that may have committed the command, the node retries until the deadline.
"""

import asyncio
import logging
import os
import random
from collections.abc import Callable, Coroutine
from typing import Any

from ...client import tokens
from ...client.accepting.request import Room
from ...client.connection import Connection
from ...client.protocol import Operation, cluster, peers, quotas
from ...client.protocol.errors import (
    Conflict,
    InvalidArgument,
    LognodeError,
    NodeNotFound,
    NotFound,
    NotLeader,
    Outcome,
    RangeNotFound,
    Sealed,
    Timeout,
    Unauthorized,
    Unavailable,
    Unsupported,
)
from ...client.protocol.kinds import shown
from ...partitions import commands, creations, levels, lifecycle, proposals
from ...partitions.model import Descriptor
from ...partitions.producers import KEY_BYTES
from ..control import images
from ..control.images import Images
from ..directory.disk_room import DiskRoom
from ..lifecycle.handover import Handover
from ..lifecycle.recoveries import Recoveries
from ..metadata.view import View
from ..replicas.host import Host
from ..runtime.slices import stepped
from . import health
from .group_catalog import GroupCatalog
from .metadata_service import MetadataService
from .producer_service import ProducerService
from .view_catalog import ViewCatalog

_DEADLINE_S = 10.0
_NO_LEADER_S = 1.0
"""How long a node looks for the controller's leader: less than the client's first attempt waits,
or the client would not know the outcome."""
_REMOVED = "removed"
"""The reason of the Unavailable that tells a forwarding node that it was removed."""
_ONCE = frozenset(
    {
        commands.CREATE_LOG,
        commands.DELETE_LOG,
        commands.DELETE_PRODUCER,
        commands.MOVE,
        commands.SPLIT,
        commands.MERGE,
        commands.RECOVER,
        commands.DELETE_QUOTA,
        commands.REVOKE_TOKEN,
        commands.DELETE_GROUP,
        commands.DELETE_VIEW,
    }
)
"""Commands that would answer differently when executed again. An unknown outcome of such a command
is reported to the client and not retried."""

log = logging.getLogger("lognode.cluster")
Body = dict[str, Any]
Handler = Callable[[Body], Coroutine[Any, None, Body]]
PaidHandler = Callable[[Body, Room], Coroutine[Any, None, Body]]


class ClusterService:
    """Serves the operations on the cluster.

    `status` returns a page of the status, once there is room for the page. `handlers` and
    `paid_handlers` include the handlers of `catalog`, `producers`, `groups` and `views`. An
    operation whose answer grows with the cluster has a paid handler, which gets a `Room`.
    """

    def __init__(
        self,
        *,
        node_id: Callable[[], int],
        host: Host,
        view: View,
        connection: Callable[[int], Connection | None],
        status: PaidHandler,
        rng: random.Random,
        handover: Handover,
        recoveries: Recoveries,
        room: DiskRoom,
        images: Images,
        wall_ms: Callable[[], int],
        alive: Callable[[], set[int]],
        entropy: Callable[[int], bytes] = os.urandom,
    ) -> None:
        self._alive = alive
        """Returns the nodes that were heard lately, where this node leads the controller."""
        self._wall_ms = wall_ms
        self._entropy = entropy
        self._room = room
        self._images = images
        self._recoveries = recoveries
        self._node_id = node_id
        self._host = host
        self._view = view
        self._connection = connection
        self._rng = rng
        self._handover = handover
        self._prefer: int | None = None
        self.catalog = MetadataService(view, self.newest)
        self.producers = ProducerService(
            host=host, command=self.command, at_leader=self.at_leader, wall_ms=wall_ms
        )
        self.groups = GroupCatalog(
            command=self.command, refresh=self.refresh, metadata=lambda: view.metadata
        )
        self.views = ViewCatalog(
            command=self.command, refresh=self.refresh, metadata=lambda: view.metadata
        )
        self.handlers: dict[Operation, Handler] = {
            **self.producers.handlers,
            **self.groups.handlers,
            **self.views.handlers,
            cluster.CREATE_LOG: self.create_log,
            cluster.ALTER_LOG: self.alter_log,
            cluster.DELETE_LOG: self.delete_log,
            cluster.RANGE_TRANSFER: self.range_transfer,
            cluster.RANGE_MOVE: self.range_move,
            cluster.RANGE_SPLIT: self.range_split,
            cluster.RANGE_RECOVERY: recoveries.report,
            cluster.RANGE_RECOVER: self.range_recover,
            cluster.RANGE_MERGE: self.range_merge,
            cluster.NODE_DRAIN: self.node_drain,
            cluster.NODE_REMOVE: self.node_remove,
            cluster.NODE_REKEY: self.node_rekey,
            cluster.FINALIZE: self.finalize,
            quotas.QUOTA_SET: self.quota_set,
            quotas.QUOTA_DELETE: self.quota_delete,
        }
        self.paid_handlers: dict[Operation, PaidHandler] = {
            **self.catalog.paid_handlers,
            **self.producers.paid_handlers,
            **self.groups.paid_handlers,
            **self.views.paid_handlers,
            cluster.STATUS: status,
            cluster.HEALTH: self.health,
            quotas.QUOTA_LIST: self.quota_list,
        }

    # Operations.

    async def create_log(self, body: Body) -> Body:
        """Create a log; the answer has the log's id once this node knows the log.

        `owner` in the body is the principal that asks; a node that asks for itself sends none.
        """
        hierarchy = body.get("hierarchy") or b""
        await self._check_level(lambda level: levels.check_hierarchy(level, hierarchy))
        if body.get("local_retention_bytes") is not None:
            await self._check_level(lambda level: levels.check_local_retention(level, body))
        creation = creations.tied(body["creation"], body.get("owner", ""))
        answer = await self.command({"op": commands.CREATE_LOG, **body, "creation": creation})
        await self.refresh()
        return answer

    async def _check_level(self, check: Callable[[int], None]) -> None:
        """Raise Unsupported for a field that the cluster's level does not have: a controller of an
        earlier version would drop the field, and create or change the log without it."""
        try:
            check(self._view.metadata.feature_level)
        except Unsupported:
            await self.refresh()  # the level may have been raised at another node
            check(self._view.metadata.feature_level)

    async def alter_log(self, body: Body) -> Body:
        """Change a log's policy; the answer has the whole new policy."""
        changes = body["changes"]
        await self._check_level(lambda level: levels.check_local_retention(level, changes))
        answer = await self.command({"op": commands.ALTER_LOG, **body})
        await self.refresh()
        return answer

    async def delete_log(self, body: Body) -> Body:
        """Delete a log and all its entries. Raises LogNotFound."""
        return await self.command({"op": commands.DELETE_LOG, **body})

    async def health(self, body: Body, room: Room) -> Body:
        """Return whether the cluster is healthy, else the reasons and what to do next."""
        await room()
        nodes, metadata, view = body["nodes"], self._view.metadata, self._view
        unreachable = {
            node
            for node in metadata.nodes
            if node != self._node_id() and self._connection(node) is None
        }
        found = await stepped(
            health.reasons(
                metadata,
                view.elected,
                nodes,
                view.damaged,
                self._room.short,
                unreachable,
                view.halted,
            )
        )
        return {
            "ok": not found.reasons,
            "reasons": health.shortened(found.reasons),
            "next": found.next or None,
        }

    async def range_transfer(self, body: Body) -> Body:
        """Make a member the leader of a range or of the controller; answer when it leads.

        Raises NotFound, NodeNotFound, Conflict when the node is down; Unavailable and NotLeader
        while the range has no leader.
        """
        range_id, node = body["range"], body["node"]
        range_ = await self._known_range(range_id)
        self._check_can_lead(range_, node)
        leader = self._view.leader(range_id, range_.generation)
        if leader == node:
            self._handover.wish(range_id, node)
            return {"leader": node, "changed": False}
        if leader is None:
            raise Unavailable(
                f"range {range_id} has no leader that could hand the lead over; try again later"
            )
        request = {"range": range_id, "generation": range_.generation, "node": node}
        if leader == self._node_id():
            return await self._handover.hand_over(leader, request)
        connection = self._connection(leader)
        if connection is None:
            raise Unavailable(
                f"this node has no link to node {leader}, the leader of range {range_id}"
            )
        deadline = asyncio.get_running_loop().time() + _DEADLINE_S
        return await connection.request(peers.HAND_OVER, request, deadline=deadline)

    async def range_move(self, body: Body) -> Body:
        """Begin to move a replica of a range; answer when the move is planned.

        `version` in the answer is the first metadata version that shows the move. Raises NotFound,
        NodeNotFound, Conflict, OperationInProgress, LimitExceeded.
        """
        names = ("range", "from", "to")
        command = {name: body[name] for name in names}
        try:
            answer = await self.command({"op": commands.MOVE, **command})
        except RangeNotFound as error:
            raise NotFound(error.message) from None  # final: the client does not retry a NotFound
        log.info("move planned", extra={"fields": {**command, "operation": answer["operation"]}})
        return answer

    async def range_split(self, body: Body) -> Body:
        """Begin to split a log's range at a key of the range; the answer is that of `range_move`.

        Raises LogNotFound, InvalidArgument, OperationInProgress, LimitExceeded.
        """
        command = {"log": body["log"], "at": body["at"]}
        answer = await self.command({"op": commands.SPLIT, **command})
        log.info("split planned", extra={"fields": {**command, "operation": answer["operation"]}})
        return answer

    async def range_recover(self, body: Body) -> Body:
        """Begin unsafe recovery of a range from one member; the answer is that of `range_move`.

        Raises NotFound, NodeNotFound, InvalidArgument, Conflict, OperationInProgress.
        """
        command = {name: body[name] for name in ("range", "from")}
        if not body["accept_loss"]:
            raise InvalidArgument(
                "acknowledged entries may be lost; accept the loss in the request",
                what="accept_loss",
            )
        range_ = await self._known_range(command["range"])
        damaged = list(self._recoveries.damaged(range_))
        answer = await self.command({"op": commands.RECOVER, **command, "damaged": damaged})
        told = {**command, "operation": answer["operation"]}
        log.warning("unsafe recovery began", extra={"fields": told})
        return answer

    async def range_merge(self, body: Body) -> Body:
        """Begin to merge a log's two ranges that meet at a key; the answer is that of `range_move`.

        Raises LogNotFound, InvalidArgument, Conflict, OperationInProgress, LimitExceeded.
        """
        command = {"log": body["log"], "at": body["at"]}
        answer = await self.command({"op": commands.MERGE, **command})
        log.info("merge planned", extra={"fields": {**command, "operation": answer["operation"]}})
        return answer

    async def node_drain(self, body: Body) -> Body:
        """Begin to drain a node, or with `undo` stop draining.

        The answer has the node's state, its number of replicas, and the first metadata `version`
        that shows both. Raises NodeNotFound, Conflict.
        """
        return await self._of_node(commands.DRAIN_NODE, body, "undo")

    async def node_remove(self, body: Body) -> Body:
        """Remove a node that is drained or, with `dead`, DEAD.

        Raises NodeNotFound, Conflict."""
        return await self._of_node(commands.REMOVE_NODE, body, "dead")

    async def node_rekey(self, body: Body) -> Body:
        """Bind a node to another TLS key: from now on only the holder of that key is accepted as
        the node. Raises NodeNotFound, Conflict, InvalidArgument."""
        asked = {"node": body["node"], "key": body["key"]}
        answer = await self.command({"op": commands.REKEY_NODE, **asked, **_since(body)})
        log.info("node bound to another key", extra={"fields": asked})
        return answer

    async def finalize(self, body: Body) -> Body:
        """Raise the feature level of the cluster; the answer has the level.

        Raises Conflict for nodes that do not know the level, or a lower level; InvalidArgument.
        """
        try:
            answer = await self.command({"op": commands.FINALIZE, "level": body["level"]})
        except InvalidArgument as error:
            if error.fields.get("what") != "command":
                raise
            raise Conflict(levels.older_leader(self._view.controller_leader())) from None
        log.info("feature level", extra={"fields": answer})
        await self.refresh()
        return answer

    async def quota_set(self, body: Body) -> Body:
        """Change limits of a quota; the answer has all its limits. Raises InvalidArgument,
        LimitExceeded."""
        asked = {"name": body["name"], "limits": body["limits"]}
        answer = await self.command({"op": commands.SET_QUOTA, **asked, **_since(body)})
        log.info("quota set", extra={"fields": answer})
        return answer

    async def quota_delete(self, body: Body) -> Body:
        """Delete a quota. Raises NotFound."""
        asked = {"name": body["name"], **_since(body)}
        answer = await self.command({"op": commands.DELETE_QUOTA, **asked})
        log.info("quota deleted", extra={"fields": {"name": body["name"]}})
        return answer

    async def quota_list(self, _: Body, room: Room) -> Body:
        """Return all quotas, as current as the controller leader's."""
        await self.refresh()
        await room()
        found = self._view.metadata.quotas
        return {"quotas": [{"name": name, "limits": dict(found[name])} for name in sorted(found)]}

    async def _of_node(self, op: str, body: Body, option: str) -> Body:
        asked = {"node": body["node"], option: body[option]}
        answer = await self.command({"op": op, **asked, **_since(body)})
        log.info("node state", extra={"fields": {**asked, "state": answer["state"]}})
        return answer

    async def _known_range(self, range_id: int) -> Descriptor:
        try:
            return self._view.metadata.descriptor(range_id)
        except RangeNotFound:
            await self.refresh()  # the range may be new
        try:
            return self._view.metadata.descriptor(range_id)
        except RangeNotFound as error:
            raise NotFound(error.message) from None  # final: the client does not retry a NotFound

    def _check_can_lead(self, range_: Descriptor, node: int) -> None:
        record = self._view.metadata.nodes.get(node)
        if record is None:
            raise NodeNotFound(
                f"node {node} does not exist; `lognode node list` shows all nodes", node=node
            )
        if node not in range_.members:
            members = ", ".join(map(str, range_.members))
            raise NodeNotFound(
                f"node {node} has no replica of range {range_.range_id}; its members are "
                f"{members}. Choose a member",
                node=node,
            )
        if record.state == "DEAD":
            raise Conflict(f"node {node} is down: start the node, or choose another member")
        if record.state in ("DRAINING", "REMOVED"):
            raise Conflict(f"node {node} is {record.state}: choose another member")

    async def join(self, body: Body) -> Body:
        """Admit a node that wants to join; the answer has its id and the peer address to ask next.

        As a node, the newcomer asks for the metadata image at that address.

        Raises Unauthorized for a node without an invitation, where a node needs an invitation.

        Raises Unavailable before the founder has registered: the id would be the founder's."""
        if not self._view.metadata.nodes:
            raise Unavailable("the cluster is being founded; try again later", reason="founding")
        invitation = body.get("invitation")
        invited = {}
        if invitation is not None:
            invited = {"invite": tokens.id_of(invitation), "digest": tokens.digest_of(invitation)}
        answer = await self.command({**register_command({**body, "node": None}), **invited})
        await self.refresh()
        own = self._view.metadata.nodes.get(self._node_id())
        if own is None:
            raise Unavailable("this node is not registered yet; ask again later")
        return {**answer, "peer": own.peer_address}

    # Requests to the controller.

    async def command(self, command: Body) -> Body:
        """Have the controller commit a command, on this node or another. Raises the refusal.

        This node checks the command as well as the controller's leader, because the leader may run
        a version that checks less.
        """
        command = proposals.checked(command, self._view.metadata.nodes)
        once = command.get("op") in _ONCE and not command.get("creation")
        return await self._at_controller(
            peers.COMMAND, {"command": command}, lambda _: self.execute(command), once=once
        )

    async def at_leader(self, operation: Operation, body: Body, here: Handler) -> Body:
        """Ask the controller's leader; `here` serves the operation if this node is the leader.

        Raises the refusal."""
        return await self._at_controller(operation, body, here, once=False)

    async def _at_controller(
        self, operation: Operation, body: Body, here: Handler, *, once: bool
    ) -> Body:
        """Retry. `once`: raise an unknown outcome and do not retry.

        The outcome of the error that is raised at the end is the worst of all attempts (x18)."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _DEADLINE_S
        give_up = loop.time() + _NO_LEADER_S
        backoff_s = 0.05
        last: LognodeError | None = None
        outcome: Outcome = "not_applied"
        tried: list[int] = []
        while loop.time() < give_up:
            node = self._next_controller_node(tried)
            try:
                if node == self._node_id():
                    return await here(body)
                connection = self._connection(node)
                if connection is None:
                    raise Unavailable(f"this node has no link to controller member {node}")
                return await connection.request(operation, body, deadline=deadline)
            except (NotLeader, Sealed, Unavailable, Timeout) as error:
                if once and error.outcome != "not_applied":
                    raise
                if error.fields.get("reason") == _REMOVED:
                    raise  # this node will stop when it learns this; the client asks another node
                last = error
                if error.outcome != "not_applied":
                    outcome, give_up = "unknown", deadline
                hint = error.fields.get("hint")
                if type(hint) is int and hint not in tried:
                    tried = [n for n in tried if n != hint]
                    self._prefer = hint
                else:
                    tried.append(node)
                    self._prefer = None
            await asyncio.sleep(backoff_s * self._rng.uniform(0.5, 1.0))
            backoff_s = min(backoff_s * 2, 0.5)
        told = "nothing was changed" if outcome == "not_applied" else "the change may be made"
        raise Unavailable(
            f"this node reaches no leader of the controller; {told}. `lognode health` says which "
            f"nodes are down; start these nodes. The last error: {last}",
            outcome=outcome,
        )

    def _next_controller_node(self, tried: list[int]) -> int:
        for node in (self._prefer, self._view.controller_leader()):
            if node is not None and node not in tried:
                return node
        members = self._view.metadata.controller.members or (self._node_id(),)
        fresh = [member for member in members if member not in tried]
        if not fresh:
            tried.clear()
            fresh = list(members)
        return fresh[0]

    async def execute(self, command: Body) -> Body:
        """Commit a command on this node. Raises NotLeader unless this node leads the controller."""
        replica = self._host.controller
        if replica is None:
            leader = self._view.controller_leader()
            raise NotLeader("this node is not a member of the controller", hint=leader)
        if command.get("op") in commands.GROWING:
            no_room = self._room.growth_refusal(replica.members)
            if no_room is not None:
                raise no_room
        complete = commands.dated(command, self._wall_ms())
        if command.get("op") in (commands.OPEN_NAMED, commands.OPEN_ANONYMOUS):
            complete["key"] = self._entropy(KEY_BYTES)
        if command.get("op") == commands.FINALIZE:
            await replica.ready()
            complete = levels.completed(
                complete, replica.metadata, self._view.programs, self._alive()
            )
        return await replica.command(complete)

    async def peer_command(self, sender: int, body: Body) -> Body:
        """Commit a command that another node forwarded.

        A node registers only itself, or a node that joins. The controller checks the command
        before it proposes the command."""
        command = body["command"]
        op = command.get("op")
        if not isinstance(op, str) or op not in commands.FORWARDED:
            raise InvalidArgument(
                f"the command {shown(op)} is not one that a node forwards", what="command"
            )
        if op != commands.REGISTER and lifecycle.is_removed(sender, self._view.metadata.nodes):
            raise Unavailable(
                f"node {sender} was removed from the cluster; ask another node", reason=_REMOVED
            )
        if op == commands.REGISTER and not _is(command.get("node"), None, sender):
            raise Unauthorized(
                f"node {sender} cannot register node {shown(command['node'])}; each node "
                "registers only itself"
            )
        return await self.execute(command)

    async def refresh(self) -> None:
        """Bring this node's image up to the controller leader's, if the leader answers."""
        await self.newest()

    async def newest(self) -> bool:
        """Bring this node's image up to the controller leader's, to show the last commit.

        Return False when no leader of the controller answers: the image may be old.
        """
        replica = self._host.controller
        if replica is not None and replica.leads:
            self._view.follow_replica(replica.metadata)
            return True
        for node in self._controllers():
            connection = self._connection(node)
            if connection is None:
                continue
            try:
                await self._images.pull(connection, images.NEWEST)
            except LognodeError:
                continue  # another node leads, or a heartbeat brings the image
            return True
        return False

    async def confirmed(self) -> bool:
        """Bring this node's image up to that of a leader of the controller which a quorum has
        confirmed since the call. Return False when there is no such leader."""
        replica = self._host.controller
        if replica is not None and replica.leads:
            try:
                await replica.ready()
            except LognodeError:
                return False
        return await self.newest()

    def _controllers(self) -> list[int]:
        """Return the nodes to ask for the image, the last known leader first."""
        leader = self._view.controller_leader()
        others = set(self._view.metadata.controller.members) - {self._node_id()}
        return sorted(others, key=lambda node: (node != leader, node))


def _is(value: object, *allowed: object) -> bool:
    """Return whether the value equals an allowed value of the same type: True is not node 1."""
    return any(type(value) is type(each) and value == each for each in allowed)


def _since(body: Body) -> Body:
    """Return the field `since` of a request, where the request has it."""
    return {"since": body["since"]} if "since" in body else {}


def register_command(body: Body) -> Body:
    """Return the metadata command that registers a node."""
    names = ("node", "incarnation", "boot", "process", "address", "peer", "http", "zone", "key",
             "levels")  # fmt: skip
    return {"op": commands.REGISTER, **{name: body.get(name) for name in names}}
