"""Merges on three members: the same few files everywhere, the same data, through kill -9."""

import asyncio
import os
from pathlib import Path

import pytest
from live_nodes import LiveCluster, LiveNode, live, until

import lognode
from lognode.client.protocol import limits
from lognode.node.replicas.range_replica import RangeReplica

pytestmark = pytest.mark.cluster

KEYS = [b"k%02d" % at for at in range(20)]


def members(cluster: LiveCluster) -> list[RangeReplica]:
    return [replica for each in cluster.nodes for replica in each.host.ranges()]


def on_disk(node: LiveNode) -> set[str]:
    return {path.stem for path in node.host.store.path("x").parent.glob("*.seg")}


def files(replica: RangeReplica) -> list[str]:
    return [info.content_id for info in replica.state.durable_base.manifest]


def test_S3_S6_x13_three_members_merge_to_the_same_few_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "memtable_bytes_max", 20_000)

    async def run() -> None:
        async with live(tmp_path, 3) as cluster, lognode.AsyncClient(cluster.address) as client:
            await cluster.healthy(3)
            log = await client.create_log("orders")
            written: dict[bytes, list[bytes]] = {key: [] for key in KEYS}
            for at in range(30):
                records = [(KEYS[(at + n) % 20], os.urandom(150)) for n in range(100)]
                await log.append_many(records)
                for key, value in records:
                    written[key].append(value)
            await cluster.settled()
            await until(lambda: not any(r.state.queue for r in members(cluster)), "segments", 120)
            await until(
                lambda: len({tuple(files(r)) for r in members(cluster)}) == 1
                and len(files(members(cluster)[0])) < 8,
                "the same few files", 120,
            )  # fmt: skip
            assert any(
                info.entries > 1000 for info in members(cluster)[0].state.durable_base.manifest
            )
            for each in cluster.nodes:
                named = set(files(each.host.ranges()[0]))
                await until(lambda own=each, named=named: on_disk(own) == named, "no other files")
                node = each.node.identity.node_id
                for key in KEYS:
                    found = [entry.value async for entry in log.scan(key, node=node)]
                    assert found == written[key]
                    assert await log.count(key, node=node) == len(found)

    asyncio.run(run())
