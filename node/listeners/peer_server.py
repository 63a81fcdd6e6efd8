"""The port for other nodes: clients cannot use it, and no node takes more than its share.

Clients have their own port, so that nodes reach each other however many clients there are. Each
known node may open a few connections. When a node opens one more, the connection that has been
silent longest is closed. That connection belongs to a process or a network that is gone; a live
link is never silent. All nodes that the metadata does not know yet share a few connections in the
same way, and get little of this node's time: without TLS and without a secret, anybody can claim to
be such a node.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Final

from ...client.accepting.acceptor import ServerConnection
from ...client.accepting.handler import Believed
from ...client.accepting.request import Request
from ...client.fair_turns import OWN_TURNS, STRANGER_TURNS
from ...client.protocol import Operation, limits
from ...client.protocol.errors import LognodeError, Unauthorized, Unavailable
from ...client.protocol.principal import Principal
from ...client.protocol.wire import Hello, Welcome
from ..serving.server import Server

_STRANGERS: Final = 0

Body = dict[str, Any]


class PeerServer:
    """Implements `client.accepting.handler.Handler`, and passes requests to `server`.

    `is_known` returns whether the metadata has a node; `address` is this node's address for
    clients; `on_closed` gets the reason and the address of each connection that is closed.
    """

    def __init__(
        self,
        server: Server,
        *,
        is_known: Callable[[int], bool],
        address: str,
        on_closed: Callable[[str, str], None],
    ) -> None:
        self._server = server
        self._is_known = is_known
        self._address = address
        self._on_closed = on_closed
        self._crowds: dict[int, list[ServerConnection]] = {}
        """Connections by node; those of all unknown nodes are together under `_STRANGERS`."""
        self._crowd_of: dict[ServerConnection, int] = {}

    def welcome(self, hello: Hello, nonce: bytes) -> Welcome:
        if hello.role != "node":
            raise Unauthorized(
                f"this port is only for nodes of the cluster; clients dial {self._address}"
            )
        if hello.node is None:
            raise Unauthorized(
                "this port is only for nodes of the cluster, and the other side is not a "
                f"node yet; to join, dial {self._address} with --join"
            )
        return self._server.welcome(hello, nonce)

    def believe(self, connection: ServerConnection, hello: Hello) -> Believed:
        return self._server.recognise_peer(connection, hello)

    def operation(self, connection: ServerConnection, number: int) -> Operation:
        return self._server.operation(connection, number)

    def opened(self, connection: ServerConnection) -> Principal | None:
        principal = self._server.opened(connection)
        node = self._known(connection)
        if node == _STRANGERS:
            connection.take_turns(STRANGER_TURNS)
        self._enter(connection, node)
        return principal

    def closed(self, connection: ServerConnection, error: LognodeError) -> None:
        self._leave(connection)
        self._server.closed(connection, error)

    def request(self, request: Request) -> Awaitable[Body | None] | Body | None:
        self._greet_again(request.connection)
        return self._server.request(request)

    def message(self, connection: ServerConnection, operation: Operation, body: Body) -> None:
        self._greet_again(connection)
        self._server.message(connection, operation, body)

    def _known(self, connection: ServerConnection) -> int:
        """Return the node of the connection, or `_STRANGERS` for a node unknown to this node."""
        node = _STRANGERS if connection.hello is None else connection.hello.node or _STRANGERS
        return node if self._is_known(node) else _STRANGERS

    def _greet_again(self, connection: ServerConnection) -> None:
        """Move a connection to its node if the node has become known since it connected."""
        if self._crowd_of.get(connection) != _STRANGERS:
            return
        node = self._known(connection)
        if node != _STRANGERS:
            self._leave(connection)
            connection.take_turns(OWN_TURNS)
            self._enter(connection, node)

    def _enter(self, connection: ServerConnection, node: int) -> None:
        known = node != _STRANGERS
        most = limits.peer_connections_max if known else limits.stranger_connections_max
        crowd = self._crowds.setdefault(node, [])
        silent = None if len(crowd) < most else min(crowd, key=lambda each: each.last_in_s)
        crowd.append(connection)
        self._crowd_of[connection] = node
        if silent is not None:
            self._on_closed("peer_crowd", silent.address)
            of = f"node {node}" if known else "nodes that this node does not know"
            silent.refuse(
                Unavailable(f"{of} has more connections than allowed; the limit is {most}")
            )

    def _leave(self, connection: ServerConnection) -> None:
        node = self._crowd_of.pop(connection)
        crowd = self._crowds[node]
        crowd.remove(connection)
        if not crowd:
            del self._crowds[node]

    def refused(self, connection: ServerConnection, number: int, error: LognodeError) -> None:
        self._server.refused(connection, number, error)

    def failed(self, number: int, error: Exception) -> None:
        self._server.failed(number, error)
