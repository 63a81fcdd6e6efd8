"""The node's listener: who may speak, and which part of the node an operation goes to."""

import logging
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

from ..client import wire
from ..client.acceptor import Request, ServerConnection
from ..client.errors import (
    CorruptData,
    InvalidArgument,
    LognodeError,
    RemoteProtocolError,
    Unauthorized,
    Unsupported,
)
from ..client.invariants import DiskFailure, InvariantError
from ..client.wire import Hello, Welcome
from .data_service import DataService
from .follow import Follow
from .known_peers import KnownPeers
from .metrics import Metrics
from .raft_in import RaftIn

T = TypeVar("T")
Body = dict[str, Any]
Operation = Callable[[Body], Awaitable[Body]]
PeerOperation = Callable[[int, Body], Awaitable[Body]]
_SAFE_OP = re.compile(r"[a-z_]{1,32}")

log = logging.getLogger("lognode.server")


class Server:
    """Implements `client.acceptor.Handler`.

    `raft_in` takes the messages of members. `operations` are for everybody, `peer_operations` for
    nodes of the cluster; they are given the asker's id.
    """

    def __init__(
        self,
        *,
        who: Callable[[], tuple[str, int]],
        raft_in: RaftIn,
        data: DataService,
        operations: Mapping[str, Operation],
        join: Operation,
        peer_operations: Mapping[str, PeerOperation],
        known_peers: KnownPeers,
        metrics: Metrics,
        has_secret: bool,
        on_stranger: Callable[[str, bool], None],
        on_broken: Callable[[BaseException], None],
    ) -> None:
        self._who = who
        self._has_secret = has_secret
        self._on_stranger = on_stranger
        """Gets the cluster of another side that takes this node for one of it, and whether that
        side has proved that it holds this cluster's secret."""
        self._raft_in = raft_in
        self._data = data
        self._operations = {**data.operations, **operations}
        self._join = join
        self._peer_operations = peer_operations
        self._known_peers = known_peers
        self._metrics = metrics
        self._on_broken = on_broken

    # Handler.

    def welcome(self, hello: Hello, nonce: bytes) -> Welcome:
        """A node of another cluster is greeted where it has to prove that it holds the secret: what
        it says counts after that, and what has no proof is refused and changes nothing."""
        cluster, node = self._who()
        version = hello.agreed_version()
        if self._is_foreign(hello) and not (self._has_secret and hello.role == "node"):
            raise self._foreign(hello, proven=False)
        if hello.role == "node" and (hello.node is None) != (hello.cluster is None):
            raise RemoteProtocolError("a node that does not say which, or of which cluster")
        return Welcome(nonce=nonce, version=version, cluster=cluster, node=node)

    def opened(self, connection: ServerConnection) -> None:
        self._metrics.connections.labels(_role(connection)).inc()
        hello = connection.hello
        if hello is not None and self._is_foreign(hello):
            connection.refuse(self._foreign(hello, proven=True))

    def _is_foreign(self, hello: Hello) -> bool:
        return hello.cluster is not None and hello.cluster != self._who()[0]

    def _foreign(self, hello: Hello, *, proven: bool) -> Unauthorized:
        theirs = f"{hello.cluster:.64}"
        self._metrics.refused_hellos.labels("other_cluster").inc()
        self._on_stranger(theirs, proven)
        return Unauthorized(
            f"this node belongs to cluster {self._who()[0]}, the other side to {theirs}: "
            "check the address"
        )

    def closed(self, connection: ServerConnection, error: LognodeError) -> None:
        self._metrics.connections.labels(_role(connection)).dec()

    def request(self, request: Request) -> Awaitable[Body | None] | Body | None:
        op, body = request.op, request.body
        if op == wire.FOLLOW:
            return self._counted(op, lambda: self._follow(request))
        operation = self._operations.get(op)
        if operation is not None:
            return self._counted(op, lambda: operation(body))
        if op == "join":
            hello = request.connection.hello
            if hello is None or hello.role != "node":
                raise Unauthorized("only a node can join")
            return self._counted(op, lambda: self._join(body))
        peer_operation = self._peer_operations.get(op)
        if peer_operation is not None:
            node = self._known_peers.asker(request.connection.hello, op)
            return self._counted(op, lambda: peer_operation(node, body))
        shown = op if _SAFE_OP.fullmatch(op) else "?"
        raise Unsupported(f"operation {shown!r} is unknown to this node; upgrade it or the client")

    def message(self, connection: ServerConnection, op: str, body: Body) -> None:
        """A malformed one ends its connection: there is no other way to tell the sender."""
        try:
            if op == "raft":
                self._raft_in.take(self._known_peers.speaker(connection.hello), body)
            elif op == wire.PRODUCER_CLOSE:
                self._data.producer_close(body)
        except InvalidArgument as error:
            raise RemoteProtocolError(f"malformed {op} message: {error.message}") from None

    def failed(self, op: str, error: Exception) -> None:
        """A bug: told as an internal error of unknown outcome. Only a broken invariant stops."""
        self._metrics.requests.labels(op, "INTERNAL").inc()
        log.error("request failed", exc_info=error, extra={"fields": {"op": op}})
        if isinstance(error, InvariantError | DiskFailure):
            self._on_broken(error)

    # Parts.

    async def _counted(self, op: str, begin: Callable[[], Awaitable[T]]) -> T:
        try:
            answer = await begin()
        except LognodeError as error:
            self._metrics.requests.labels(op, error.code).inc()
            raise
        self._metrics.requests.labels(op, "OK").inc()
        return answer

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


def _role(connection: ServerConnection) -> str:
    return connection.hello.role if connection.hello is not None else "client"
