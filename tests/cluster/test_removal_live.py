"""Removal by policy on nodes in the test's own loop: its duty is called, not waited for."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from live_nodes import LiveCluster, live, until

import lognode
from lognode.node.replicas.clocks import Clocks

pytestmark = pytest.mark.cluster

HOUR_MS = 3_600_000
NODES = (1, 2, 3)


class Wall:
    """A wall clock that can be set."""

    def __init__(self) -> None:
        self.ahead_ms = 0

    def __call__(self) -> int:
        return time.time_ns() // 1_000_000 + self.ahead_ms


class Rig:
    """A cluster, one log of one range in it, and its clocks."""

    def __init__(
        self, cluster: LiveCluster, client: lognode.AsyncClient, log: lognode.AsyncLog,
        walls: dict[int, Wall],
    ) -> None:  # fmt: skip
        self.cluster = cluster
        self.client = client
        self.log = log
        self._walls = walls

    def ahead(self, ms: int, nodes: tuple[int, ...] = NODES) -> None:
        """Set the wall clocks of these nodes."""
        for node in nodes:
            self._walls[node].ahead_ms = ms

    async def all_ahead(self, ms: int) -> None:
        """Set the wall clocks of all nodes; return when each node knows that they agree."""
        self.ahead(ms)
        for each in self.cluster.nodes:
            await until(each.node._clocks.is_agreed, "all agree")

    async def flush(self) -> None:
        """What is applied goes to a segment, on every node."""
        await self.cluster.settled()
        for each in self.cluster.nodes:
            for replica in each.host.ranges():
                await each.node._flusher.flush(replica)

    async def look(self) -> None:
        """What policies ask for is proposed and applied everywhere."""
        for each in self.cluster.nodes:
            await each.node._removals.look()
        await self.cluster.settled()

    async def shown(
        self, key: bytes, log: lognode.AsyncLog | None = None
    ) -> list[tuple[int, bytes | None]]:
        """The same on every node."""
        read = log or self.log
        found = [[(e.seq, e.value) async for e in read.scan(key, node=node)] for node in NODES]
        assert found[0] == found[1] == found[2]
        for node in NODES:
            assert await read.count(key, node=node) == len(found[0])
        return found[0]

    def files(self) -> list[int]:
        """How many segments each node has."""
        return [len(list((each.config.data / "files").glob("*.seg")))
                for each in self.cluster.nodes]  # fmt: skip


@asynccontextmanager
async def rig(root: Path, **policy: Any) -> AsyncIterator[Rig]:
    """Three nodes and the log `kept` of that policy."""
    walls = {number: Wall() for number in NODES}
    clocks = {number: Clocks(wall_ms=wall) for number, wall in walls.items()}
    async with (
        live(root, 3, clocks=clocks) as cluster,
        lognode.AsyncClient(cluster.address, timeout=30) as client,
    ):
        await cluster.healthy(3)
        log = await client.create_log("kept", **policy)
        leader = await cluster.leader()
        peers = clocks[leader.node.identity.node_id]
        await until(lambda: len(peers._heard) == 2, "it hears both peers")
        yield Rig(cluster, client, log, walls)


@pytest.mark.by_hand
@pytest.mark.parametrize("cleanup", ["delete", "compact,delete"])
def test_x11_a_leader_whose_clock_jumped_removes_nothing(tmp_path: Path, cleanup: str) -> None:
    async def run() -> None:
        async with rig(tmp_path, cleanup=cleanup, retention_ms=HOUR_MS) as found:
            await found.log.append(b"k", b"1")
            await found.flush()
            leader = (await found.cluster.leader()).node.identity.node_id
            found.ahead(48 * HOUR_MS, (leader,))
            await until(
                lambda: not found.cluster.of(leader).node._clocks.is_agreed(), "it is noticed"
            )
            await found.look()
            assert await found.shown(b"k") == [(1, b"1")]
            # All of them say so: two days have passed.
            found.ahead(48 * HOUR_MS)
            await until(lambda: found.cluster.of(leader).node._clocks.is_agreed(), "all agree")
            await found.look()
            assert await found.shown(b"k") == []
            assert (await found.log.append(b"k", b"2")).seq == 2, "S6"
            await found.flush()
            await until(lambda: found.files() == [1, 1, 1], "the first file is gone on each node")
            assert await found.shown(b"k") == [(2, b"2")]

    asyncio.run(run())


def test_S6_a_compacted_log_with_a_retention_loses_the_last_entries_when_they_are_old(
    tmp_path: Path,
) -> None:
    async def run() -> None:
        policy = {"cleanup": "compact,delete", "retention_ms": HOUR_MS}
        async with rig(tmp_path, **policy) as found:
            log = found.log
            await log.append_many([(b"a", b"1"), (b"a", b"2"), (b"b", b"1"), (b"b", b"2")])
            await found.flush()
            await found.look()
            assert await found.shown(b"a") == [(2, b"2")]
            assert await found.shown(b"b") == [(4, b"2")]
            await found.all_ahead(2 * HOUR_MS)
            await log.append(b"b", b"3")
            await found.flush()
            await found.look()
            assert await found.shown(b"a") == []
            assert await found.shown(b"b") == [(5, b"3")]
            assert [key async for key in log.keys(limit=9)] == [b"b"]

    asyncio.run(run())


def test_S6_old_entries_of_a_compacted_log_go_though_younger_ones_are_in_their_file(
    tmp_path: Path,
) -> None:
    async def run() -> None:
        policy = {"cleanup": "compact,delete", "retention_ms": HOUR_MS}
        async with rig(tmp_path, **policy) as found:
            log = found.log
            for number, key in enumerate((b"old", b"young"), 1):
                await log.append(key, b"1")
                await found.all_ahead(number * 3 * HOUR_MS // 4)
            await found.flush()
            await until(lambda: found.files() == [1, 1, 1], "one file on each node")
            await found.look()
            assert await found.shown(b"old") == []
            assert await found.shown(b"young") == [(2, b"1")]

    asyncio.run(run())


def test_S6_compaction_and_logical_snapshots_are_the_same_on_all_nodes(tmp_path: Path) -> None:
    async def run() -> None:
        policy = {"cleanup": "compact", "delete_retention_ms": HOUR_MS}
        async with rig(tmp_path, **policy) as found:
            log = found.log
            for value in (b"1", b"2", b"3"):
                await log.append_many([(b"a", value), (b"b", value), (b"gone", value)])
            await log.append(b"gone", None)
            await log.append(b"b", b"4")
            other = await found.client.create_log("snapshots", snapshot_delay_ms=HOUR_MS)
            for n in range(6):
                await other.append(b"k", b"%d" % n, snapshot=n in (1, 3))
                await other.append(b"plain", b"%d" % n)
            await found.flush()
            await log.append(b"a", b"not in a segment yet")
            await found.look()
            assert await found.shown(b"a") == [(7, b"3"), (12, b"not in a segment yet")]
            assert await found.shown(b"b") == [(11, b"4")]
            assert await found.shown(b"gone") == [(10, None)]
            assert len(await found.shown(b"k", other)) == 6, "the delay is not over"
            assert [e.seq async for e in other.scan(b"k", start="snapshot")] == [7, 9, 11]

            await found.all_ahead(2 * HOUR_MS)
            await found.look()
            assert await found.shown(b"gone") == []
            assert await log.latest(b"gone") is None
            assert [key async for key in log.keys(limit=9)] == [b"a", b"b"]
            ack = await log.append(b"gone", b"again", expect=lognode.ABSENT)
            assert ack.seq == 13
            assert await found.shown(b"k", other) == [(7, b"3"), (9, b"4"), (11, b"5")]
            assert len(await found.shown(b"plain", other)) == 6

    asyncio.run(run())
