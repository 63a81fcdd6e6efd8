"""L4, L1: a node that stops in order leaves nobody waiting for an election timeout."""

import asyncio
from pathlib import Path

import pytest
from live_nodes import LiveCluster, LiveNode, live, until

import lognode
from lognode.client.protocol.cluster import HEALTH
from lognode.client.protocol.errors import Unavailable
from lognode.node.replicas.host import Host

pytestmark = pytest.mark.cluster


def leading(cluster: LiveCluster) -> LiveNode:
    return next(each for each in cluster.nodes if each.host.controller.leads)


def test_L4_a_stopping_node_hands_over_its_groups_before_it_ends(tmp_path: Path) -> None:
    async def run() -> None:
        async with live(tmp_path, 3) as cluster, lognode.AsyncClient(cluster.address) as client:
            await cluster.healthy(3)
            log = await client.create_log("orders", ranges=6)
            await log.append_many([(bytes([n]), b"v") for n in range(256)])
            await cluster.settled()
            victim = leading(cluster)
            led = [gid for gid, r in victim.host.groups.items() if r.leads]
            assert len(led) > 1
            terms = {gid: victim.host.groups[gid].group.term for gid in led}
            left = await victim.node._handover.all_groups(3.0)
            assert left == 0
            with pytest.raises(Unavailable):  # and takes nothing over any more
                await victim.node._handover.take_over(1, {"groups": []})
            others = [each for each in cluster.nodes if each is not victim]
            for gid in led:
                (now,) = [each.host.groups[gid].group.term for each in others
                          if each.host.groups[gid].leads]  # fmt: skip
                assert now == terms[gid] + 1  # one election, won at once
            await log.append_many([(bytes([n]), b"w") for n in range(256)])
            assert await victim.stop() == 0

    asyncio.run(run())


def test_L4_acknowledged_appends_survive_a_hand_over_under_load(tmp_path: Path) -> None:
    async def run() -> None:
        async with live(tmp_path, 3) as cluster, lognode.AsyncClient(cluster.address) as client:
            await cluster.healthy(3)
            log = await client.create_log("orders")
            await cluster.settled()
            acknowledged: list[bytes] = []
            stop = asyncio.Event()

            async def load(worker: int) -> None:
                n = 0
                while not stop.is_set():
                    value = b"%d-%d" % (worker, n)
                    await log.append(b"k%d" % worker, value)
                    acknowledged.append(value)
                    n += 1

            workers = [asyncio.create_task(load(worker)) for worker in range(4)]
            for _ in range(2):
                await asyncio.sleep(0.3)
                victim = await cluster.leader()
                await victim.stop()
                await victim.start()
            stop.set()
            await asyncio.gather(*workers)
            held = [entry.value for n in range(4) async for entry in log.scan(b"k%d" % n)]
            assert len(held) == len(set(held))  # S8
            assert set(acknowledged) <= set(held)  # S2
            assert len(acknowledged) > 20

    asyncio.run(run())


def test_L4_all_nodes_stopped_at_once_do_not_wait_for_each_other(tmp_path: Path) -> None:
    async def run() -> None:
        async with live(tmp_path, 3) as cluster:
            await cluster.healthy(3)
            loop = asyncio.get_running_loop()
            began = loop.time()
            assert await asyncio.gather(*(each.stop() for each in cluster.nodes)) == [0, 0, 0]
            assert loop.time() - began < 3

    asyncio.run(run())


def test_a_leader_that_is_gone_is_not_named_for_long(tmp_path: Path) -> None:
    """x2.27, and `health`: two of three dead leave no leader to name."""

    async def run() -> None:
        async with live(tmp_path, 3) as cluster, lognode.AsyncClient(cluster.address) as client:
            await cluster.healthy(3)
            await client.create_log("orders", ranges=4)
            await cluster.settled()
            survivor = cluster.nodes[0]
            for each in cluster.nodes[1:]:
                await each.stop_now()
            connection = await survivor.client()
            loop = asyncio.get_running_loop()
            give_up_at = loop.time() + 10
            while True:
                health = await connection.request(HEALTH, {}, deadline=loop.time() + 5)
                leaderless = [r for r in health["reasons"] if r.endswith(" has no leader")]
                if len(leaderless) == 5:  # the controller and four ranges
                    break
                assert loop.time() < give_up_at, health
                await asyncio.sleep(0.1)
            assert not health["ok"]
            connection.close()

    asyncio.run(run())


def test_entries_that_are_applied_before_the_node_listens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Replicas run as soon as they are recovered: all that they call back into must be there."""

    async def run() -> None:
        async with live(tmp_path) as cluster, lognode.AsyncClient(cluster.address) as client:
            await (await client.create_log("orders")).append(b"k", b"v")
            (node,) = cluster.nodes
            await node.stop_now()  # what the controller applied is applied again from its log
            collect = Host.collect_garbage

            async def late(host: Host) -> None:
                await until(
                    lambda: host.controller is not None and host.controller.applied_index > 3,
                    "entries are applied",
                )
                await asyncio.sleep(0.1)
                await collect(host)

            monkeypatch.setattr(Host, "collect_garbage", late)  # the last step of recovery
            await node.start()
            assert await client.log("orders").count(b"k") == 1
            assert node.node.shutdown.failure is None

    asyncio.run(run())
