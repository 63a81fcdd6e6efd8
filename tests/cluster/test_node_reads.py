"""S7 on real nodes: prefix reads by any member, through=, node=, metadata that is new enough."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from live_nodes import LiveCluster, LiveNode, ask, follower, live, until, value

import lognode
from lognode.client.protocol.errors import NodeNotFound, Timeout, Unavailable

pytestmark = pytest.mark.cluster


def hold_back(node: LiveNode) -> Any:
    """The node gets no Raft messages until the returned function is called: it lags."""
    raft_in = node.node._raft_in
    take = raft_in.take
    raft_in.take = lambda sender, body: None
    return lambda: setattr(raft_in, "take", take)


async def lagging(cluster: LiveCluster, log: lognode.AsyncLog) -> tuple[LiveNode, Any]:
    """`k` is `old` everywhere, and `new` but on one node; that node, and what lets it go on."""
    await log.append(b"k", b"old")
    await cluster.settled()
    behind = follower(cluster)
    let_go = hold_back(behind)
    await log.append(b"k", b"new")
    return behind, let_go


def test_S7_x2_19_prefix_reads_never_go_back_in_a_session(tmp_path: Path) -> None:
    async def run() -> None:
        async with live(tmp_path, 3) as cluster, lognode.AsyncClient(cluster.address) as client:
            await cluster.healthy(3)
            log = await client.create_log("orders")
            behind, let_go = await lagging(cluster, log)
            (replica,) = behind.host.ranges()
            body = {"range": replica.gid.range_id, "generation": replica.gid.generation,
                    "key": b"k", "consistency": "prefix"}  # fmt: skip
            # A session that has seen nothing may be served by who lags ...
            before = await ask(behind, "latest", body)
            assert value(before) == b"old"
            # ... one that has seen more is not, by that member.
            leader = next(each for each in cluster.nodes if each.host.ranges()[0].leads)
            seen = await ask(leader, "latest", body)
            assert value(seen) == b"new"
            assert seen["applied"] > before["applied"]
            with pytest.raises(Unavailable, match="the session has seen"):
                await ask(behind, "latest", {**body, "applied": seen["applied"]})
            # The SDK: what one read has seen, the next ones see too, whichever member serves them.
            entry = await log.latest(b"k")
            assert entry is not None
            assert entry.value == b"new"
            for _ in range(6):
                entry = await log.latest(b"k", consistency="prefix")
                assert entry is not None
                assert entry.value == b"new"
            waiting = asyncio.create_task(
                ask(behind, "latest", {**body, "applied": seen["applied"]})
            )
            await asyncio.sleep(0.05)
            let_go()
            assert value(await waiting) == b"new"

    asyncio.run(run())


def test_S7_a_client_stays_with_a_member_for_prefix_reads_until_it_fails(tmp_path: Path) -> None:
    async def run() -> None:
        async with live(tmp_path, 3) as cluster, lognode.AsyncClient(cluster.address) as client:
            await cluster.healthy(3)
            log = await client.create_log("orders")
            await log.append(b"k", b"v")
            await cluster.settled()
            counts: dict[int, int] = {}

            def counted(at: int, scan: Any) -> Any:
                def counting(*arguments: Any, **names: Any) -> Any:
                    counts[at] = counts.get(at, 0) + 1
                    return scan(*arguments, **names)

                return counting

            await until(lambda: all(n.host.ranges() for n in cluster.nodes), "a replica on each")
            for each in cluster.nodes:
                (replica,) = each.host.ranges()
                replica.state.scan = counted(replica.services.node_id, replica.state.scan)
            for _ in range(9):
                assert await log.latest(b"k", consistency="prefix") is not None
            assert list(counts.values()) == [9]
            # Each client has a member of its own: together they use all, but for the leader.
            others = {
                n.node.identity.node_id for n in cluster.nodes if not n.host.ranges()[0].leads
            }
            while set(counts) != others:
                async with lognode.AsyncClient(cluster.address) as other:
                    assert await other.log("orders").latest(b"k", consistency="prefix") is not None
            # One of them dead: the others go on.
            counts.clear()
            await follower(cluster).stop()
            for _ in range(9):
                async with lognode.AsyncClient(cluster.address) as other:
                    assert await other.log("orders").latest(b"k", consistency="prefix") is not None

    asyncio.run(run())


def test_through_waits_for_the_seq_and_needs_no_node(tmp_path: Path) -> None:
    async def run() -> None:
        async with live(tmp_path) as cluster, lognode.AsyncClient(cluster.address) as client:
            log = await client.create_log("orders")
            await log.append(b"k", b"1")
            waiting = asyncio.create_task(log.latest(b"k", through=2))
            await asyncio.sleep(0.3)
            assert not waiting.done()
            await log.append(b"k", b"2")
            entry = await waiting
            assert entry is not None
            assert entry.value == b"2"
            (replica,) = cluster.nodes[0].host.ranges()
            body = {"range": 1, "generation": replica.gid.generation, "key": b"k",
                    "through": 9, "timeout_ms": 300}  # fmt: skip
            with pytest.raises(Timeout, match="the replica has applied seq 2") as caught:
                await ask(cluster.nodes[0], "latest", body)
            assert caught.value.outcome == "not_applied"

    asyncio.run(run())


def test_a_read_from_a_node_without_a_replica_says_who_has_one(tmp_path: Path) -> None:
    async def run() -> None:
        async with live(tmp_path, 2) as cluster, lognode.AsyncClient(cluster.address) as client:
            log = await client.create_log("orders", replicas=1)
            await log.append(b"k", b"v")
            holder = next(each for each in cluster.nodes if each.host.ranges())
            other = next(each for each in cluster.nodes if not each.host.ranges())
            (replica,) = holder.host.ranges()
            have, lacks = holder.node.identity.node_id, other.node.identity.node_id
            body = {"range": replica.gid.range_id, "generation": replica.gid.generation,
                    "key": b"k", "node": lacks}  # fmt: skip
            await cluster.settled()
            with pytest.raises(NodeNotFound, match=f"nodes? {have} ha"):
                await ask(other, "latest", body)
            with pytest.raises(NodeNotFound, match=f"this is node {have}, not node {lacks}"):
                await ask(holder, "latest", body)
            with pytest.raises(NodeNotFound):
                await log.latest(b"k", node=lacks)
            assert await log.latest(b"k", node=have) is not None

    asyncio.run(run())


def test_metadata_at_least_as_new_as_wanted(tmp_path: Path) -> None:
    async def run() -> None:
        async with live(tmp_path, 2) as cluster, lognode.AsyncClient(cluster.address) as client:
            await cluster.settled()
            other = cluster.of(2)  # the controller is on node 1
            version = (await ask(other, "metadata", {}))["version"]
            waiting = asyncio.create_task(ask(other, "metadata", {"at_least": version + 1}))
            await asyncio.sleep(0.1)
            assert not waiting.done()
            await client.create_log("orders")
            answer = await waiting
            assert answer["version"] > version
            assert [log["name"] for log in answer["logs"]] == ["orders"]
            began = asyncio.get_running_loop().time()
            answer = await ask(other, "metadata", {"at_least": 10**6})
            assert answer["version"] < 10**6
            assert asyncio.get_running_loop().time() - began < 3

    asyncio.run(run())


def part_name(task: "asyncio.Task[None]") -> str:
    """The name of a supervised part; empty for another task."""
    frame = getattr(task.get_coro(), "cr_frame", None)
    return "" if frame is None else str(frame.f_locals.get("name", ""))


def test_a_node_that_lags_refreshes_for_at_least(tmp_path: Path) -> None:
    async def run() -> None:
        async with live(tmp_path, 2) as cluster, lognode.AsyncClient(cluster.address) as client:
            await cluster.settled()
            other = cluster.of(2)
            parts = {part_name(task): task for task in other.node.parts._tasks}
            heartbeat = parts["heartbeat"]
            heartbeat.remove_done_callback(other.node.parts._ended)
            heartbeat.cancel()  # it hears of nothing by itself
            await client.create_log("orders")
            version = cluster.of(1).node._view.metadata.version
            assert other.node._view.metadata.version < version
            answer = await ask(other, "metadata", {"at_least": version})
            assert answer["version"] == version

    asyncio.run(run())


def test_reads_begin_at_the_newest_logical_snapshot_and_end_at_a_time(tmp_path: Path) -> None:
    async def run() -> None:
        async with live(tmp_path) as cluster, lognode.AsyncClient(cluster.address) as client:
            log = await client.create_log("orders")
            filler = bytes(20_000)  # a snapshot lies several pages back
            for n in range(3):
                await log.append(b"k", b"%d" % n, snapshot=n > 0)
                await log.append_many([(b"k", filler), (b"other", filler)] * 20)
            for _ in range(2):
                first = await anext(aiter(log.scan(b"k", start="snapshot")))
                assert (first.value, first.snapshot) == (b"2", True)
                assert await log.count(b"k", start="snapshot") == 21
                assert await log.count(b"other", start="snapshot") == 60, "there is none"
                assert [e async for e in log.scan(b"nobody", start="snapshot")] == []
                async with log.follow(keys=[b"k"], start="snapshot") as feed:
                    assert (await anext(aiter(feed))).entries[0].seq == first.seq
                until_then = lognode.Timestamp(first.timestamp_ms)
                before = [e.timestamp_ms async for e in log.scan(b"k", end=until_then)]
                assert all(stamp < first.timestamp_ms for stamp in before)
                since = await log.count(b"k", start=until_then)
                assert since + len(before) == await log.count(b"k") == 63
                # And once it is in a segment.
                (replica,) = cluster.nodes[0].host.ranges()
                await cluster.nodes[0].node._flusher.flush(replica)

    asyncio.run(run())
