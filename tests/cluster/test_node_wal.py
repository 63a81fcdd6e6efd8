"""The WAL of real nodes: one sync for many ranges, and few files whatever pins them."""

import asyncio
import os
from pathlib import Path

import pytest
from live_nodes import LiveCluster, live, until

import lognode
from lognode.node.upkeep import maintenance

pytestmark = pytest.mark.cluster

RANGES = 40
FILE_BYTES = 1 << 20
PACE = 12 << 20
"""Bytes that a test writes in a second, at most."""


def test_S1_one_sync_serves_the_appends_of_many_ranges(tmp_path: Path) -> None:
    async def run() -> None:
        async with live(tmp_path, 3) as cluster, lognode.AsyncClient(cluster.address) as client:
            await cluster.healthy(3)
            keys = [b"%c" % (at * 6) for at in range(1, RANGES)]
            log = await client.create_log("orders", split_at=keys)
            await cluster.healthy(3)
            await asyncio.gather(*(log.append(key, b"first") for key in keys))
            before = [each.node._wal.syncs for each in cluster.nodes]
            for n in range(20):
                await asyncio.gather(*(log.append(key, b"%d" % n) for key in keys))
            appends = 20 * len(keys)
            for each, syncs in zip(cluster.nodes, before, strict=True):
                syncs = each.node._wal.syncs - syncs
                print(f"{appends} appends, {syncs} syncs")
                assert 0 < syncs < appends / 4
                metrics = each.node._metrics.registry
                counted = metrics.get_sample_value("lognode_wal_syncs_total")
                assert counted is not None
                assert counted >= syncs

    asyncio.run(run())


async def busy_until(cluster: LiveCluster, log: lognode.AsyncLog, bytes_in_all: int) -> int:
    """Append so much to one range; the most WAL files that there were meanwhile.

    At a pace: the files go a while after what they hold is in a segment, and how
    many were begun since would otherwise be a matter of how fast this machine's disk is.
    """
    (node,) = cluster.nodes
    most = written = 0
    while written < bytes_in_all:
        pace = asyncio.ensure_future(asyncio.sleep(16 * 4096 / PACE))
        await log.append_many([(b"busy", os.urandom(4096)) for _ in range(16)])
        written += 16 * 4096
        await pace
        most = max(most, node.node._wal.file_count)
    return most


def test_L3_one_busy_range_and_hundreds_of_idle_ones_keep_few_wal_files(tmp_path: Path) -> None:
    """Each idle range has an entry in the oldest file, and is brought into a segment once."""

    async def run() -> None:
        async with (
            live(tmp_path, wal_file_bytes=FILE_BYTES) as cluster,
            lognode.AsyncClient(cluster.address) as client,
        ):
            keys = [b"%03d" % at for at in range(1, 200)]
            idle = await client.create_log("idle", split_at=keys)
            await asyncio.gather(*(idle.append(key, b"once") for key in keys))
            busy = await client.create_log("busy")
            first = cluster.nodes[0].node._wal._files[0]
            await busy_until(cluster, busy, 20 * FILE_BYTES)
            wal = cluster.nodes[0].node._wal
            await until(
                lambda: wal.file_count <= maintenance._WAL_FILES_MAX + 1, "the files go", 60
            )
            assert wal._files[0] > first
            # From now on nothing idle is in the way.
            most = await busy_until(cluster, busy, 40 * FILE_BYTES)
            print(f"at most {most} files of {FILE_BYTES} bytes")
            assert most <= 4 * maintenance._WAL_FILES_MAX
            assert sum(await asyncio.gather(*(idle.count(key) for key in keys))) == len(keys)

    asyncio.run(run())


def test_L3_a_range_without_quorum_keeps_few_wal_files(tmp_path: Path) -> None:
    """Nobody commits its entry, nor one of the controller: both are written anew, and the files
    behind them go."""

    async def run() -> None:
        async with live(tmp_path, 3, wal_file_bytes=FILE_BYTES) as cluster:
            async with lognode.AsyncClient(cluster.address) as client:
                await cluster.healthy(3)
                await client.create_log("orders")
                await cluster.healthy(3)
            leader = await cluster.leader()
            for each in cluster.nodes:
                if each is not leader:
                    await each.stop_now()
            (replica,), controller = leader.host.ranges(), leader.host.controller
            log, wal = replica.raft_log, leader.node._wal
            assert controller is not None
            kept = controller.raft_log
            kept.append(kept.last_index + 1, kept.last_term, b"nobody commits this")
            stuck = asyncio.create_task(_try(replica))
            await until(lambda: log.last_index > log.commit_index, "an entry nobody commits")
            pinned = (log.last_index, log.entry(log.last_index).command)
            scratch = wal.create_group(type(replica.gid)(77, 1))
            first = wal._files[0]
            size = 250_000
            while wal._files[0] <= first + 3:
                scratch.append(scratch.last_index + 1, 1, os.urandom(size))
                scratch.set_commit(scratch.last_index)
                scratch.cut_front(scratch.last_index)
                leader.node._rounds.kick()
                await asyncio.sleep(size / PACE)
                assert wal.file_count < 60
            assert log.entry(pinned[0]).command == pinned[1]
            stuck.cancel()

    asyncio.run(run())


async def _try(replica: object) -> None:
    from storage_node import numbered_batch

    await replica.append(numbered_batch(1, [b"k"]))  # type: ignore[attr-defined]
