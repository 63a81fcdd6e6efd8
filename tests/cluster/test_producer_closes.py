"""Producers that close: their rows go, and a flood of closes costs the range next to nothing."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from live_nodes import LiveCluster, live, until

import lognode
from lognode.client.protocol.appends import APPEND, PRODUCER_CLOSE
from lognode.client.protocol.reads import LATEST
from lognode.client.protocol.records import encode_batch

pytestmark = pytest.mark.cluster


async def opened(cluster: LiveCluster, client: lognode.AsyncClient) -> tuple[Any, dict[str, int]]:
    """The replica of a log's range, and how requests name it."""
    await client.create_log("orders", ranges=1)
    node = cluster.nodes[0]
    (range_,) = node.node._view.metadata.ranges.values()
    gid = (range_.range_id, range_.generation)
    await until(lambda: gid in node.host.groups and node.host.groups[gid].leads, "a leader")
    return node.host.groups[gid], {"range": gid[0], "generation": gid[1]}


def test_rows_of_many_producers_go_in_a_few_entries(tmp_path: Path) -> None:
    async def main() -> None:
        async with live(tmp_path) as cluster, lognode.AsyncClient(cluster.address) as client:
            replica, where = await opened(cluster, client)
            link = await cluster.nodes[0].client()
            producers = range(1_000_000, 1_002_500)
            for first in range(producers.start, producers.stop, 250):
                batches = [
                    encode_batch([b"k"], [b"v"], producer=n, epoch=1, low=1, numbers=1)
                    for n in range(first, first + 250)
                ]
                answer = await link.request(APPEND, {**where, "batches": batches})
                assert {result["status"] for result in answer["results"]} == {"ok"}
            assert len(replica.state.producers.rows) >= len(producers)
            before = replica.raft_log.last_index
            for n in (*producers, *producers):
                link.send(PRODUCER_CLOSE, {**where, "id": n})
            await until(
                lambda: (
                    producers.stop - 1 not in replica.state.producers.rows
                    and not set(producers) & set(replica.state.producers.rows)
                ),
                "their rows are gone",
            )
            assert replica.raft_log.last_index - before <= 50
            link.close()

    asyncio.run(main())


def test_closes_of_producers_that_nobody_knows_leave_no_trace(tmp_path: Path) -> None:
    async def main() -> None:
        async with live(tmp_path) as cluster, lognode.AsyncClient(cluster.address) as client:
            replica, where = await opened(cluster, client)
            await client.log("orders").append("k", b"v")
            link = await cluster.nodes[0].client()
            before = replica.raft_log.last_index
            for n in range(5_000):
                link.send(PRODUCER_CLOSE, {**where, "id": 10**9 + n})
            await link.request(LATEST, {**where, "key": b"k"})  # behind all of them
            assert replica.raft_log.last_index == before
            assert replica._closed_producers == {}
            link.close()

    asyncio.run(main())
