"""The acceptor asks a connection's access about each request and message, on real sockets."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from loose_operations import LOOSE, ONE_WAY

from lognode.client.accepting import acceptor
from lognode.client.accepting.acceptor import Listener, ServerConnection
from lognode.client.accepting.access import Access, Allowed
from lognode.client.accepting.request import Request
from lognode.client.connection import dial
from lognode.client.protocol import Operation, frames, wire
from lognode.client.protocol.errors import LognodeError, RangeNotFound, Unauthorized
from lognode.client.protocol.frame import Decoder, encode
from lognode.client.protocol.principal import Principal
from lognode.client.protocol.wire import Hello, Welcome

TOKEN = "0" * 16 + "." + "a" * 43


class _Access:
    """An access that answers as the test says."""

    owner = "app"

    def __init__(self) -> None:
        self.principal = Principal("app", "acme", "gold")
        self.error: LognodeError | None = None
        self.asked: list[tuple[Operation, dict[str, Any]]] = []

    def authorise(self, operation: Operation, body: dict[str, Any]) -> Allowed | None:
        self.asked.append((operation, body))
        if self.error is not None:
            raise self.error
        return Allowed(None, range(5, 7))


class _Handler:
    def __init__(self) -> None:
        self.access = _Access()
        self.served: list[Request] = []
        self.messages = 0
        self.hellos: list[Hello] = []
        self.greeted = asyncio.Event()
        self.connections: list[ServerConnection] = []
        self.failures: list[Exception] = []
        self.news: asyncio.Future[None] | None = None
        self.refusal: Exception | None = None

    def welcome(self, hello: Hello, nonce: bytes) -> Welcome:
        return Welcome(nonce=nonce)

    def believe(
        self, connection: ServerConnection, hello: Hello
    ) -> Awaitable[Access] | Access | None:
        self.hellos.append(hello)
        self.greeted.set()
        return self.access if self.news is None else self._later()

    async def _later(self) -> Access:
        assert self.news is not None
        await self.news
        if self.refusal is not None:
            raise self.refusal
        return self.access

    def operation(self, connection: ServerConnection, number: int) -> Operation:
        return LOOSE if number == LOOSE.number else ONE_WAY

    def opened(self, connection: ServerConnection) -> Principal | None:
        self.connections.append(connection)
        return None if connection.access is None else connection.access.principal

    def request(self, request: Request) -> dict[str, Any]:
        self.served.append(request)
        return {"ok": True}

    def message(
        self, connection: ServerConnection, operation: Operation, body: dict[str, Any]
    ) -> None:
        self.messages += 1

    def refused(self, connection: ServerConnection, number: int, error: LognodeError) -> None: ...

    def closed(self, connection: ServerConnection, error: LognodeError) -> None: ...

    def failed(self, number: int, error: Exception) -> None:
        self.failures.append(error)


def run(test: Callable[[_Handler, Listener], Awaitable[None]]) -> None:
    async def whole() -> None:
        handler = _Handler()
        listener = await acceptor.serve(handler, "127.0.0.1", 0)
        try:
            async with asyncio.timeout(10):
                await test(handler, listener)
        finally:
            await listener.close()

    asyncio.run(whole())


def test_a_request_is_authorised_before_it_is_served() -> None:
    async def test(handler: _Handler, listener: Listener) -> None:
        connection = await dial("127.0.0.1", listener.port, token=TOKEN)
        (accepted,) = handler.connections
        assert accepted.principal == Principal("app", "acme", "gold")
        await connection.request(LOOSE, {"x": 1})
        assert [operation for operation, _ in handler.access.asked] == [LOOSE]
        assert handler.served[0].allowed is not None
        assert handler.served[0].allowed.producers == range(5, 7)
        handler.access.error = Unauthorized("no")
        with pytest.raises(Unauthorized, match="no"):
            await connection.request(LOOSE, {"x": 2})
        assert len(handler.served) == 1
        connection.close()

    run(test)


def test_the_hello_is_seen_with_its_token_and_kept_without() -> None:
    async def test(handler: _Handler, listener: Listener) -> None:
        connection = await dial("127.0.0.1", listener.port, token=TOKEN)
        assert [hello.token for hello in handler.hellos] == [TOKEN]
        (accepted,) = handler.connections
        assert accepted.hello is not None
        assert accepted.hello.token is None
        assert accepted.is_private
        connection.close()

    run(test)


@pytest.mark.parametrize(
    ("error", "stays"), [(RangeNotFound("over"), True), (Unauthorized("no"), False)]
)
def test_a_message_is_authorised_before_it_is_taken(error: LognodeError, stays: bool) -> None:
    async def test(handler: _Handler, listener: Listener) -> None:
        connection = await dial("127.0.0.1", listener.port)
        connection.send(ONE_WAY, {})
        await connection.request(LOOSE, {})
        assert handler.messages == 1
        handler.access.error = error
        connection.send(ONE_WAY, {})
        with pytest.raises(LognodeError) as caught:
            await connection.request(LOOSE, {})
        assert handler.messages == 1
        assert (type(caught.value) is type(error)) == stays
        assert (connection.lost is None) == stays
        connection.close()

    run(test)


def test_a_client_waits_for_its_welcome_while_the_node_asks_for_news() -> None:
    async def test(handler: _Handler, listener: Listener) -> None:
        handler.news = asyncio.get_running_loop().create_future()
        dialling = asyncio.ensure_future(dial("127.0.0.1", listener.port, token=TOKEN))
        await handler.greeted.wait()
        assert not handler.connections
        handler.news.set_result(None)
        connection = await dialling
        assert handler.connections[0].access is handler.access
        connection.close()

    run(test)


@pytest.mark.parametrize("error", [Unauthorized("not you"), ValueError("a bug")])
def test_a_client_that_is_not_believed_gets_the_reason(error: Exception) -> None:
    async def test(handler: _Handler, listener: Listener) -> None:
        handler.news = asyncio.get_running_loop().create_future()
        handler.refusal = error
        handler.news.set_result(None)
        with pytest.raises(LognodeError, match=r"not you|internal error"):
            await dial("127.0.0.1", listener.port, token=TOKEN)
        assert not handler.connections
        assert handler.failures == ([error] if isinstance(error, ValueError) else [])

    run(test)


def test_a_dialler_that_does_not_wait_for_its_welcome_is_refused() -> None:
    async def test(handler: _Handler, listener: Listener) -> None:
        handler.news = asyncio.get_running_loop().create_future()
        reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        hello = Hello("client", bytes(wire.nonce_bytes), token=TOKEN)
        writer.write(encode(0, frames.HELLO, hello.to_body()))
        writer.write(encode(1, LOOSE.number, {}))
        decoder = Decoder()
        (answer,) = decoder.feed(await reader.read())
        assert (answer.kind, answer.body["code"]) == (frames.ERROR, "UNAUTHORIZED")
        assert not handler.connections
        writer.close()

    run(test)


def test_news_are_given_up_when_the_dialler_goes() -> None:
    async def test(handler: _Handler, listener: Listener) -> None:
        handler.news = asyncio.get_running_loop().create_future()
        _, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        hello = Hello("client", bytes(wire.nonce_bytes), token=TOKEN)
        writer.write(encode(0, frames.HELLO, hello.to_body()))
        await handler.greeted.wait()
        writer.close()
        await asyncio.wait([handler.news])
        assert handler.news.cancelled()
        assert not handler.connections

    run(test)
