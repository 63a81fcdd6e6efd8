"""Answers to Kafka clients that take them slowly, or not at all, on real sockets."""

import asyncio
import contextlib
import socket
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from lognode.node.kafka import sending

ANSWER = bytes(4 << 20)
"""More than the buffers of two sockets."""


@pytest.fixture(autouse=True)
def short_times(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sending, "STALLED_S", 0.02)
    monkeypatch.setattr(sending, "ANSWER_S", 1.5)


@asynccontextmanager
async def connected() -> AsyncIterator[tuple[asyncio.StreamWriter, socket.socket]]:
    """The writer of a node, and the socket of a client, which reads only when told."""
    loop = asyncio.get_running_loop()
    made: asyncio.Future[asyncio.StreamWriter] = loop.create_future()
    listening = await asyncio.start_server(lambda _, writer: made.set_result(writer), "127.0.0.1")
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16_384)
        client.setblocking(False)
        async with listening:
            await loop.sock_connect(client, listening.sockets[0].getsockname())
            writer = await made
            yield writer, client
            writer.transport.abort()


async def ended_after(writer: asyncio.StreamWriter, others_wait: Callable[[], bool]) -> float:
    """After how many seconds the client is found too slow."""
    begin = time.monotonic()
    with pytest.raises(TimeoutError):
        await sending.send(writer, ANSWER, others_wait=others_wait)
    return time.monotonic() - begin


def test_X1_a_client_that_takes_nothing_has_little_time_while_others_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sending, "ANSWER_S", 600.0)

    async def run() -> None:
        async with connected() as (writer, _):
            assert await ended_after(writer, lambda: True) < 600

    asyncio.run(run())


def test_a_client_that_takes_nothing_has_its_time_while_nobody_waits() -> None:
    asked = 0

    def nobody() -> bool:
        nonlocal asked
        asked += 1
        return False

    async def run() -> None:
        async with connected() as (writer, _):
            assert await ended_after(writer, nobody) >= 1.5
        assert asked > 2

    asyncio.run(run())


def test_a_client_that_takes_some_of_an_answer_at_each_look_gets_the_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """While others wait. The client reads just before each look, however long a look takes."""
    monkeypatch.setattr(sending, "ANSWER_S", 600.0)
    monkeypatch.setattr(sending, "STALLED_S", 0.01)
    left = sending._left

    async def run() -> None:
        async with connected() as (writer, client):
            looks = 0

            def reads_before(looked_at: asyncio.StreamWriter) -> int:
                nonlocal looks
                looks += 1
                before = left(looked_at)
                while looks % 2 == 0 and left(looked_at) >= before:
                    with contextlib.suppress(BlockingIOError):
                        client.recv(16_384)
                return left(looked_at)

            monkeypatch.setattr(sending, "_left", reads_before)
            await sending.send(writer, ANSWER, others_wait=lambda: True)
            assert looks > 10

    asyncio.run(run())


def test_a_client_that_leaves_meanwhile_is_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sending, "ANSWER_S", 600.0)
    monkeypatch.setattr(sending, "STALLED_S", 600.0)

    async def run() -> None:
        async with connected() as (writer, client):
            sent = asyncio.create_task(sending.send(writer, ANSWER, others_wait=lambda: True))
            await asyncio.sleep(0.05)
            client.close()
            with pytest.raises(ConnectionError):
                await sent
            with pytest.raises(ConnectionError):
                await sending.send(writer, ANSWER, others_wait=lambda: True)

    asyncio.run(run())
