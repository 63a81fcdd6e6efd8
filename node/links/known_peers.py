"""Check which node the other side of a connection is, before this node serves it as a peer.

A hello names a node and its incarnation, the random number of the node's data directory. The
metadata has both. A node serves only registered nodes that were not removed and that name the
incarnation that they registered; no client ever learns an incarnation. TLS proves more: that the
other side holds the key of the node. Without TLS, this check keeps out guesses, mistakes and
leftover processes.

A newcomer with a node's certificate may only ask to join. A node that was away may not know the
controller's present leader. It first asks the nodes that it knows for newer metadata (`heartbeat`),
and serves the leader then.
"""

from collections.abc import Callable, Mapping
from typing import Final

from ...client.protocol import Operation
from ...client.protocol.errors import Unauthorized, Unavailable
from ...client.protocol.peers import COMMAND, HEARTBEAT, IMAGE_PAGE
from ...client.protocol.wire import Hello
from ...partitions.model import NodeRecord
from ..metrics import Metrics

_PARTING: Final = frozenset({HEARTBEAT, IMAGE_PAGE, COMMAND})
"""Operations by which a removed node learns that it was removed."""


class KnownPeers:
    """Checks hellos. `nodes` returns the node records of this node's newest metadata."""

    def __init__(self, nodes: Callable[[], Mapping[int, NodeRecord]], metrics: Metrics) -> None:
        self._nodes = nodes
        self._refused = metrics.refused_peers

    def boot(self, node: int) -> tuple[int, int] | None:
        """Return the boot and process of a node, or None if it is not registered, or removed."""
        known = self._nodes().get(node)
        if known is None or known.state == "REMOVED":
            return None
        return known.boot, known.process

    def asker(self, hello: Hello | None, operation: Operation) -> int:
        """Return the node that asks for an operation. Raises Unauthorized; Unavailable for a node
        that this node does not know yet, and may know in a moment."""
        node = self.speaker(hello)
        record = self._nodes().get(node)
        if record is None:
            self._refused.labels("unregistered").inc()
            raise Unavailable(
                f"this node does not know node {node} as registered yet; send the request "
                "again later",
                reason="unregistered",
            )
        if record is not None and record.state == "REMOVED" and operation not in _PARTING:
            self._refused.labels("removed").inc()
            raise Unauthorized(
                f"node {node} was removed from the cluster; start a new node with an empty "
                "data directory and --join"
            )
        return node

    def check(self, hello: Hello) -> None:
        """Raise Unauthorized for a hello of a registered node with another incarnation.

        The incarnation of a node never changes. So this connection would never be served, and it
        must not take one of the node's places.
        """
        if hello.node is not None:
            self.speaker(hello)

    def speaker(self, hello: Hello | None) -> int:
        """Return the node that sends messages, registered or not. Raises Unauthorized."""
        if hello is None or hello.role != "node" or hello.node is None:
            raise Unauthorized("this operation is only for nodes of the cluster")
        record = self._nodes().get(hello.node)
        if record is not None and record.incarnation != hello.incarnation:
            self._refused.labels("incarnation").inc()
            raise Unauthorized(
                f"node {hello.node} is registered with another data directory than this "
                "one; a node that lost its directory must join as a new node"
            )
        return hello.node
