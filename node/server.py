"""The node's listener: who may speak, and which part of the node an operation goes to."""

import logging
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from ..client import wire
from ..client.acceptor import Request, ServerConnection
from ..client.errors import (
    InvalidArgument,
    LognodeError,
    RemoteProtocolError,
    Unauthorized,
    Unsupported,
)
from ..client.wire import Hello, Welcome
from ..raft.types import GroupId
from .data_service import DataService
from .follow import Follow
from .host import Host
from .metrics import Metrics

Body = dict[str, Any]
Operation = Callable[[Body], Awaitable[Body]]
PeerOperation = Callable[[int, Body], Awaitable[Body]]
_SAFE_OP = re.compile(r"[a-z_]{1,32}")

log = logging.getLogger("lognode.server")


class Server:
    """Implements `client.acceptor.Handler`.

    `operations` are for everybody, `peer_operations` for nodes of the cluster, which are given
    the asker's id.
    """

    def __init__(
        self,
        *,
        who: Callable[[], tuple[str, int]],
        host: Host,
        data: DataService,
        operations: Mapping[str, Operation],
        join: Operation,
        peer_operations: Mapping[str, PeerOperation],
        metrics: Metrics,
        on_broken: Callable[[BaseException], None],
    ) -> None:
        self._who = who
        self._host = host
        self._data = data
        self._operations = {**data.operations, **operations}
        self._join = join
        self._peer_operations = peer_operations
        self._metrics = metrics
        self._on_broken = on_broken

    # Handler.

    def welcome(self, hello: Hello, nonce: bytes) -> Welcome:
        cluster, node = self._who()
        version = hello.agreed_version()
        if hello.cluster is not None and hello.cluster != cluster:
            raise Unauthorized(
                f"this node belongs to cluster {cluster}, the other side to {hello.cluster}: "
                "check the address"
            )
        if hello.role == "node" and hello.node is None and hello.cluster is not None:
            raise RemoteProtocolError("a node that does not say which")
        return Welcome(nonce=nonce, version=version, cluster=cluster, node=node)

    def opened(self, connection: ServerConnection) -> None:
        self._metrics.connections.labels(_role(connection)).inc()

    def closed(self, connection: ServerConnection, error: LognodeError) -> None:
        self._metrics.connections.labels(_role(connection)).dec()

    def request(self, request: Request) -> Awaitable[Body | None] | Body | None:
        op = request.op
        if op == wire.FOLLOW:
            return self._follow(request)
        operation = self._operations.get(op)
        if operation is not None:
            return self._counted(op, operation(request.body))
        if op == "join":
            hello = request.connection.hello
            if hello is None or hello.role != "node":
                raise Unauthorized("only a node can join")
            return self._counted(op, self._join(request.body))
        peer_operation = self._peer_operations.get(op)
        if peer_operation is not None:
            node = self._peer(request.connection)
            return self._counted(op, peer_operation(node, request.body))
        shown = op if _SAFE_OP.fullmatch(op) else "?"
        raise Unsupported(f"operation {shown!r} is unknown to this node; upgrade it or the client")

    def message(self, connection: ServerConnection, op: str, body: Body) -> None:
        if op == "raft":
            self._raft(self._peer(connection), body)
        elif op == wire.PRODUCER_CLOSE:
            self._data.producer_close(body)

    def failed(self, op: str, error: Exception) -> None:
        if isinstance(error, KeyError | TypeError | ValueError | AttributeError):
            log.warning("malformed request", exc_info=error, extra={"fields": {"op": op}})
            return
        log.error("request failed", exc_info=error, extra={"fields": {"op": op}})
        self._on_broken(error)

    # Parts.

    async def _counted(self, op: str, answer: Awaitable[Body]) -> Body:
        try:
            body = await answer
        except LognodeError as error:
            self._metrics.requests.labels(op, error.code).inc()
            raise
        except (KeyError, TypeError, AttributeError) as error:
            self._metrics.requests.labels(op, "MALFORMED").inc()
            raise InvalidArgument(f"malformed {op} request: {error!r}", what=op) from None
        self._metrics.requests.labels(op, "OK").inc()
        return body

    async def _follow(self, request: Request) -> None:
        replica = self._data.find(request.body)
        if replica.leads:
            await replica.read_barrier()
        await Follow(replica, request).run()

    def _raft(self, sender: int, body: Body) -> None:
        for item in body["messages"]:
            range_id, generation, message = item
            replica = self._host.groups.get(GroupId(range_id, generation))
            if replica is not None:
                replica.receive(sender, message)

    def _peer(self, connection: ServerConnection) -> int:
        hello = connection.hello
        if hello is None or hello.role != "node" or hello.node is None:
            raise Unauthorized("this operation is for nodes of the cluster")
        return hello.node


def _role(connection: ServerConnection) -> str:
    return connection.hello.role if connection.hello is not None else "client"
