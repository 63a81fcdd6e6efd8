"""A listener refuses a malformed hello with a reason and goes on."""

import asyncio
import os
from typing import Any

import pytest
from loose_operations import LOOSE, by_number

from lognode.client import connection
from lognode.client.accepting import acceptor
from lognode.client.accepting.acceptor import ServerConnection
from lognode.client.accepting.request import Request
from lognode.client.protocol import Operation, frames, wire
from lognode.client.protocol.errors import LognodeError, Unsupported
from lognode.client.protocol.frame import Decoder, Frame, encode
from lognode.client.protocol.wire import Hello, Welcome

HELLO = Hello(role="client", nonce=bytes(wire.nonce_bytes))


class Node:
    """Welcomes everybody."""

    def welcome(self, hello: Hello, nonce: bytes) -> Welcome:
        return Welcome(nonce=nonce, cluster="c", node=1)

    def believe(self, connection: ServerConnection, hello: Hello) -> None: ...
    def opened(self, connection: ServerConnection) -> None: ...
    def closed(self, connection: ServerConnection, error: LognodeError) -> None: ...
    def refused(self, connection: ServerConnection, number: int, error: LognodeError) -> None: ...
    def message(
        self, connection: ServerConnection, operation: Operation, body: dict[str, Any]
    ) -> None: ...

    def operation(self, connection: ServerConnection, number: int) -> Operation:
        operation = by_number(number)
        if operation is None:
            raise Unsupported(f"no operation {number}")
        return operation

    def request(self, request: Request) -> dict[str, Any]:
        return {}

    def failed(self, number: int, error: Exception) -> None:
        raise AssertionError(number) from error


@pytest.mark.parametrize(
    "change",
    [
        {"compressions": 5}, {"compressions": {"zstd": 1}}, {"compressions": [1]},
        {"compressions": "zstd"}, {"versions": 1}, {"versions": [1]}, {"versions": ["a", "b"]},
        {"role": []}, {"role": "root"}, {"node": -1}, {"node": (1 << 64) - 1},
        {"incarnation": "x"}, {"incarnation": 1 << 63}, {"cluster": b"c"},
        {"cluster": "c" * 10_000}, {"nonce": b""}, {"nonce": None}, {"magic": ["lognode"]},
        {"pad": [[]] * 100},
    ],
)  # fmt: skip
def test_a_malformed_hello_is_refused_with_a_reason(change: dict[str, Any]) -> None:
    broken: list[Any] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: broken.append(context))
        listener = await acceptor.serve(Node(), "127.0.0.1", 0, entropy=os.urandom)
        reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        writer.write(encode(0, frames.HELLO, {**HELLO.to_body(), **change}))
        async with asyncio.timeout(5):
            (answer,) = Decoder().feed(await reader.read())
        assert isinstance(answer, Frame)
        assert (answer.request_id, answer.kind) == (0, frames.ERROR)
        assert answer.body["message"]
        writer.close()
        link = await connection.dial("127.0.0.1", listener.port)
        assert await link.request(LOOSE, {}) == {}
        link.close()
        await listener.close()

    asyncio.run(main())
    assert broken == []
