"""Follows of one key each that share streams, on real nodes: a split, and a leader that is killed.

Each follow gets the entries of its key once and in order.
"""

import asyncio
import signal
from pathlib import Path

import pytest

from lognode import AsyncClient, AsyncFeed, testing
from lognode.client import follow_shared

pytestmark = pytest.mark.cluster

_FOLLOWS = follow_shared.shared_from + 60
_ROUNDS = 12


def test_P4_S4_S5_shared_follows_miss_nothing_through_a_split_and_a_kill(tmp_path: Path) -> None:
    keys = [b"%05d" % n for n in range(_FOLLOWS)]

    async def read(feed: AsyncFeed) -> list[bytes | None]:
        values: list[bytes | None] = []
        async for batch in feed:
            values += [entry.value for entry in batch]
            if len(values) >= _ROUNDS:
                break
        return values

    async def run(cluster: testing.LocalCluster) -> None:
        async with AsyncClient(cluster.servers, timeout=60) as client:
            await client.create_log("events", split_at=[keys[_FOLLOWS // 3]], split_rate=None)
            log = client.log("events")
            feeds = [log.follow(keys=[key], start="latest") for key in keys]
            await asyncio.gather(*[feed.open() for feed in feeds])
            readers = [asyncio.create_task(read(feed)) for feed in feeds]
            assert sum(bool(feed._shared) for feed in feeds) == _FOLLOWS - follow_shared.shared_from
            for number in range(_ROUNDS):
                if number == 3:
                    await client.admin.split("events", at=keys[2 * _FOLLOWS // 3])
                if number == 7:
                    status = await client.status()
                    leader = next(r["leader"] for r in status["ranges"] if r["log"] == "events")
                    cluster.nodes[leader - 1].signal(signal.SIGKILL)
                await log.append_many([(key, b"%d" % number) for key in keys])
            async with asyncio.timeout(120):
                found = await asyncio.gather(*readers)
            await asyncio.gather(*[feed.close() for feed in feeds])
        assert found == [[b"%d" % number for number in range(_ROUNDS)]] * _FOLLOWS

    with testing.cluster(tmp_path, 3) as cluster:
        testing.wait_healthy(cluster)
        asyncio.run(run(cluster))
