"""Closing a client while others of its callers wait (L4): each gets an error, and soon."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from fake_cluster import Drop, FakeNode, fake_cluster
from live_nodes import until

import lognode
from lognode import AsyncClient, AsyncLog
from lognode.client.accepting.request import Request
from lognode.client.protocol.errors import Sealed, Unavailable


@asynccontextmanager
async def silent_node() -> AsyncIterator[str]:
    """The address of something that takes connections and says nothing."""
    ended = asyncio.Event()

    async def ignore(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await ended.wait()
        writer.close()

    server = await asyncio.start_server(ignore, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    try:
        yield f"lognode://{host}:{port}"
    finally:
        ended.set()
        server.close()
        await server.wait_closed()


CALLS: dict[str, Callable[[AsyncClient, AsyncLog], Awaitable[object]]] = {
    "append": lambda client, log: log.append("k", b"v"),
    "append_many": lambda client, log: log.append_many([("k", b"v")]),
    "append_batch": lambda client, log: log.append_batch([("k", b"v")]),
    "latest": lambda client, log: log.latest("k"),
    "count": lambda client, log: log.count("k"),
    "trim": lambda client, log: log.trim("k", 1),
    "delete_key": lambda client, log: log.delete_key("k"),
    "describe": lambda client, log: log.describe(),
    "alter_log": lambda client, log: client.alter_log("l", retention_ms=1),
    "status": lambda client, log: client.status(),
    "create_log": lambda client, log: client.create_log("new"),
    "producer": lambda client, log: log.producer().open(),
    "named producer": lambda client, log: log.producer(name="p").open(),
    "follow": lambda client, log: log.follow().open(),
}


@pytest.mark.parametrize("name", CALLS)
def test_L4_S11_a_call_under_way_ends_with_an_error_when_the_client_closes(name: str) -> None:
    """It got a CancelledError that nobody had sent, and was taken for cancelled."""

    async def main() -> None:
        async with silent_node() as address, asyncio.timeout(5):
            client = AsyncClient(address, timeout=60)
            call = asyncio.ensure_future(CALLS[name](client, client.log("log")))
            await asyncio.sleep(0.02)
            await client.close(0.1)
            with pytest.raises(Unavailable, match="closed") as caught:
                await call
            assert caught.value.outcome == "not_applied"

    asyncio.run(main())


def test_L4_a_cancelled_call_is_still_cancelled() -> None:
    async def main() -> None:
        async with silent_node() as address, asyncio.timeout(5):
            client = AsyncClient(address, timeout=60)
            call = asyncio.ensure_future(client.log("log").latest("k"))
            await asyncio.sleep(0.02)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            await client.close(0.1)

    asyncio.run(main())


def test_L4_S11_close_returns_while_the_producer_has_no_id_yet() -> None:
    """It raised InvalidStateError, since the task that asks for the id was not over yet."""

    asked = asyncio.Event()

    def drop(node: FakeNode, request: Request, when: str) -> None:
        if when == "producer":
            asked.set()
            raise Drop

    async def main() -> None:
        async with fake_cluster() as cluster, asyncio.timeout(5):
            cluster.create("log")
            cluster.faults.append(drop)
            client = AsyncClient(cluster.address, timeout=60)
            call = asyncio.ensure_future(client.log("log").append("k", b"v"))
            await asked.wait()
            await client.close(0.0)
            with pytest.raises(Unavailable, match="closed") as caught:
                await call
            assert caught.value.outcome == "not_applied"

    asyncio.run(main())


def test_L4_a_reader_of_a_feed_does_not_wait_for_ever_on_a_closed_client() -> None:
    async def main() -> None:
        async with fake_cluster() as cluster, asyncio.timeout(5):
            cluster.create("log", (b"m",))
            client = AsyncClient(cluster.address, timeout=60)
            log = client.log("log")
            await log.append("k", b"v")
            feed = log.follow(start="earliest")
            entry = await anext(feed.entries())
            assert entry.value == b"v"
            reading = asyncio.ensure_future(_read_on(feed))
            await asyncio.sleep(0.02)
            await client.close(0.1)
            with pytest.raises(Unavailable, match="closed"):
                await reading
            await feed.close()

    asyncio.run(main())


def test_L4_close_gives_all_logs_together_its_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each log had the whole timeout, one after the other; and a log that came meanwhile raised
    RuntimeError."""
    refused: set[int] = set()
    begun: list[float] = []
    begun_at_an_end: list[int] = []
    close = AsyncLog.close

    def refuse(node: FakeNode, request: Request, when: str) -> None:
        if when == "before":
            refused.add(request.body["range"])
            raise Sealed("for ever")

    async def counted(log: AsyncLog, timeout: float) -> None:
        begun.append(timeout)
        await close(log, timeout)
        begun_at_an_end.append(len(begun))

    monkeypatch.setattr(AsyncLog, "close", counted)

    async def main() -> None:
        async with fake_cluster() as cluster:
            names = [f"log{n}" for n in range(5)]
            for name in (*names, "late"):
                cluster.create(name)
            cluster.faults.append(refuse)
            client = AsyncClient(cluster.address, timeout=600)
            calls = [asyncio.ensure_future(client.log(name).append("k", b"v")) for name in names]
            await until(lambda: len(refused) == len(names), "a refusal of each append")
            closing = asyncio.ensure_future(client.close(0.5))
            await until(lambda: begun, "the begin of the close")
            late = asyncio.ensure_future(client.log("late").append("k", b"v"))
            await closing
            assert begun == [0.5] * len(names)
            assert begun_at_an_end == [len(names)] * len(names), "the logs close together"
            for call in (*calls, late):
                with pytest.raises(Unavailable, match="closed") as caught:
                    await call
                assert caught.value.outcome == "not_applied"

    asyncio.run(main())


@pytest.mark.parametrize("readers", [1, 2])
def test_L4_closing_a_feed_ends_every_reader_of_the_feed(readers: int) -> None:
    """The reader waited for ever."""

    async def main() -> None:
        async with fake_cluster() as cluster, asyncio.timeout(5):
            cluster.create("log", (b"m",))
            async with AsyncClient(cluster.address, timeout=60) as client:
                feed = client.log("log").follow(start="earliest")
                await feed.open()
                reading = [asyncio.ensure_future(_read_on(feed)) for _ in range(readers)]
                await asyncio.sleep(0.1)
                await feed.close()
                await asyncio.gather(*reading)
                with pytest.raises(StopAsyncIteration):
                    await anext(feed)
                await feed.close()

    asyncio.run(main())


async def _read_on(feed: lognode.AsyncFeed) -> None:
    async for _ in feed:
        pass
