"""A connection of a Kafka client gives back what it has, however it ends."""

import asyncio
import logging
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from lognode.client.protocol.errors import Unauthorized
from lognode.node.kafka.room import Room
from lognode.node.kafka.server import KafkaServer, _Connection, _Endings, _Guest
from lognode.node.kafka.wire import Malformed

TURNS = 12
"""Turns of the loop in which a connection ends; more than enough."""


@pytest.mark.parametrize("turns", range(TURNS))
def test_a_client_that_leaves_while_its_connection_ends_gives_all_back(turns: int) -> None:
    """The rights end, and so many turns of the loop later the client leaves. Otherwise the client
    of the token would count as used for ever, and the node would remember the connection."""
    given: list[str] = []

    class Session:
        is_known = True

        def close(self) -> None:
            given.append("session")

    async def run() -> None:
        door: Any = SimpleNamespace(session=lambda **_: Session())
        accesses: Any = SimpleNamespace(closed=lambda _: given.append("access"))
        transport = SimpleNamespace(abort=lambda: given.append("socket"))
        writer: Any = SimpleNamespace(get_extra_info=lambda _: None, transport=transport)
        guest: Any = SimpleNamespace(host="h", reader=asyncio.StreamReader())
        connection = _Connection(
            door, accesses, None, Room(1), guest, writer, _Endings(), lambda _: None
        )
        serving = asyncio.create_task(connection.serve())
        for _ in range(3):
            await asyncio.sleep(0)
        connection.refuse(Unauthorized("the token was revoked"))
        for _ in range(turns):
            await asyncio.sleep(0)
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)

    asyncio.run(run())
    assert sorted(given) == ["access", "session", "socket"]


def test_the_log_says_why_a_connection_ended(caplog: pytest.LogCaptureFixture) -> None:
    """The end of the socket cancels what serves the connection, and nothing was logged."""

    async def run() -> None:
        door: Any = SimpleNamespace(
            session=lambda **_: SimpleNamespace(is_known=True, close=lambda: None)
        )
        accesses: Any = SimpleNamespace(closed=lambda _: None)
        transport = SimpleNamespace(abort=lambda: serving.cancel())
        writer: Any = SimpleNamespace(get_extra_info=lambda _: None, transport=transport)
        guest: Any = SimpleNamespace(host="h", reader=asyncio.StreamReader())
        guest.reader.feed_data(bytes(4))
        connection = _Connection(
            door, accesses, None, Room(1), guest, writer, _Endings(), lambda _: None
        )
        serving = asyncio.create_task(connection.serve())
        await asyncio.gather(serving, return_exceptions=True)

    with caplog.at_level(logging.INFO, "lognode.kafka"):
        asyncio.run(run())
    (record,) = caplog.records
    told: Any = record
    assert record.message == "kafka connection closed"
    assert told.fields["reason"].startswith("a request has 0 bytes")


def test_a_client_that_breaks_the_protocol_again_and_again_does_not_fill_the_log(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    endings, now = _Endings(), 100.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    with caplog.at_level(logging.INFO, "lognode.kafka"):
        for _ in range(1_000):
            endings.tell(Malformed("a field has -7 bytes"))
        endings.tell(KeyError("an error of the node"))
        endings.tell(ConnectionResetError())
        now += 11
        endings.tell(TimeoutError())
    assert [each.levelname for each in caplog.records] == ["INFO", "ERROR", "INFO"]
    last: Any = caplog.records[-1]
    assert last.fields == {"reason": "the client was too slow", "others_since": 999}


def test_X5_a_host_has_few_connections_that_have_not_shown_a_token() -> None:
    """A place is free again once a client has authenticated, or is gone."""
    opened: list[Callable[[Any], None]] = []

    def session(**given: Any) -> Any:
        opened.append(given["opened"])
        return SimpleNamespace(is_known=False, close=lambda: None)

    def nothing(_: object) -> None:
        return

    aborted: list[str] = []

    async def run() -> None:
        door: Any = SimpleNamespace(session=session)
        accesses: Any = SimpleNamespace(is_on=True, opened=nothing, closed=nothing)
        server = KafkaServer(door, accesses, None, connections_max=320)

        def arrives(host: str) -> _Guest:
            guest = server._arrive()
            assert isinstance(guest, _Guest)
            told = {"peername": (host, 7)}
            transport = SimpleNamespace(abort=lambda: aborted.append(host))
            writer: Any = SimpleNamespace(get_extra_info=told.get, transport=transport)
            server._begin(guest, writer)
            return guest

        guests = [arrives("10.0.0.1") for _ in range(20)]
        assert not aborted
        arrives("10.0.0.1")
        assert aborted == ["10.0.0.1"]
        arrives("10.0.0.2")
        assert aborted == ["10.0.0.1"], "another host has places of its own"
        opened[0](None)
        arrives("10.0.0.1")
        server._gone(guests[1])
        arrives("10.0.0.1")
        assert aborted == ["10.0.0.1"]
        arrives("10.0.0.1")
        assert aborted == ["10.0.0.1"] * 2
        tasks = [task for task in server._guests.values() if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(run())


def test_a_connection_keeps_little_of_a_request_that_has_no_memory() -> None:
    """Each of thousands of connections could have 256 KiB of a request that waits."""

    async def run() -> None:
        made: asyncio.Queue[tuple[_Guest, asyncio.StreamWriter]] = asyncio.Queue()
        server = await asyncio.get_running_loop().create_server(
            lambda: _Guest(lambda *both: made.put_nowait(both), lambda _: None), "127.0.0.1"
        )
        async with server:
            _, client = await asyncio.open_connection(*server.sockets[0].getsockname()[:2])
            guest, writer = await made.get()
            client.write(bytes(1 << 20))
            held: Any = guest.reader
            await _settled(lambda: len(held._buffer))
            assert 0 < len(held._buffer) <= 24 << 10
            guest.read_at_once(1 << 18)
            assert len(await guest.reader.readexactly(1 << 20)) == 1 << 20
            writer.transport.abort()
            client.transport.abort()

    asyncio.run(run())


async def _settled(read: Callable[[], int]) -> None:
    """Wait until a number above 0 has not changed for a while."""
    seen, since = 0, 0
    while since < 20:
        await asyncio.sleep(0.01)
        since = since + 1 if seen and read() == seen else 0
        seen = read()
