"""A program that speaks to nodes as if it were a node: what it was told, and under any name."""

import asyncio
import random
import time
from collections.abc import Callable
from typing import Any

from loose_operations import loosened

from lognode.client.accepting import acceptor
from lognode.client.accepting.acceptor import Listener, ServerConnection
from lognode.client.accepting.request import Request
from lognode.client.connection import Connection, dial
from lognode.client.protocol import OPERATIONS, Operation, by_number
from lognode.client.protocol.address import split_address
from lognode.client.protocol.errors import LognodeError
from lognode.client.protocol.levels import LEVEL_MAX, LEVEL_MIN
from lognode.client.protocol.wire import Hello, Welcome
from lognode.node.control import images
from lognode.node.metadata.image_pages import START, made
from lognode.partitions.metadata import Metadata
from lognode.partitions.model import Descriptor
from lognode.testing import LocalNode

Body = dict[str, Any]


class Intruder:
    """Joins the cluster of these nodes, listens, and answers whatever `answer` gives.

    By joining it gets the image of the metadata, with which it can name any node's incarnation.
    """

    def __init__(self, nodes: list[LocalNode], *, secret: bytes | None = None) -> None:
        self.nodes = nodes
        self.secret = secret
        self.number = 0
        self.cluster = ""
        self.incarnation = random.randrange(1 << 62)
        self.metadata = Metadata()
        self.answer: Callable[[Request], Any] = lambda request: {}
        self.asked: dict[str, int] = {}
        self._listener: Listener | None = None
        self._links: list[Connection] = []

    async def join(self) -> None:
        """Become a registered node, at an address of its own."""
        self._listener = await acceptor.serve(self, "127.0.0.1", 0, secret=self.secret)
        body = {**self.registration(), "address": f"127.0.0.1:{self._listener.port}"}
        connection = await self.fresh(self.nodes[0])
        answer = await self.ask(connection, "join", body)
        connection.close()
        await connection.wait_closed()
        assert isinstance(answer, dict), answer
        self.cluster, self.number = answer["cluster"], answer["node"]
        await self.refresh()

    async def leave(self) -> None:
        """Close everything that is open."""
        for link in self._links:
            link.close()
        await asyncio.gather(*(link.wait_closed() for link in self._links))
        if self._listener is not None:
            await self._listener.close()

    def registration(self, **more: Any) -> Body:
        return {"node": None, "incarnation": self.incarnation, "boot": 0, "process": 7,
                "address": "127.0.0.1:9", "http": "127.0.0.1:9", "zone": "",
                "levels": [LEVEL_MIN, LEVEL_MAX], **more}  # fmt: skip

    # Asking.

    async def fresh(self, node: LocalNode) -> Connection:
        """As a node that is of no cluster yet."""
        host, port = split_address(node.address)
        link = await dial(host, port, role="node", incarnation=1, secret=self.secret)
        self._links.append(link)
        return link

    async def as_node(
        self, node: LocalNode, number: int | None = None, incarnation: int | None = None
    ) -> Connection:
        """As the node of that number, by default its own; with the incarnation it registered."""
        host, port = split_address(node.peer)
        number = self.number if number is None else number
        if incarnation is None:
            record = self.metadata.nodes.get(number)
            incarnation = 1 if record is None else record.incarnation
        link = await dial(
            host, port, role="node", cluster=self.cluster, node=number, incarnation=incarnation,
            secret=self.secret,
        )  # fmt: skip
        self._links.append(link)
        return link

    async def ask(self, connection: Connection, op: str, body: Body) -> Body | LognodeError:
        """The answer, or the error that was the answer."""
        deadline = asyncio.get_running_loop().time() + 15
        try:
            return await connection.request(loosened(OPERATIONS[op]), body, deadline=deadline)
        except LognodeError as error:
            return error

    async def refresh(self) -> None:
        """The image as it is now."""
        connection = await self.as_node(self.nodes[0], incarnation=self.incarnation)
        image = await images.ask(connection, images.KNOWN, START)
        connection.close()
        assert image is not None
        self.metadata = await made(image)

    def frame(self, number: int, messages: list[Any] | None = None, **more: Any) -> Body:
        """A body of the message `raft` in the name of a node, in its registered boot."""
        record = self.metadata.nodes[number]
        return {"messages": messages or [], "boot": record.boot, "process": record.process,
                "clock": int(time.time() * 1000), "ping": [0, 0, []], **more}  # fmt: skip

    # Being asked: `client.accepting.handler.Handler`.

    def welcome(self, hello: Hello, nonce: bytes) -> Welcome:
        return Welcome(
            nonce=nonce, version=hello.agreed_version(), cluster=self.cluster or None,
            node=self.number or None,
        )  # fmt: skip

    def believe(self, connection: ServerConnection, hello: Hello) -> None:
        """Anybody is welcome."""

    def operation(self, connection: ServerConnection, number: int) -> Operation:
        """Whatever is asked, the intruder serves."""
        operation = by_number(number)
        assert operation is not None
        return loosened(operation)

    def refused(self, connection: ServerConnection, number: int, error: LognodeError) -> None:
        """Nothing is refused."""

    def request(self, request: Request) -> Any:
        name = request.operation.name
        self.asked[name] = self.asked.get(name, 0) + 1
        return self.answer(request)

    def opened(self, connection: ServerConnection) -> None:
        """A node has dialled it."""

    def closed(self, connection: ServerConnection, error: LognodeError) -> None:
        """A node has gone."""

    def message(self, connection: ServerConnection, operation: Operation, body: Body) -> None:
        """Frames of Raft messages."""

    def failed(self, number: int, error: Exception) -> None:
        raise AssertionError(f"operation {number}: {error!r}")


def item(range_: Descriptor, message: list[Any]) -> list[Any]:
    """One Raft message of a group, as frames have it."""
    return [range_.range_id, range_.generation, range_.fingerprint(), message]
