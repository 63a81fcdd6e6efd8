"""The node's listener: it decides who may send a request, and which handler serves it."""

import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import nullcontext
from functools import partial
from typing import Any, Final

from ...client.accepting.acceptor import UNREAD, ServerConnection
from ...client.accepting.access import Access
from ...client.accepting.handler import Believed
from ...client.accepting.request import Request, Room
from ...client.fair_turns import Share, next_turn
from ...client.protocol import OPERATIONS, Operation, Permission, Sender, by_number, limits
from ...client.protocol.appends import APPEND, DELETE_KEYS, LEASE_TAKE, PRODUCER_CLOSE, TRIM
from ...client.protocol.cluster import CREATE_LOG, METADATA, PRODUCER_OPEN
from ...client.protocol.errors import (
    CorruptData,
    InvalidArgument,
    LognodeError,
    RemoteProtocolError,
    Unauthorized,
    Unsupported,
)
from ...client.protocol.groups import (
    GROUP_APPEND,
    GROUP_CREATE,
    GROUP_DECIDE,
    GROUP_DELETE,
    GROUP_TAKE,
)
from ...client.protocol.invariants import DiskFailure, InvariantError
from ...client.protocol.invites import NODE_INVITE
from ...client.protocol.partitions import TAILS
from ...client.protocol.peers import JOIN, RAFT
from ...client.protocol.principal import Principal, of_node
from ...client.protocol.reads import FOLLOW
from ...client.protocol.views import VIEW_DELETE, VIEW_REGISTER, VIEWS_WAIT
from ...client.protocol.wire import Hello, Welcome
from ..access.access import Accesses, Shown
from ..access.visible import Visible
from ..audit.audit import Audit
from ..audit.reserved import Reserved
from ..links.known_peers import KnownPeers
from ..links.raft_in import RaftIn
from ..metrics import Metrics
from ..quota.foretold import Foretold
from ..quota.gate import Gate, pause_s
from ..quota.quotas import Payer
from ..replicas.range_replica import RangeReplica
from ..runtime.eager import begun
from ..runtime.turn_ends import TurnEnds
from .command_turns import CommandTurns
from .data_service import DataService
from .follow import Follow, no_pause
from .follows import Follows

Body = dict[str, Any]
Answer = Coroutine[Any, None, Body]
Handler = Callable[[Body], Answer]
PaidHandler = Callable[[Body, Room], Answer]
"""A handler that waits for the room for its answer itself, just before it makes the answer."""
PeerHandler = Callable[[int, Body], Answer]

log = logging.getLogger("lognode.server")
_OWNED: Final = frozenset({CREATE_LOG, LEASE_TAKE, PRODUCER_OPEN, TRIM, DELETE_KEYS})
"""Operations whose outcome depends on the principal that asks."""
_COMMANDS: Final = frozenset(
    {PRODUCER_OPEN, GROUP_CREATE, GROUP_DELETE, VIEW_REGISTER, VIEW_DELETE}
)
"""Operations that change the metadata, besides those of administrators."""


class Server:
    """Implements `client.accepting.handler.Handler` for the port for clients.

    `peer_address` is the address of the port for peers (`peer_server.py`). `raft_in` takes the
    messages of members. `handlers` and `paid_handlers` serve the operations open to everybody.
    `peer_handlers` serve the operations of nodes, and get the asker's id. Each operation of the
    table has one handler here, except `follow`, one-way messages, and the operations that a node
    without a cluster answers.
    """

    def __init__(
        self,
        *,
        who: Callable[[], tuple[str, int]],
        peer_address: str,
        raft_in: RaftIn,
        data: DataService,
        handlers: Mapping[Operation, Handler],
        paid_handlers: Mapping[Operation, PaidHandler],
        join: Handler,
        accesses: Accesses,
        proves_nodes: bool,
        visible: Visible,
        peer_handlers: Mapping[Operation, PeerHandler],
        known_peers: KnownPeers,
        gate: Gate,
        audit: Audit,
        reserved: Reserved,
        metrics: Metrics,
        turn_ends: TurnEnds,
        on_stranger: Callable[[str, bool], None],
        on_broken: Callable[[BaseException], None],
    ) -> None:
        self._who = who
        self._peer_address = peer_address
        self._on_stranger = on_stranger
        """Gets the cluster name of a dialler from another cluster, and whether the dialler has
        proved to be a node."""
        self._raft_in = raft_in
        self._data = data
        self._follows = Follows()
        self._foretold = Foretold()
        metrics.follows.set_function(lambda: self._follows.count)
        self._handlers = {**data.handlers, **handlers}
        self._paid_handlers = {**data.reads, **paid_handlers}
        self._peer_handlers = peer_handlers
        self._join = join
        self._known_peers = known_peers
        self._gate = gate
        self._accesses = accesses
        self._proves_nodes = proves_nodes
        """Whether nodes prove that they are nodes, by a secret or a certificate."""
        self._visible = visible
        self._audit = audit
        self._reserved = reserved
        self._metrics = metrics
        self._turn_ends = turn_ends
        self._answered = {
            operation: metrics.requests.labels(operation.name, "OK")
            for operation in OPERATIONS.values()
        }
        """The counters of answered requests: looking a label up takes longer than counting."""
        self._on_broken = on_broken
        self._command_turns = CommandTurns()

    # Handler.

    def welcome(self, hello: Hello, nonce: bytes) -> Welcome:
        cluster, node = self._who()
        version = hello.agreed_version()
        if hello.role == "node" and (hello.node is None) != (hello.cluster is None):
            raise RemoteProtocolError(
                "the hello is of a node without its number or cluster; give both"
            )
        return Welcome(nonce=nonce, version=version, cluster=cluster, node=node)

    def believe(self, connection: ServerConnection, hello: Hello) -> Believed:
        believed = self.recognise(connection, hello)
        if hello.role == "node" and hello.node is not None:
            raise Unauthorized(
                f"this port is only for clients; nodes of the cluster dial {self._peer_address}",
                peer=self._peer_address,
            )
        return believed

    def recognise(self, connection: ServerConnection, hello: Hello) -> Believed:
        """Find out what a dialler may ask for, at either port. Raises Unauthorized."""
        cluster, _ = self._who()
        if hello.cluster is not None and hello.cluster != cluster:
            proven = hello.role == "node" and self._proves_nodes
            self._on_stranger(f"{hello.cluster:.64}", proven)
            raise Unauthorized(
                f"this node is of cluster {cluster}, the other side is of cluster "
                f"{hello.cluster}: check the address"
            )
        if hello.role == "client":
            found = self._accesses.of_client(
                Shown(
                    hello.token, connection.certificate, connection.address,
                    private=connection.is_private,
                )
            )  # fmt: skip
            return self._later(found) if isinstance(found, Awaitable) else self._with_room(found)
        if self._accesses.is_on and not self._proves_nodes:
            raise Unauthorized(
                "this cluster has tokens and cannot tell its nodes from clients; start "
                "every node with --secret-file, or with TLS"
            )
        return None

    def recognise_peer(self, connection: ServerConnection, hello: Hello) -> Believed:
        """Do what `recognise` does, at the port for peers. A dialler that names a node of the
        metadata must also name the node's incarnation."""
        believed = self.recognise(connection, hello)
        self._known_peers.check(hello)
        return believed

    def _with_room(self, access: Access) -> Access:
        self._gate.check_room(access.principal)
        return access

    async def _later(self, found: Awaitable[Access]) -> Access:
        return self._with_room(await found)

    def operation(self, connection: ServerConnection, number: int) -> Operation:
        operation = by_number(number)
        if operation is None:
            raise Unsupported(f"this node does not know operation {number}; upgrade the older side")
        hello = connection.hello
        is_node = hello is not None and hello.role == "node"
        if operation.sender is Sender.STRANGER and not is_node:
            raise Unauthorized(f"{operation} is only for nodes")
        if operation.sender is Sender.PEER and not (is_node and _node(connection)):
            raise Unauthorized(f"{operation} is only for nodes of the cluster")
        if is_node and operation.sender is not Sender.STRANGER and operation is not RAFT:
            # No scope limits a node: a node that has not joined yet may only ask to join. The
            # group's own member list decides about Raft messages, see `raft_in`.
            self._known_peers.asker(hello, operation)
        return operation

    def opened(self, connection: ServerConnection) -> Principal | None:
        self._metrics.connections.labels(_role(connection)).inc()
        hello = connection.hello
        if hello is not None and hello.role == "node":
            return of_node(hello.node)
        self._accesses.opened(connection)
        access = connection.access
        principal = connection.principal if access is None else access.principal
        self._gate.opened(connection, principal)
        return principal

    def closed(self, connection: ServerConnection, error: LognodeError) -> None:
        self._accesses.closed(connection)
        self._metrics.connections.labels(_role(connection)).dec()
        self._gate.closed(connection)
        if error.fields.get("reason") == UNREAD:
            self._metrics.connections_ended.labels(UNREAD).inc()
            log.warning(
                "connection closed: %s", error.message,
                extra={"fields": {"address": connection.address, "role": _role(connection)}},
            )  # fmt: skip

    def request(self, request: Request) -> Awaitable[Body | None] | Body | None:
        if _role(request.connection) == "client":
            self._reserved.check(request.operation, request.body)
        payer, share = self._gate.admit(request), request.connection.share
        if payer is None or share is None:
            return self._counted(request)
        served = self._charged(request, share, payer)
        # The first step of an append ends at a future. Its caller waits for each turn.
        return begun(served) if request.operation is APPEND else served

    def _serve(self, request: Request, payer: Payer | None) -> Coroutine[Any, None, Body | None]:
        """Return the coroutine that serves a request."""
        operation, body = request.operation, request.body
        if operation is APPEND:
            if request.weight <= limits.answer_small_bytes:
                return self._data.append(body, request.allowed, payer)
            return _with_room(request.room, lambda: self._data.append(body, request.allowed, payer))
        if operation is FOLLOW:
            return self._follow(request, payer)
        if operation is JOIN:
            certificate = request.connection.certificate
            # The key of the certificate that the node has shown, whatever the body says.
            seen = {**body, "key": "" if certificate is None else certificate.key}
            return self._audited(request, self._join(seen))
        if operation is GROUP_APPEND:
            body = {**body, "allowed": request.allowed, "payer": payer}
        if operation in _OWNED:
            access = request.connection.access
            body = {**body, "owner": "" if access is None else access.owner}
        if operation is PRODUCER_OPEN:
            body["allowed"] = self._gate.names_allowed(request.connection.principal)
        if operation in (NODE_INVITE, GROUP_DECIDE):
            body = {**body, "by": request.connection.principal.name}
        served = self._handled(request, body, payer)
        if served is not None:
            is_admin = operation.permission is Permission.ADMIN
            if payer is not None and (is_admin or operation in _COMMANDS):
                served = self._command_turns.run(request.connection.principal.name, served)
            is_audited = is_admin or operation.permission is Permission.GROUP
            return self._audited(request, served) if is_audited else served
        peer_handler = self._peer_handlers.get(operation)
        if peer_handler is None:
            raise Unsupported(f"a node of a cluster does not serve {operation}")
        node = self._known_peers.asker(request.connection.hello, operation)
        return _with_room(request.room, lambda: peer_handler(node, body))

    def _handled(self, request: Request, body: Body, payer: Payer | None) -> Answer | None:
        """Return the coroutine of a request that everybody may send, or None without a handler."""
        paid = self._paid_handlers.get(request.operation)
        if paid is not None:
            return self._paid(request, paid, in_turns=payer is not None)
        handler = self._handlers.get(request.operation)
        return None if handler is None else handler(body)

    def message(self, connection: ServerConnection, operation: Operation, body: Body) -> None:
        try:
            if operation is RAFT:
                speaker = self._known_peers.speaker(connection.hello)
                take = partial(self._raft_in.take, speaker, body)
                # Frames that came together share one end of the turn.
                take() if connection.has_more else self._turn_ends.alone(take)
            elif operation is PRODUCER_CLOSE:
                self._data.producer_close(body)
        except InvalidArgument as error:
            raise RemoteProtocolError(f"malformed {operation} message: {error.message}") from None

    def refused(self, connection: ServerConnection, number: int, error: LognodeError) -> None:
        self._metrics.requests.labels(_label(number), error.code).inc()
        if isinstance(error, Unauthorized):
            who = connection.principal.name
            self._audit.turned_away(who, connection.address, _label(number), error)

    def failed(self, number: int, error: Exception) -> None:
        """Count and log a bug, whose error the client gets as internal, with unknown outcome. Stop
        the node only for a broken invariant or a failed disk."""
        name = _label(number)
        self._metrics.requests.labels(name, "INTERNAL").inc()
        log.error("request failed", exc_info=error, extra={"fields": {"op": name}})
        if isinstance(error, InvariantError | DiskFailure):
            self._on_broken(error)

    # Parts.

    async def _counted(self, request: Request) -> Body | None:
        """Serve a request of a node."""
        operation = request.operation
        try:
            answer = await self._serve(request, None)
        except LognodeError as error:
            self._metrics.requests.labels(operation.name, error.code).inc()
            raise
        self._answered[operation].inc()
        return answer

    async def _charged(self, request: Request, share: Share, payer: Payer) -> None:
        """Serve a request of a client, in its principal's turns."""
        operation = request.operation
        # These last long: what they would reserve in advance would be missing all the time.
        is_foretold = payer.is_limited and operation not in (FOLLOW, GROUP_TAKE, TAILS, VIEWS_WAIT)
        running = self._foretold.begin(operation, payer) if is_foretold else None
        on_spent = payer.ran if running is None else running.ran
        try:
            await share.run(partial(self._replied, request, payer), on_spent)
        except LognodeError as error:
            self._visible.clip(request.connection.access, error)
            self._metrics.requests.labels(operation.name, error.code).inc()
            raise
        finally:
            if running is not None:
                running.end()
            if payer.is_limited and request.on_sent is not None:
                request.on_sent(0, {})
        self._answered[operation].inc()

    async def _replied(self, request: Request, payer: Payer) -> None:
        """Serve a request, and send its answer in another turn: encoding takes time too."""
        answer = await self._serve(request, payer)
        if answer is not None:
            await next_turn()
            request.reply(answer)

    async def _audited(self, request: Request, work: Awaitable[Body]) -> Body:
        """Serve a request for administration, and record the principal that asked (X7)."""
        connection = request.connection
        return await self._audit.recorded(
            connection.principal.name, connection.address, request.operation, request.body, work
        )

    async def _paid(self, request: Request, paid: PaidHandler, *, in_turns: bool) -> Body:
        async def room_in_turn() -> None:
            await request.room()
            await next_turn()

        body = request.body
        if request.operation is VIEWS_WAIT:
            body = {**body, "asker": request.connection}
        if request.operation is METADATA:
            body = self._visible.asked(request.connection.access, body)
        answer = await paid(body, room_in_turn if in_turns else request.room)
        rights = request.connection.access
        return self._visible(request.operation, rights, answer) if rights is not None else answer

    async def _follow(self, request: Request, payer: Payer | None) -> None:
        replica = self._data.find(request.body)
        keys = request.body["keys"] or ()
        with (
            self._follows.one_more(request.connection, len(keys)),
            nullcontext() if payer is None else payer.follows(),
        ):
            await self._follow_on(replica, request, payer)

    async def _follow_on(
        self, replica: RangeReplica, request: Request, payer: Payer | None
    ) -> None:
        follow = Follow(replica, request, no_pause if payer is None else partial(pause_s, payer))
        if replica.leads:
            await replica.read_barrier()
        try:
            await follow.run()
        except CorruptData as error:
            self._data.on_damaged(replica, error)
            raise self._data.damage_refusal(replica.gid, error.message, None) from None


def _node(connection: ServerConnection) -> int:
    """Return the dialler's node id, 0 for a client."""
    return 0 if connection.hello is None else connection.hello.node or 0


async def _with_room(room: Room, begin: Callable[[], Awaitable[Body]]) -> Body:
    await room()
    return await begin()


def _role(connection: ServerConnection) -> str:
    return connection.hello.role if connection.hello is not None else "client"


def _label(number: int) -> str:
    """Return the operation's name for metrics: any unknown number gets the same label."""
    operation = by_number(number)
    return "?" if operation is None else operation.name
