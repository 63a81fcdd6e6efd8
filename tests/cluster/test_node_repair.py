"""x2: a member that lost its log takes no part until the next generation, and gets there."""

import asyncio
import shutil
from pathlib import Path
from typing import Any

import pytest
from live_nodes import LiveCluster, LiveNode, live, until

import lognode
from lognode.client.ports import free_ports
from lognode.client.protocol.errors import CorruptData, Unavailable
from lognode.partitions import change
from lognode.raft.types import GroupId

pytestmark = pytest.mark.cluster


async def lose_the_wal(node: LiveNode) -> None:
    await node.stop_now()
    shutil.rmtree(node.config.data / "wal")


def range_at(node: LiveNode) -> Any:
    """The range's newest replica there."""
    return node.host.serving(1)


async def in_generation(cluster: LiveCluster, generation: int) -> None:
    """Every node takes part in that generation of the range, and has all of it."""

    def there() -> bool:
        found = [range_at(each) for each in cluster.nodes]
        return all(r is not None and r.gid.generation == generation for r in found)

    await until(there, f"generation {generation} on all nodes")
    await cluster.settled()


def test_x2_a_member_that_lost_its_log_with_an_acknowledged_entry_grants_no_vote(
    tmp_path: Path,
) -> None:
    """e is acknowledged by A and B while C is away; B loses its WAL; A pauses. B and C are a
    majority, and C's log, without e, would do as well as B's, which is none."""

    async def run() -> None:
        async with live(tmp_path, 3) as cluster, lognode.AsyncClient(cluster.address) as client:
            await cluster.healthy(3)
            log = await client.create_log("orders")
            await log.append(b"k", b"before")
            await cluster.settled()
            a = await cluster.leader()
            b, c = (each for each in cluster.nodes if each is not a)
            await c.stop_now()
            await log.append(b"k", b"e")
            gid = range_at(a).gid
            await a.stop_now()
            await lose_the_wal(b)
            b.begin()
            c.begin()
            await until(lambda: hasattr(c.node, "_host") and gid in c.host.groups, "C is up")
            await until(lambda: hasattr(b.node, "_host") and gid in b.host.damaged, "B is up")
            await until(
                lambda: c.node._links.connection(b.node.identity.node_id) is not None, "a link"
            )
            term = c.host.groups[gid].group.term
            await asyncio.sleep(3)  # two of the longest election timeouts
            assert gid not in b.host.groups
            assert not c.host.groups[gid].leads
            assert c.host.groups[gid].group.term == term
            await a.start()
            await cluster.healthy(3)
            await in_generation(cluster, gid.generation + 1)
            for each in cluster.nodes:
                node = each.node.identity.node_id
                held = [e.value async for e in log.scan(b"k", node=node, through=2)]
                assert held == [b"before", b"e"], f"on node {node}"

    asyncio.run(run())


def test_x2_the_controller_is_repaired_as_well(tmp_path: Path) -> None:
    async def run() -> None:
        async with live(tmp_path, 3) as cluster, lognode.AsyncClient(cluster.address) as client:
            await cluster.healthy(3)
            before = cluster.nodes[0].node._view.metadata.controller
            victim = next(each for each in cluster.nodes if each.host.controller.leads)
            victim.host.damage(victim.host.controller, CorruptData("a checksum"))
            await until(
                lambda: all(
                    each.host.controller is not None
                    and each.host.controller.gid.generation == before.generation + 1
                    for each in cluster.nodes
                ),
                "the next generation of the controller on all nodes",
            )
            await client.create_log("after")
            await cluster.healthy(3)
            controller = victim.node._view.metadata.controller
            assert (controller.members, controller.generation) == (
                before.members, before.generation + 1,
            )  # fmt: skip
            # What is left of the old generation goes everywhere, also where it was damaged.
            old = GroupId(0, before.generation)
            await until(
                lambda: all(
                    old not in (*each.host.groups, *each.host.damaged) for each in cluster.nodes
                ),
                "the old generation is retired",
            )
            await victim.stop()
            await victim.start()
            await cluster.healthy(3)

    asyncio.run(run())


@pytest.mark.by_hand
def test_x2_16_a_member_that_installs_late_begins_later_and_delays_no_member(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(change, "DONE_AFTER_S", 0.5)

    async def run() -> None:
        async with live(tmp_path, 3) as cluster, lognode.AsyncClient(cluster.address) as client:
            await cluster.healthy(3)
            log = await client.create_log("orders")
            await log.append_many([(b"k", b"%d" % n) for n in range(100)])
            await cluster.settled()
            leader = await cluster.leader()
            victim = next(each for each in cluster.nodes if each is not leader)
            begin = victim.node._duty_runner._begin

            async def cannot(_: object) -> None:
                raise Unavailable("the disk is busy")

            monkeypatch.setattr(victim.node._duty_runner, "_begin", cannot)
            old = range_at(victim).gid
            victim.host.damage(range_at(victim), CorruptData("a checksum"))
            await until(
                lambda: (
                    not leader.node._view.metadata.operations
                    and leader.node._view.metadata.is_done(*old)
                    and old not in leader.host.groups
                ),
                "the operation ends without it",
            )
            assert range_at(leader).gid.generation == old.generation + 1
            await log.append_many([(b"k", b"%d" % n) for n in range(100, 200)])
            for each in cluster.nodes:
                if each is not victim:  # the log that continues the parent's end is cut away
                    await each.node._flusher.release(range_at(each))
            monkeypatch.setattr(victim.node._duty_runner, "_begin", begin)
            await in_generation(cluster, old.generation + 1)
            await cluster.healthy(3)
            node = victim.node.identity.node_id
            held = [e.value async for e in log.scan(b"k", node=node, through=200)]
            assert held == [b"%d" % n for n in range(200)]
            await until(lambda: not victim.host.damaged, "what is left of the old one goes")

    asyncio.run(run())


def test_x2_damage_and_the_reason_of_its_repair_are_shown(tmp_path: Path) -> None:
    async def run() -> None:
        async with live(tmp_path, 3) as cluster, lognode.AsyncClient(cluster.address) as client:
            await cluster.healthy(3)
            await (await client.create_log("orders")).append(b"k", b"v")
            await cluster.settled()
            victim = cluster.of(2)
            old = range_at(victim).gid
            victim.host.damage(range_at(victim), CorruptData("segment abc is missing"))
            seen: set[str] = set()

            async def watch() -> None:
                while True:
                    for row in (await client.status())["operations"]:
                        seen.add(f"{row['kind']}: {row['reason']}")
                    seen.update((await client.health())["reasons"])
                    await asyncio.sleep(0.005)

            watching = asyncio.create_task(watch())
            await in_generation(cluster, old.generation + 1)
            watching.cancel()
            assert "repair: the replica of node 2: segment abc is missing" in seen
            assert any(r.startswith("node 2's replica of range 1 of log orders is") for r in seen)

    asyncio.run(run())


def test_x2_nothing_begins_on_a_wal_whose_meta_is_gone(tmp_path: Path) -> None:
    """It founded a new cluster: what it had promised to the old one was forgotten."""

    async def run() -> None:
        async with live(tmp_path, 3) as cluster, lognode.AsyncClient(cluster.address) as client:
            await cluster.healthy(3)
            await (await client.create_log("orders")).append(b"k", b"v")
            victim = cluster.of(3)
            await victim.stop()
            (victim.config.data / "meta.mdb").unlink()
            with pytest.raises(CorruptData, match=r"meta\.mdb is lost"):
                await victim.start()
            # As it says: an empty directory, and it is another node.
            shutil.rmtree(victim.config.data)
            free_ports(1)
            await victim.start()
            assert victim.node.identity.node_id == 4

    asyncio.run(run())
