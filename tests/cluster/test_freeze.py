"""Segments of three members: frozen at one index by command, and so the same byte for byte."""

import asyncio
import os
from pathlib import Path

import pytest
from live_nodes import LiveCluster, live, until

import lognode
from lognode.client.protocol import limits
from lognode.node.replicas.range_replica import RangeReplica
from lognode.node.rules import merging

pytestmark = pytest.mark.cluster


def members(cluster: LiveCluster) -> list[RangeReplica]:
    return [replica for each in cluster.nodes for replica in each.host.ranges()]


def files(replica: RangeReplica) -> list[str]:
    return [info.content_id for info in replica.state.durable_base.manifest]


async def built(cluster: LiveCluster) -> None:
    """Wait until nothing waits for a builder."""
    await cluster.settled()
    await until(lambda: not any(r.state.queue for r in members(cluster)), "segments", 120)


def test_S3_all_members_build_the_same_files_also_after_a_restart_and_a_new_leader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "memtable_bytes_max", 40_000)
    monkeypatch.setattr(merging, "plan", lambda *_: None)  # they stay as they are built
    written: list[tuple[bytes, bytes]] = []

    async def write(log: lognode.AsyncLog, batches: int) -> None:
        for _ in range(batches):
            records = [(b"%d" % (at % 7), os.urandom(200)) for at in range(100)]
            await log.append_many(records)
            written.extend(records)

    async def run() -> None:
        async with live(tmp_path, 3) as cluster, lognode.AsyncClient(cluster.address) as client:
            await cluster.healthy(3)
            log = await client.create_log("orders")
            await write(log, 12)
            await built(cluster)
            # A member that begins again reads the FREEZEs that it has not flushed in its log.
            leader = await cluster.leader()
            follower = next(each for each in cluster.nodes if each is not leader)
            assert await follower.stop_now() == 1
            await write(log, 6)
            await follower.start()
            await cluster.healthy(3)
            # Another member leads, and goes on at the same boundaries.
            assert await leader.stop() == 0
            await leader.start()
            await cluster.healthy(3)
            await write(log, 6)
            await built(cluster)
            first, *others = map(files, members(cluster))
            assert len(first) >= 6
            assert others == [first, first]
            for key in sorted({key for key, _ in written}):
                found = [entry.value async for entry in log.scan(key)]
                assert found == [value for of, value in written if of == key]

    asyncio.run(run())
