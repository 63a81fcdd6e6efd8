"""The node's listener: who may speak, and which part of the node an operation goes to."""

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

from ..client.acceptor import UNREAD, Believed, ServerConnection
from ..client.access import Access
from ..client.errors import (
    CorruptData,
    InvalidArgument,
    LognodeError,
    RemoteProtocolError,
    Unauthorized,
    Unsupported,
)
from ..client.invariants import DiskFailure, InvariantError
from ..client.principal import Principal, of_node
from ..client.protocol import Operation, Sender, by_number
from ..client.protocol.appends import APPEND, PRODUCER_CLOSE
from ..client.protocol.peers import JOIN, RAFT
from ..client.protocol.reads import FOLLOW
from ..client.request import Request, Room
from ..client.wire import Hello, Welcome
from .access import Accesses, Shown
from .data_service import DataService
from .follow import Follow
from .metrics import Metrics
from .raft_in import RaftIn

T = TypeVar("T")
Body = dict[str, Any]
Handler = Callable[[Body], Awaitable[Body]]
PaidHandler = Callable[[Body, Room], Awaitable[Body]]
"""Waits for the room for its answer itself, just before the answer is made."""
Visible = Callable[[Operation, Access, Body], Body]
"""What of an answer may be seen by whom."""
PeerHandler = Callable[[int, Body], Awaitable[Body]]

log = logging.getLogger("lognode.server")


class Server:
    """Implements `client.acceptor.Handler`.

    `raft_in` takes the messages of members. `handlers` and `paid_handlers` serve the operations of
    everybody; `peer_handlers` serve those of nodes, and get the asker's id. Each operation of the
    table has one handler here, but for `follow`, one-way messages, and what a node without a
    cluster answers.
    """

    def __init__(
        self,
        *,
        who: Callable[[], tuple[str, int]],
        raft_in: RaftIn,
        data: DataService,
        handlers: Mapping[Operation, Handler],
        paid_handlers: Mapping[Operation, PaidHandler],
        join: Handler,
        accesses: Accesses,
        proves_nodes: bool,
        visible: Visible,
        peer_handlers: Mapping[Operation, PeerHandler],
        metrics: Metrics,
        on_stranger: Callable[[str], None],
        on_broken: Callable[[BaseException], None],
    ) -> None:
        self._who = who
        self._on_stranger = on_stranger
        """Gets the cluster of a node that takes this one for one of it."""
        self._raft_in = raft_in
        self._data = data
        self._handlers = {**data.handlers, **handlers}
        self._paid_handlers = {**data.reads, **paid_handlers}
        self._peer_handlers = peer_handlers
        self._join = join
        self._accesses = accesses
        self._proves_nodes = proves_nodes
        """Whether a node proves that it is one, by a secret or a certificate."""
        self._visible = visible
        self._metrics = metrics
        self._on_broken = on_broken

    # Handler.

    def welcome(self, hello: Hello, nonce: bytes) -> Welcome:
        cluster, node = self._who()
        version = hello.agreed_version()
        if hello.role == "node" and (hello.node is None) != (hello.cluster is None):
            raise RemoteProtocolError("a node that does not say which, or of which cluster")
        return Welcome(nonce=nonce, version=version, cluster=cluster, node=node)

    def believe(self, connection: ServerConnection, hello: Hello) -> Believed:
        cluster, _ = self._who()
        if hello.cluster is not None and hello.cluster != cluster:
            if hello.role == "node":
                self._on_stranger(hello.cluster)
            raise Unauthorized(
                f"this node belongs to cluster {cluster}, the other side to {hello.cluster}: "
                "check the address"
            )
        if hello.role == "client":
            return self._accesses.of_client(
                Shown(
                    hello.token, connection.certificate, connection.address,
                    private=connection.is_private,
                )
            )  # fmt: skip
        if self._accesses.is_on and not self._proves_nodes:
            raise Unauthorized(
                "this cluster has tokens and cannot tell its nodes from others; start every node "
                "with --secret-file, or with TLS"
            )
        return None

    def operation(self, connection: ServerConnection, number: int) -> Operation:
        operation = by_number(number)
        if operation is None:
            raise Unsupported(f"this node does not know operation {number}; upgrade the older side")
        hello = connection.hello
        is_node = hello is not None and hello.role == "node"
        if operation.sender is Sender.STRANGER and not is_node:
            raise Unauthorized(f"{operation} is for nodes")
        if operation.sender is Sender.PEER and not (is_node and _node(connection)):
            raise Unauthorized(f"{operation} is for nodes of the cluster")
        return operation

    def opened(self, connection: ServerConnection) -> Principal | None:
        self._metrics.connections.labels(_role(connection)).inc()
        hello = connection.hello
        if hello is not None and hello.role == "node":
            return of_node(hello.node)
        self._accesses.opened(connection)
        return None if connection.access is None else connection.access.principal

    def closed(self, connection: ServerConnection, error: LognodeError) -> None:
        self._accesses.closed(connection)
        self._metrics.connections.labels(_role(connection)).dec()
        if error.fields.get("reason") == UNREAD:
            self._metrics.connections_ended.labels(UNREAD).inc()
            log.warning(
                "connection closed: %s", error.message,
                extra={"fields": {"address": connection.address, "role": _role(connection)}},
            )  # fmt: skip

    def request(self, request: Request) -> Awaitable[Body | None] | Body | None:
        operation, body = request.operation, request.body
        if operation is FOLLOW:
            return self._counted(operation, lambda: self._follow(request))
        if operation is JOIN:
            certificate = request.connection.certificate
            # The key that the node has shown, whatever it says.
            seen = {**body, "key": "" if certificate is None else certificate.key}
            return self._counted(operation, lambda: self._join(seen))
        if operation is APPEND:
            return self._counted(operation, lambda: self._data.append(body, request.keys))
        paid = self._paid_handlers.get(operation)
        if paid is not None:
            return self._counted(operation, lambda: self._paid(request, paid))
        handler = self._handlers.get(operation)
        if handler is not None:
            return self._counted(operation, lambda: handler(body))
        peer_handler = self._peer_handlers.get(operation)
        if peer_handler is None:
            raise Unsupported(f"a node of a cluster does not serve {operation}")
        node = _node(request.connection)
        return self._counted(
            operation, lambda: _with_room(request.room, lambda: peer_handler(node, body))
        )

    def message(self, connection: ServerConnection, operation: Operation, body: Body) -> None:
        try:
            if operation is RAFT:
                self._raft_in.take(_node(connection), body)
            elif operation is PRODUCER_CLOSE:
                self._data.producer_close(body)
        except InvalidArgument as error:
            raise RemoteProtocolError(f"malformed {operation} message: {error.message}") from None

    def refused(self, number: int, error: LognodeError) -> None:
        self._metrics.requests.labels(_label(number), error.code).inc()

    def failed(self, number: int, error: Exception) -> None:
        """A bug: told as an internal error of unknown outcome. Only a broken invariant stops."""
        name = _label(number)
        self._metrics.requests.labels(name, "INTERNAL").inc()
        log.error("request failed", exc_info=error, extra={"fields": {"op": name}})
        if isinstance(error, InvariantError | DiskFailure):
            self._on_broken(error)

    # Parts.

    async def _counted(self, operation: Operation, begin: Callable[[], Awaitable[T]]) -> T:
        try:
            answer = await begin()
        except LognodeError as error:
            self._metrics.requests.labels(operation.name, error.code).inc()
            raise
        self._metrics.requests.labels(operation.name, "OK").inc()
        return answer

    async def _paid(self, request: Request, paid: PaidHandler) -> Body:
        answer = await paid(request.body, request.room)
        rights = request.connection.access
        return self._visible(request.operation, rights, answer) if rights is not None else answer

    async def _follow(self, request: Request) -> None:
        replica = self._data.find(request.body)
        follow = Follow(replica, request)
        if replica.leads:
            await replica.read_barrier()
        try:
            await follow.run()
        except CorruptData as error:
            self._data.on_damaged(replica, error)
            raise self._data.damage_refusal(replica.gid, error.message, None) from None


def _node(connection: ServerConnection) -> int:
    """The dialler's node id, 0 for a client."""
    return 0 if connection.hello is None else connection.hello.node or 0


async def _with_room(room: Room, begin: Callable[[], Awaitable[Body]]) -> Body:
    await room()
    return await begin()


def _role(connection: ServerConnection) -> str:
    return connection.hello.role if connection.hello is not None else "client"


def _label(number: int) -> str:
    """The operation's name for metrics: the labels are bounded, whatever numbers are sent."""
    operation = by_number(number)
    return "?" if operation is None else operation.name
