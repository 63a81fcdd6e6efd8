"""S12: a damaged segment under an intact log is mended in place, from another member."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from live_nodes import LiveCluster, LiveNode, live, until
from prepared import forget_read

import lognode
from lognode.client.protocol.errors import CorruptData
from lognode.node.replicas.range_replica import RangeReplica
from lognode.partitions import planner
from lognode.statemachine.file_hash import hash_file

pytestmark = pytest.mark.cluster

COUNT = 300

Test = Callable[[LiveCluster, lognode.AsyncClient, lognode.AsyncLog], Awaitable[None]]


@pytest.fixture(autouse=True)
def no_next_generation(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is not mended in place stays damaged, and is seen to be."""
    monkeypatch.setattr(planner, "_broken", lambda *_: None)


def run(root: Path, test: Test) -> None:
    """Three nodes with a range, all of it in one segment that is the same on each."""

    async def main() -> None:
        async with live(root, 3) as cluster, lognode.AsyncClient(cluster.address) as client:
            await cluster.healthy(3)
            log = await client.create_log("orders")
            await log.append_many([(b"k%02d" % (n % 30), b"%d" % n) for n in range(COUNT)])
            await cluster.settled()
            for node in cluster.nodes:
                await node.node._flusher.flush(replica_of(node))
            assert len({files_of(node) for node in cluster.nodes}) == 1
            await test(cluster, client, log)
            for node in cluster.nodes:
                assert not node.host.damaged
                assert not node.host.aside
                for name in files_of(node):
                    assert hash_file(node.host.store.path(name)) == name
                held = await values(log, node)
                assert len(held) >= COUNT
                assert held == await values(log, cluster.nodes[0])

    asyncio.run(main())


def replica_of(node: LiveNode) -> RangeReplica:
    (replica,) = node.host.ranges()
    assert isinstance(replica, RangeReplica)
    return replica


def files_of(node: LiveNode) -> tuple[str, ...]:
    return tuple(info.content_id for info in replica_of(node).state.manifest)


async def values(log: lognode.AsyncLog, node: LiveNode) -> list[tuple[bytes, bytes | None]]:
    number = node.node.identity.node_id
    return [
        (entry.key, entry.value)
        for key in [b"k%02d" % n for n in range(30)]
        async for entry in log.scan(key, node=number)
    ]


def spoil(node: LiveNode, *, found_by_hash_only: bool = False) -> None:
    """Change its only segment, in place: it is open."""
    (name,) = files_of(node)
    spoil_file(node.host.store.path(name), found_by_hash_only=found_by_hash_only)
    forget_read(node.host.store)


def spoil_file(path: Path, *, found_by_hash_only: bool = False) -> None:
    """Change all blocks, or bytes that nobody reads."""
    data = bytearray(path.read_bytes())
    if found_by_hash_only:
        at = data.rfind(b"\0" * 64) + 8  # in what LMDB left of a page
        data[at] ^= 1
    else:
        at = data.find(b"\x28\xb5\x2f\xfd")
        assert at >= 0
        while at >= 0:
            data[at + 12] ^= 4
            at = data.find(b"\x28\xb5\x2f\xfd", at + 1)
    with open(path, "r+b") as file:
        file.write(data)


async def mended(node: LiveNode) -> None:
    """Wait until the node has done it."""
    metrics: Any = node.node._metrics
    await until(lambda: metrics.segments_repaired._value.get() == 1, "a segment is mended")
    await until(lambda: not node.node._repair.in_doubt and not node.host.aside, "all is whole")


@pytest.mark.parametrize("victim_leads", [True, False], ids=["leader", "follower"])
def test_S12_damage_that_a_read_finds_is_repaired_and_the_replica_goes_on(
    tmp_path: Path, victim_leads: bool
) -> None:
    async def test(
        cluster: LiveCluster, client: lognode.AsyncClient, log: lognode.AsyncLog
    ) -> None:
        victim = next(n for n in cluster.nodes if replica_of(n).leads == victim_leads)
        before, term = replica_of(victim), replica_of(victim).group.term
        spoil(victim)
        number = victim.node.identity.node_id
        # A read that wants this node waits for it, one that does not goes elsewhere.
        assert await log.count(b"k01", node=number) == COUNT // 30
        assert await log.count(b"k01") == COUNT // 30
        assert [e.value async for e in log.scan(b"k01", node=number)]
        await mended(victim)
        assert replica_of(victim) is before, "it has gone on all the time"
        assert replica_of(victim).group.term == term
        await log.append(b"k01", b"more")

    run(tmp_path, test)


def test_S12_x2_damage_that_stops_apply_is_mended_and_the_replica_comes_back(
    tmp_path: Path,
) -> None:
    async def test(
        cluster: LiveCluster, client: lognode.AsyncClient, log: lognode.AsyncLog
    ) -> None:
        victim = next(n for n in cluster.nodes if replica_of(n).leads)
        gid = replica_of(victim).gid
        last = await log.latest(b"k01")
        assert last is not None
        spoil(victim)
        await log.append(b"k01", b"checked", expect=last.seq)
        await mended(victim)
        assert replica_of(victim).gid == gid, "in the same generation"
        await log.append(b"k01", b"more")
        await cluster.settled()
        hashes = {replica_of(node).state.state_hash for node in cluster.nodes}
        assert len(hashes) == 1

    run(tmp_path, test)


@pytest.mark.parametrize(
    "how",
    [
        "missing",
        pytest.param("cut", marks=pytest.mark.by_hand),
        pytest.param("changed", marks=pytest.mark.by_hand),
    ],
)
def test_S12_x2_damage_that_a_start_finds_is_repaired_and_the_replica_begins(
    tmp_path: Path, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(
        cluster: LiveCluster, client: lognode.AsyncClient, log: lognode.AsyncLog
    ) -> None:
        victim = next(n for n in cluster.nodes if not replica_of(n).leads)
        gid, (name,) = replica_of(victim).gid, files_of(victim)
        path = victim.host.store.path(name)
        await victim.stop_now()
        if how == "missing":
            path.unlink()
        else:
            data = path.read_bytes()
            path.write_bytes(data[:-4096] if how == "cut" else data[:-1] + b"?")
        await log.append(b"k01", b"meanwhile")
        await victim.start()
        await mended(victim)
        assert replica_of(victim).gid == gid, "in the same generation"
        assert any("replica waits for a damaged file" in line for line in caplog.messages)
        await cluster.settled()

    caplog.set_level(logging.WARNING)
    run(tmp_path, test)


def test_S12_the_first_read_finds_damage_that_the_start_did_not_look_for(tmp_path: Path) -> None:
    """A start trusts a file that was read back before, and the first read does not hash it."""

    async def test(
        cluster: LiveCluster, client: lognode.AsyncClient, log: lognode.AsyncLog
    ) -> None:
        victim = next(n for n in cluster.nodes if not replica_of(n).leads)
        (name,) = files_of(victim)
        path = victim.host.store.path(name)
        await victim.node._scrub.look(time.monotonic() - 3600)
        assert name in victim.host.sound
        await victim.stop()
        spoil_file(path)
        await victim.start()
        await cluster.settled()
        assert not victim.host.aside
        assert not victim.node._repair.in_doubt
        number = victim.node.identity.node_id
        found = [entry.value async for entry in log.scan(b"k01", node=number)]
        assert found == [b"%d" % n for n in range(1, COUNT, 30)]
        await mended(victim)

    run(tmp_path, test)


def test_S12_scrubbing_finds_what_nobody_reads(tmp_path: Path) -> None:
    async def test(
        cluster: LiveCluster, client: lognode.AsyncClient, log: lognode.AsyncLog
    ) -> None:
        victim = next(n for n in cluster.nodes if not replica_of(n).leads)
        scrub, (name,) = victim.node._scrub, files_of(victim)
        await scrub.look(time.monotonic() - 3600)
        assert name in victim.host.sound, "what was just made is read back"
        spoil(victim, found_by_hash_only=True)
        assert await log.count(b"k01", node=victim.node.identity.node_id) == COUNT // 30
        await scrub.look(time.monotonic() - 3600)
        assert not victim.node._repair.in_doubt, "not so soon again"
        await scrub.look(time.monotonic() + 1)
        await mended(victim)
        assert name not in victim.host.sound, "not since it came from elsewhere"

    run(tmp_path, test)


def test_S12_x2_two_members_with_the_same_damage_mend_from_the_third(tmp_path: Path) -> None:
    """A giver whose own file is damaged is found out by who gets it, and mends it too."""

    async def test(
        cluster: LiveCluster, client: lognode.AsyncClient, log: lognode.AsyncLog
    ) -> None:
        one, two, _ = cluster.nodes
        spoil(one)
        spoil(two)
        (name,) = files_of(one)
        one.node._repair.doubt(replica_of(one).gid, name, CorruptData("told so"))
        await mended(one)
        number = two.node.identity.node_id
        assert await log.count(b"k01", node=number) == COUNT // 30
        await mended(two)

    run(tmp_path, test)


def test_S12_a_doubt_without_a_file_looks_at_all_of_them(tmp_path: Path) -> None:
    async def test(
        cluster: LiveCluster, client: lognode.AsyncClient, log: lognode.AsyncLog
    ) -> None:
        victim = cluster.nodes[1]
        spoil(victim)
        victim.node._repair.doubt(replica_of(victim).gid, None, CorruptData("something is wrong"))
        await mended(victim)

    run(tmp_path, test)
