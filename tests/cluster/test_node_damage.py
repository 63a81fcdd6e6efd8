"""S12: what a replica finds wrong with its own data ends that replica, there and for good."""

import asyncio
import logging
from pathlib import Path

import pytest
from live_nodes import LiveCluster, LiveNode, live, until
from prepared import forget_read

import lognode
from lognode.client.protocol.errors import CorruptData, RangeNotFound
from lognode.node.lifecycle.base_transfer import BaseFetcher
from lognode.node.replicas.range_replica import RangeReplica
from lognode.partitions import planner
from lognode.raft.types import GroupId
from lognode.statemachine.segment_writer import SegmentInfo

pytestmark = pytest.mark.cluster


@pytest.fixture
def no_repair(monkeypatch: pytest.MonkeyPatch) -> None:
    """The controller plans none, so that what damage does can be looked at."""
    monkeypatch.setattr(planner, "_broken", lambda *_: None)


@pytest.fixture
def no_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    """No member has the file, so that it is not mended in place."""

    async def fetch_file(self: BaseFetcher, peer: int, gid: GroupId, info: SegmentInfo) -> None:
        raise RangeNotFound(f"no segment {info.content_id} on node {peer}", range=gid.range_id)

    monkeypatch.setattr(BaseFetcher, "fetch_file", fetch_file)


ZSTD = b"\x28\xb5\x2f\xfd"


async def filled(cluster: LiveCluster, client: lognode.AsyncClient) -> lognode.AsyncLog:
    """A log of two ranges on all nodes, some entries of each in a segment on every node."""
    log = await client.create_log("orders", split_at=["m"])
    await log.append_many([(key, b"%d" % n) for n in range(300) for key in (b"a", b"z")])
    await cluster.settled()
    for each in cluster.nodes:
        for replica in each.host.ranges():
            await each.node._flusher.flush(replica)
    return log


def flip_bits(node: LiveNode, replica: RangeReplica) -> None:
    """Flip a bit in every compressed block of the replica's segments."""
    flipped = 0
    for info in replica.state.manifest:
        path = node.host.store.path(info.content_id)
        data = bytearray(path.read_bytes())
        at = data.find(ZSTD)
        while at >= 0:
            data[at + 12] ^= 4
            flipped += 1
            at = data.find(ZSTD, at + 1)
        with open(path, "r+b") as file:  # in place: the file is open elsewhere
            file.write(data)
    assert flipped


def replica_at(node: LiveNode, key: bytes) -> RangeReplica:
    ranges: list[RangeReplica] = node.host.ranges()
    return next(
        replica
        for replica in ranges
        if replica.descriptor.span.start <= key
        and (replica.descriptor.span.end is None or key < replica.descriptor.span.end)
    )


@pytest.mark.usefixtures("no_repair", "no_copy")
@pytest.mark.parametrize("victim_leads", [True, False], ids=["leader", "follower"])
def test_S12_a_flipped_bit_ends_one_replica_and_nothing_else(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, victim_leads: bool
) -> None:
    async def run() -> None:
        async with live(tmp_path, 3) as cluster, lognode.AsyncClient(cluster.address) as client:
            await cluster.healthy(3)
            log = await filled(cluster, client)
            victim = next(
                each for each in cluster.nodes if replica_at(each, b"a").leads == victim_leads
            )
            number, gid = victim.node.identity.node_id, replica_at(victim, b"a").gid
            flip_bits(victim, replica_at(victim, b"a"))

            with pytest.raises(CorruptData, match=f"node {number}'s replica of range"):
                await log.latest(b"a", node=number, through=1)
            await serves(client, log, number, gid)
            assert victim.host.replica(gid) is None
            assert "replica is damaged and takes no part" in caplog.text
            # For good: neither a restart nor what it holds brings it back in this generation.
            await victim.stop()
            await victim.start()
            assert victim.host.replica(gid) is None
            assert victim.host.meta.get(f"replica/{gid.range_id:012d}/{gid.generation:08d}")[
                "damaged"
            ]
            await serves(client, log, number, gid)
            assert gid not in {r.gid for r in victim.host.groups.values()}

    async def serves(
        client: lognode.AsyncClient, log: lognode.AsyncLog, number: int, gid: GroupId
    ) -> None:
        """Everything but the one replica; and all can see which it is."""
        entry = await log.latest(b"a")
        assert entry is not None
        ack = await log.append(b"a", b"more")
        assert ack.seq is not None
        assert ack.seq > entry.seq
        assert await log.count(b"z", node=number, through=1) == 300
        for _ in range(500):
            health = await client.health(nodes=3)
            named = [r for r in health["reasons"] if f"node {number}'s replica of range" in r]
            if named:
                break
            await asyncio.sleep(0.01)
        assert not health["ok"]
        assert "range " + str(gid.range_id) in named[0]
        status = await client.status()
        (damaged,) = status["damaged"]
        assert (damaged["node"], damaged["range"]) == (number, gid.range_id)

    caplog.set_level(logging.ERROR)
    asyncio.run(run())


@pytest.mark.usefixtures("no_repair", "no_copy")
def test_S12_damage_found_by_apply_ends_the_replica_and_the_append_succeeds(
    tmp_path: Path,
) -> None:
    async def run() -> None:
        async with live(tmp_path, 3) as cluster, lognode.AsyncClient(cluster.address) as client:
            await cluster.healthy(3)
            log = await filled(cluster, client)
            last = await log.latest(b"a")
            assert last is not None
            leader = next(each for each in cluster.nodes if replica_at(each, b"a").leads)
            gid = replica_at(leader, b"a").gid
            flip_bits(leader, replica_at(leader, b"a"))
            forget_read(leader.host.store)
            ack = await log.append(b"a", b"checked", expect=last.seq)
            entry = await log.latest(b"a")
            assert entry is not None
            assert entry.value == b"checked"
            assert ack.seq in (entry.seq, None)
            await until(lambda: gid in leader.host.damaged, "the replica has ended")
            assert leader.node.shutdown.failure is None

    asyncio.run(run())


def test_S12_damage_that_the_group_finds_ends_the_replica(tmp_path: Path) -> None:
    """As when an entry read back from the WAL for a follower has another checksum."""

    async def run() -> None:
        async with live(tmp_path) as cluster, lognode.AsyncClient(cluster.address) as client:
            log = await client.create_log("orders", split_at=["m"])
            await log.append_many([(b"a", b"1"), (b"z", b"1")])
            (node,) = cluster.nodes
            replica = replica_at(node, b"a")

            def broken() -> None:
                raise CorruptData("WAL entry 7 has another checksum")

            replica.group.synced = broken  # type: ignore[method-assign]
            replica.synced()
            assert replica.stopped
            assert node.host.damaged == {replica.gid: "WAL entry 7 has another checksum"}
            assert await log.count(b"z") == 1
            with pytest.raises(lognode.LognodeError):
                await log.count(b"a", timeout=0.3)
            assert node.node.shutdown.failure is None

    asyncio.run(run())


@pytest.mark.usefixtures("no_repair")
def test_S12_a_damaged_controller_replica_is_left_out(tmp_path: Path) -> None:
    async def run() -> None:
        async with live(tmp_path, 3) as cluster, lognode.AsyncClient(cluster.address) as client:
            await cluster.healthy(3)
            await client.create_log("before")
            leader = next(each for each in cluster.nodes if each.host.controller.leads)
            damaged = leader.host.controller.gid
            leader.host.damage(leader.host.controller, CorruptData("a checksum"))
            # The first attempt may have been committed before its answer was lost with the lead.
            await client.create_log("after", exist_ok=True)
            number = leader.node.identity.node_id
            await leader.stop()
            await leader.start()
            assert damaged not in leader.host.groups
            await client.create_log("after-the-restart")
            reason = f"node {number}'s replica of the controller is damaged: a checksum"
            for _ in range(500):
                if reason in (await client.health())["reasons"]:
                    return
                if leader.host.controller is not None:  # the repair was faster than the restart
                    assert leader.host.controller.gid.generation > damaged.generation
                    return
                await asyncio.sleep(0.01)
            raise AssertionError((await client.health())["reasons"])

    asyncio.run(run())


def test_S12_x28_files_are_hashed_after_a_stop_that_was_not_orderly(tmp_path: Path) -> None:
    async def run() -> None:
        async with live(tmp_path) as cluster, lognode.AsyncClient(cluster.address) as client:
            log = await filled(cluster, client)
            (node,) = cluster.nodes
            replica = replica_at(node, b"a")
            await node.stop()
            flip_bits(node, replica)
            await node.start()  # after an orderly stop they are trusted until they are read
            assert not node.host.damaged
            await node.stop_now()
            await node.start()
            assert list(node.host.damaged) == [replica.gid]
            assert "SHA-256" in node.host.damaged[replica.gid]
            assert await log.count(b"z") == 300

    asyncio.run(run())


def test_S12_x6_a_member_whose_state_differs_at_the_seal_is_damaged_and_starts_from_a_peer(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        async with live(tmp_path, 3) as cluster, lognode.AsyncClient(cluster.address) as client:
            await cluster.healthy(3)
            log = await client.create_log("orders", replicas=5)
            await log.append_many([(b"k%d" % n, b"v") for n in range(50)])
            await cluster.settled()
            wrong = next(each for each in cluster.nodes if not each.host.ranges()[0].leads)
            (replica,) = wrong.host.ranges()
            replica.state.state_hash = b"wrong".ljust(16)
            await cluster.join()
            await cluster.join()
            await cluster.healthy(5)
            reasons = [getattr(record, "fields", {}).get("reason", "") for record in caplog.records]
            assert any(
                "the state of this replica at the seal has another hash than" in reason
                for reason in reasons
            )
            await log.append(b"k0", b"w")
            await cluster.settled()
            (range_,) = wrong.node._view.metadata.ranges.values()
            gid = GroupId(range_.range_id, range_.generation)  # some may still hold its parent
            replicas = [each.host.replica(gid) for each in cluster.nodes]
            assert len({each and each.state.state_hash for each in replicas}) == 1
            number = wrong.node.identity.node_id
            assert await log.count(b"k0", node=number, through=51) == 2

    caplog.set_level(logging.ERROR)
    asyncio.run(run())


def test_S12_x6_a_member_that_applies_an_entry_differently_is_found_at_the_next_seal(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """All have the same entries: only what the entries did differs."""

    async def run() -> None:
        async with live(tmp_path, 3) as cluster, lognode.AsyncClient(cluster.address) as client:
            await cluster.healthy(3)
            log = await client.create_log("orders")
            await log.append_many([(b"k%d" % (n % 5), b"v") for n in range(50)])
            await cluster.settled()
            wrong = next(each for each in cluster.nodes if not each.host.ranges()[0].leads)
            (replica,) = wrong.host.ranges()
            raise_floors = replica.state.removal.raise_floors
            replica.state.removal.raise_floors = lambda floors: raise_floors(
                {key: before + 1_000 for key, before in floors.items()}
            )
            await log.trim(b"k1", before=12)
            await log.append(b"k2", b"w")
            await cluster.settled()
            number = wrong.node.identity.node_id
            assert await log.count(b"k1", node=number, through=51) == 0, "entries are gone there"
            assert len({each.host.ranges()[0].state.state_hash for each in cluster.nodes}) == 1
            await client.admin.split("orders", at=b"m")
            await cluster.healthy(3)
            reasons = [getattr(record, "fields", {}).get("reason", "") for record in caplog.records]
            assert (
                sum(
                    "the entries of the generation had another effect on this" in why
                    for why in reasons
                )
                == 1
            )
            await cluster.settled()
            assert await log.count(b"k1", node=number, through=51) == 8
            for range_ in cluster.nodes[0].node._view.metadata.ranges.values():
                gid = GroupId(range_.range_id, range_.generation)
                states = [each.host.replica(gid).state for each in cluster.nodes]
                assert len({state.effects.to_wire() for state in states}) == 1
                assert len({state.removal.floors.get(b"k1") for state in states}) == 1

    caplog.set_level(logging.ERROR)
    asyncio.run(run())
