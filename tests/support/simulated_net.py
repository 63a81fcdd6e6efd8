"""Two simulated processes and a network between them, without nodes."""

import asyncio
import random
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import lognode.chaos.whole.nodes  # noqa: F401  the clock replaces parts of what a node imports
from lognode.chaos.whole.clock import replaced_machine
from lognode.chaos.whole.loop import SimLoop
from lognode.chaos.whole.process import Process, current
from lognode.chaos.whole.trace import Trace

PORT = 4600


class Echo(asyncio.Protocol):
    """Collects what arrives; a server sends it back."""

    def __init__(self, *, answers: bool) -> None:
        self.answers = answers
        self.received = b""
        self.lost: list[Exception | None] = []
        self.owner = current()
        self.transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        assert current() is self.owner
        self.received += data
        if self.answers:
            self.transport.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.append(exc)


class Net:
    """A server process on machine 1 and a client process on machine 2."""

    def __init__(self, seed: int = 0) -> None:
        self.trace = Trace()
        self.loop = SimLoop(random.Random(seed), self.trace)
        self.server, self.client = Process("server", "1"), Process("client", "2")
        self.served: list[Echo] = []

    async def serve(self) -> None:
        loop = self.loop
        opened: Any = socket.create_server(("127.0.0.1", PORT))

        def accept() -> None:
            accepted, _ = opened.accept()
            self.served.append(Echo(answers=True))
            loop.create_task(loop.connect_accepted_socket(lambda: self.served[-1], accepted))

        loop.add_reader(opened.fileno(), accept)

    async def dial(self) -> Echo:
        _, protocol = await self.loop.create_connection(
            lambda: Echo(answers=False), "127.0.0.1", PORT
        )
        assert isinstance(protocol, Echo)
        return protocol

    def run(self, main: Callable[[], Awaitable[None]]) -> None:
        """Start the server, and run `main` in the client's process."""

        async def whole() -> None:
            await self.loop.spawn(self.server, self.serve())
            await self.loop.spawn(self.client, as_coroutine(main))

        with replaced_machine(self.loop):
            self.loop.run(whole())
        self.loop.close()


async def as_coroutine(main: Callable[[], Awaitable[None]]) -> None:
    await main()
