"""Runs a test of SDK calls against scripted nodes: on one loop, or with the blocking client.

`test_client_calls.py` uses `run_async`; the test generated from it `run_sync`.
"""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

from fake_cluster import FakeCluster, fake_cluster

from lognode import AsyncClient, AsyncLog, Client, Log

SPLIT_AT = (b"m",)


def run_async(test: Callable[[FakeCluster, AsyncClient, AsyncLog], Awaitable[None]]) -> None:
    """Test and nodes on one loop."""

    async def main() -> None:
        async with fake_cluster() as cluster, asyncio.timeout(20):
            cluster.create("log", SPLIT_AT)
            async with AsyncClient(cluster.address, timeout=5.0) as client:
                await test(cluster, client, client.log("log"))

    asyncio.run(main())


def run_sync(test: Callable[[FakeCluster, Client, Log], None]) -> None:
    """The test on this thread, the nodes on a loop of another."""
    loop = asyncio.new_event_loop()
    made: list[Any] = []
    ready, done = threading.Event(), asyncio.Event()

    async def nodes() -> None:
        async with fake_cluster() as cluster:
            cluster.create("log", SPLIT_AT)
            made.append(cluster)
            ready.set()
            await done.wait()

    def serve() -> None:
        try:
            loop.run_until_complete(nodes())
        finally:
            loop.close()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    assert ready.wait(5)
    try:
        with Client(made[0].address, timeout=5.0) as client:
            test(made[0], client, client.log("log"))
    finally:
        loop.call_soon_threadsafe(done.set)
        thread.join(5)
