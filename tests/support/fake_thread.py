"""A scripted cluster on a thread of its own, for clients of other threads and processes."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from fake_cluster import FakeCluster, fake_cluster


@contextmanager
def fake_cluster_thread(nodes: int = 3) -> Iterator[FakeCluster]:
    """What a test does to it while nobody asks it needs no lock."""
    loop = asyncio.new_event_loop()
    made: list[Any] = []
    ready, done = threading.Event(), asyncio.Event()

    async def serve() -> None:
        async with fake_cluster(nodes) as cluster:
            made.append(cluster)
            ready.set()
            await done.wait()

    def run() -> None:
        try:
            loop.run_until_complete(serve())
        except AssertionError as error:  # a bug in a handler
            made.append(error)
        finally:
            loop.close()

    thread = threading.Thread(target=run, name="fake-cluster", daemon=True)
    thread.start()
    assert ready.wait(5)
    try:
        yield made[0]
    finally:
        loop.call_soon_threadsafe(done.set)
        thread.join(5)
    if made[1:]:
        raise made[1]
