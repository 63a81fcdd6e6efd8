"""S7 wherever it is served: linearizable reads by followers, prefix reads that never go back."""

import asyncio
import contextlib
from pathlib import Path
from typing import Any

import pytest
from live_nodes import LiveCluster, LiveNode, ask, follower, live, until, value

import lognode
from lognode.client.protocol.errors import GenerationMismatch, NotLeader, Sealed

pytestmark = pytest.mark.cluster


def hold_back_entries(node: LiveNode) -> Any:
    """The node gets no messages of groups until the returned function is called; answers to
    its reads it gets."""
    raft_in = node.node._raft_in
    take = raft_in._take_messages
    raft_in._take_messages = lambda sender, items: None
    return lambda: setattr(raft_in, "_take_messages", take)


def request(node: LiveNode, **more: Any) -> dict[str, Any]:
    """The body of a read of `k` from the node's own replica."""
    (replica,) = node.host.ranges()
    return {"range": replica.gid.range_id, "generation": replica.gid.generation, "key": b"k",
            **more}  # fmt: skip


async def started(cluster: LiveCluster, client: lognode.AsyncClient) -> lognode.AsyncLog:
    """A log with three members, all of which have applied `k` = `old`."""
    await cluster.healthy(3)
    log = await client.create_log("orders")
    await log.append(b"k", b"old")
    await cluster.settled()
    return log


def test_S7_a_follower_serves_only_when_it_has_applied_what_was_acknowledged(
    tmp_path: Path,
) -> None:
    async def run() -> None:
        async with live(tmp_path, 3) as cluster, lognode.AsyncClient(cluster.address) as client:
            log = await started(cluster, client)
            behind = follower(cluster)
            let_go = hold_back_entries(behind)
            await log.append(b"k", b"new")
            body = request(behind)
            prefix = await ask(behind, "latest", {**body, "consistency": "prefix"})
            assert value(prefix) == b"old"
            reading = asyncio.create_task(ask(behind, "latest", body))
            (replica,) = behind.host.ranges()
            await until(lambda: replica._applied_waiters, "it knows how far to wait")
            assert not reading.done()
            let_go()
            assert value(await reading) == b"new"

    asyncio.run(run())


def test_S7_every_member_serves_linearizable_reads_and_names_the_leader(tmp_path: Path) -> None:
    async def run() -> None:
        async with live(tmp_path, 3) as cluster, lognode.AsyncClient(cluster.address) as client:
            log = await started(cluster, client)
            leader = (await cluster.leader()).node.identity.node_id
            for number in range(30):
                text = b"%d" % number
                await log.append(b"k", text)
                node = number % 3 + 1
                entry = await log.latest(b"k", node=node)
                assert entry is not None
                assert entry.value == text, f"node {node}"
                answer = await ask(cluster.of(node), "latest", request(cluster.of(node)))
                assert value(answer) == text
                assert answer.get("leader") == (None if node == leader else leader)

    asyncio.run(run())


def test_S7_members_of_a_group_at_rest_serve_too(tmp_path: Path) -> None:
    async def run() -> None:
        async with live(tmp_path, 3) as cluster, lognode.AsyncClient(cluster.address) as client:
            log = await started(cluster, client)
            for node in (1, 2, 3):
                groups = [each.host.ranges()[0].group for each in cluster.nodes]
                await until(lambda g=groups: all(group.idle for group in g), "the group rests")
                entry = await log.latest(b"k", node=node)
                assert entry is not None
                assert entry.value == b"old"

    asyncio.run(run())


def test_S7_a_client_that_cannot_reach_the_leader_reads_from_the_others(tmp_path: Path) -> None:
    async def run() -> None:
        async with live(tmp_path, 3) as cluster, lognode.AsyncClient(cluster.address) as client:
            log = await started(cluster, client)
            leader = await cluster.leader()
            pool = client._cluster.pool
            gone = client._cluster.nodes[leader.node.identity.node_id]
            get = pool.get

            async def unreachable(address: Any, deadline: float) -> Any:
                if address == gone:
                    raise lognode.Unavailable("cut by the test")
                return await get(address, deadline)

            pool.get = unreachable  # type: ignore[method-assign]
            for _ in range(5):
                entry = await log.latest(b"k", timeout=5)
                assert entry is not None

    asyncio.run(run())


def test_S7_a_follower_without_a_quorum_serves_no_linearizable_read(tmp_path: Path) -> None:
    async def run() -> None:
        async with live(tmp_path, 3) as cluster, lognode.AsyncClient(cluster.address) as client:
            log = await started(cluster, client)
            alone = follower(cluster)
            others = [each for each in cluster.nodes if each is not alone]
            await asyncio.gather(*(each.stop_now() for each in others))
            (replica,) = alone.host.ranges()
            await until(lambda: replica.leader is None, "it has found out")
            with pytest.raises(NotLeader, match="knows no live leader"):
                await ask(alone, "latest", request(alone))
            node = alone.node.identity.node_id
            with pytest.raises(lognode.LognodeError) as caught:
                await log.latest(b"k", node=node, timeout=1.0)
            assert caught.value.outcome == "not_applied"
            entry = await log.latest(b"k", node=node, consistency="prefix")
            assert entry is not None
            assert entry.value == b"old"

    asyncio.run(run())


def test_S7_a_sealed_or_replaced_generation_is_not_read_from_a_follower(tmp_path: Path) -> None:
    async def run() -> None:
        async with live(tmp_path, 3) as cluster, lognode.AsyncClient(cluster.address) as client:
            await started(cluster, client)
            member = follower(cluster)
            (replica,) = member.host.ranges()
            body = request(member)
            with pytest.raises(GenerationMismatch):
                await ask(member, "latest", {**body, "generation": body["generation"] + 1})
            (leading,) = (await cluster.leader()).host.ranges()
            leading.propose_seal(1)
            await until(lambda: replica.is_sealed, "the seal is applied")
            with pytest.raises(Sealed):
                await ask(member, "latest", body)

    asyncio.run(run())


def test_S7_x2_19_prefix_reads_never_go_back_over_members_restarts_and_generations(
    tmp_path: Path,
) -> None:
    """Counters are appended while the cluster grows from one node to three, members restart, and
    followers lag by turns."""

    async def run() -> None:
        async with live(tmp_path, 1) as cluster, lognode.AsyncClient(cluster.address) as client:
            log = await client.create_log("orders")
            over = asyncio.Event()
            reads = [0]

            async def write() -> None:
                number = 0
                while not over.is_set():
                    number += 1
                    await log.append(b"k", b"%d" % number, timeout=20)

            async def read() -> None:
                last = 0
                while not over.is_set():
                    with contextlib.suppress(lognode.Timeout, lognode.Unavailable):
                        entry = await log.latest(b"k", consistency="prefix", timeout=5)
                        number = 0 if entry is None else int(entry.value or b"")
                        assert number >= last
                        last = number
                        reads[0] += 1

            async def lag() -> None:
                while not over.is_set():
                    for node in list(cluster.nodes):
                        ranges = node.host.ranges() if node.registered else ()
                        if len(cluster.nodes) > 1 and ranges and not ranges[0].leads:
                            let_go = hold_back_entries(node)
                            await asyncio.sleep(0.2)
                            let_go()
                    await asyncio.sleep(0.05)

            async def disturb() -> None:
                await cluster.leader()
                (first,) = cluster.nodes[0].host.ranges()
                generation = first.gid.generation
                await cluster.join()
                await cluster.join()
                await cluster.healthy(3)
                await until(lambda: all(n.host.ranges() for n in cluster.nodes), "it has grown")
                # The parent's replica may not be gone yet.
                newest = [max(r.gid.generation for r in n.host.ranges()) for n in cluster.nodes]
                assert min(newest) > generation
                for _ in range(2):
                    member = follower(cluster)
                    await member.stop_now()
                    await member.start()
                    before = reads[0]
                    await until(lambda b=before: reads[0] > b + 30, "reads go on")
                    await cluster.healthy(3)
                over.set()

            async with asyncio.TaskGroup() as group:
                for each in (write, read, read, lag, disturb):
                    group.create_task(each())

    asyncio.run(run())


def test_x2_27_no_leader_is_hinted_whose_node_is_missing(tmp_path: Path) -> None:
    async def run() -> None:
        async with live(tmp_path, 3) as cluster, lognode.AsyncClient(cluster.address) as client:
            await started(cluster, client)
            member, leader = follower(cluster), await cluster.leader()
            (replica,) = member.host.ranges()
            node = leader.node.identity.node_id
            assert replica.not_leader().fields["hint"] == node
            described = member.node._cluster.catalog.describe_range(replica.gid.range_id)
            assert described[0]["leader"] == node
            member.node._pings.liveness.missing = lambda _: True
            assert replica.leader == node, "the group has heard it a moment ago"
            assert replica.not_leader().fields["hint"] is None
            described = member.node._cluster.catalog.describe_range(replica.gid.range_id)
            assert described[0]["leader"] is None

    asyncio.run(run())
