"""A cluster that serves Kafka clients, and connections to its nodes that send bytes."""

import contextlib
import socket
import ssl
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Self

from lognode import testing


@contextlib.contextmanager
def kafka_cluster(
    root: Path, nodes: int = 3, *, flags: Sequence[str] = (), tls: bool = False, auth: bool = False
) -> Iterator[testing.LocalCluster]:
    """Nodes that serve Kafka clients; `addresses` says where."""
    given = ("--balance", "off", *flags)
    with testing.cluster(root, nodes, flags=given, start=False, tls=tls, auth=auth) as cluster:
        for node, port in zip(cluster.nodes, testing.free_ports(nodes), strict=True):
            node.add_flags("--kafka", f"127.0.0.1:{port}")
        cluster.start()
        testing.wait_healthy(cluster)
        yield cluster


def started(cluster: testing.LocalCluster) -> None:
    """Start the nodes that a test has ended; return when all are ready."""
    for node in cluster.nodes:
        node.start()
    for node in cluster.nodes:
        node.wait_ready()


def addresses(cluster: testing.LocalCluster) -> str:
    """The addresses of all nodes for Kafka clients."""
    return ",".join(node._flags[-1] for node in cluster.nodes)


class Raw:
    """A connection to a node that sends bytes."""

    def __init__(
        self, cluster: testing.LocalCluster, node: int = 1, *, host: str = "127.0.0.1",
        tls: ssl.SSLContext | None = None,
    ) -> None:  # fmt: skip
        address, port = cluster.nodes[node - 1]._flags[-1].split(":")
        self.socket: socket.socket = socket.create_connection(
            (address, int(port)), timeout=20, source_address=(host, 0)
        )
        if tls is not None:
            self.socket = tls.wrap_socket(self.socket, server_hostname=address)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def ask(self, data: bytes) -> bytes:
        """The answer, or nothing when the node closes the connection."""
        with contextlib.suppress(ConnectionError):
            self.socket.sendall(data)
            return self.answer()
        return b""

    def answer(self) -> bytes:
        head = self._exactly(4)
        return self._exactly(int.from_bytes(head, "big")) if head else b""

    def _exactly(self, size: int) -> bytes:
        found = b""
        while len(found) < size:
            part = self.socket.recv(size - len(found))
            if not part:
                return b""
            found += part
        return found
