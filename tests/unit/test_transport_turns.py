"""What one connection sends, however much at once, leaves the loop to the others in between."""

import asyncio
import gc
import os
import random
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from loop_turns import Turns
from loose_operations import LOOSE, ONE_WAY, by_number

from lognode.client import connection
from lognode.client.accepting import acceptor
from lognode.client.accepting.acceptor import ServerConnection
from lognode.client.accepting.listener import Listener
from lognode.client.accepting.request import Request
from lognode.client.connection import _Answer
from lognode.client.protocol import Operation, frame, frames, limits, wire
from lognode.client.protocol.errors import LocalProtocolError, LognodeError
from lognode.client.protocol.wire import Hello, Welcome

HOLD_S = 0.03
"""Processor time between two turns of the loop; about 3 ms on an idle machine."""


@pytest.fixture(autouse=True)
def _no_garbage_collection() -> Iterator[None]:
    """A node looks at what is old at moments of its own (`node.runtime.garbage`)."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


class Server:
    """Answers each request with its body, after `hold`, and keeps count."""

    def __init__(self) -> None:
        self.connections: list[ServerConnection] = []
        self.messages: list[Any] = []
        self.requests: list[Request] = []
        self.answers = True
        self.closed_with: list[LognodeError] = []

    def welcome(self, hello: Hello, nonce: bytes) -> Welcome:
        return Welcome(nonce=nonce, cluster="c", node=1)

    def believe(self, connection: ServerConnection, hello: Hello) -> None: ...

    def opened(self, connection: ServerConnection) -> None:
        self.connections.append(connection)

    def request(self, request: Request) -> dict[str, Any] | None:
        self.requests.append(request)
        return {"n": request.body.get("n")} if self.answers else None

    def operation(self, connection: ServerConnection, number: int) -> Operation:
        operation = by_number(number)
        assert operation is not None
        return operation

    def refused(self, connection: ServerConnection, number: int, error: LognodeError) -> None:
        raise AssertionError(number) from error

    def message(
        self, connection: ServerConnection, operation: Operation, body: dict[str, Any]
    ) -> None:
        self.messages.append(body["n"])

    def closed(self, connection: ServerConnection, error: LognodeError) -> None:
        self.closed_with.append(error)

    def failed(self, number: int, error: Exception) -> None:
        raise AssertionError(number) from error


def run(test: Callable[[Server, Listener], Awaitable[None]]) -> None:
    async def main() -> None:
        server = Server()
        listener = await acceptor.serve(server, "127.0.0.1", 0)
        try:
            async with asyncio.timeout(30):
                await test(server, listener)
        finally:
            await listener.close()

    asyncio.run(main())


async def shaken(listener: Listener) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A socket behind its handshake, to write frames to."""
    reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
    hello = Hello(role="client", nonce=os.urandom(wire.nonce_bytes))
    writer.write(frame.encode(0, frames.HELLO, hello.to_body()))
    await reader.readuntil(b"wants_proof\xc2")
    return reader, writer


async def eventually(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110  there is no event for it
        await asyncio.sleep(0.001)


def test_a_flood_of_small_frames_leaves_the_loop_to_others() -> None:
    async def test(server: Server, listener: Listener) -> None:
        reader, writer = await shaken(listener)
        flood = b"".join(frame.encode(n + 1, frames.PING, {}) for n in range(60_000))
        writer.write(flood[: limits.MIB])
        await asyncio.sleep(0)
        turns = Turns()
        writer.write(flood[limits.MIB :])
        answered, decoder = 0, frame.Decoder()
        while answered < 60_000:
            answered += len(decoder.feed(await reader.read(1 << 20)))
        longest_s = turns.stop()
        writer.close()
        assert longest_s < HOLD_S

    run(test)


def test_a_frame_that_takes_long_to_unpack_leaves_the_loop_to_others() -> None:
    async def test(server: Server, listener: Listener) -> None:
        _, writer = await shaken(listener)
        data = frame.encode(0, ONE_WAY.number, {"n": [[n] for n in range(90_000)]})
        turns = Turns()
        writer.write(data)
        await eventually(lambda: bool(server.messages))
        longest_s = turns.stop()
        writer.close()
        assert len(server.messages[0]) == 90_000
        assert longest_s < HOLD_S

    run(test)


def test_frames_arrive_complete_and_in_order_however_often_reading_is_stopped() -> None:
    seed = int.from_bytes(os.urandom(4), "big")
    print("seed", seed)
    rng = random.Random(seed)

    async def test(server: Server, listener: Listener) -> None:
        _, writer = await shaken(listener)
        count = 400
        stream = b"".join(
            frame.encode(
                0,
                ONE_WAY.number,
                {"n": n, "pad": [[]] * rng.choice((0, *[1] * 5, 2_000, 15_000))},
            )
            for n in range(count)
        )
        writer.write(stream)
        await eventually(lambda: bool(server.connections))
        transport = server.connections[0]._transport
        while len(server.messages) < count:
            transport.read_on(False)
            had = len(server.messages)
            for _ in range(rng.randrange(3)):
                await asyncio.sleep(0)
            assert len(server.messages) == had
            transport.read_on(True)
            await asyncio.sleep(rng.choice((0, 0.001)))
        writer.close()
        assert server.messages == list(range(count))

    run(test)


def test_requests_beyond_the_bound_stay_undecoded_until_there_is_room() -> None:
    async def test(server: Server, listener: Listener) -> None:
        server.answers = False
        link = await connection.dial("127.0.0.1", listener.port)
        accepted = server.connections[0]
        total = 3 * limits.requests_in_flight_max
        waiting = [link._loop.create_future() for _ in range(total)]
        for n, future in enumerate(waiting):  # as many at once as no honest client asks
            link._pending[link._send_request(LOOSE.number, {"n": n})] = _Answer(LOOSE, future)
        await eventually(lambda: accepted.in_flight == limits.requests_in_flight_max)
        assert len(accepted._backlog) <= 1
        answered = 0
        while answered < total:
            await eventually(lambda had=answered: len(server.requests) > had)  # type: ignore[misc]
            assert len(accepted._backlog) <= 1
            server.requests[answered].reply({"n": server.requests[answered].body["n"]})
            answered += 1
        assert [(await future)["n"] for future in waiting] == list(range(total))
        link.close()
        await link.wait_closed()

    run(test)


def test_a_bug_behind_a_frame_ends_its_connection_alone() -> None:
    async def test(server: Server, listener: Listener) -> None:
        told: list[Any] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
        reader, writer = await shaken(listener)
        other = await connection.dial("127.0.0.1", listener.port)
        writer.write(frame.encode(0, ONE_WAY.number, {}))  # this server cannot do without `n`
        assert await reader.read() == b""
        await eventually(lambda: bool(server.closed_with))
        assert isinstance(server.closed_with[0], LocalProtocolError)
        assert isinstance(told[0]["exception"], AssertionError)
        assert await other.request(LOOSE, {"n": 5}) == {"n": 5}
        writer.close()
        other.close()
        await other.wait_closed()

    run(test)
