"""Sealed files of a base come from the tier, and from members when the tier does not give them."""

import asyncio
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from base_wires import G1, PIECE, Nodes, Wire, batch, run
from tier_model import MemoryObjects

from lognode.client.protocol.errors import CorruptData, Unavailable
from lognode.client.protocol.peers import FILE
from lognode.node.directory.data_directory import PARTIAL
from lognode.node.lifecycle import base_transfer
from lognode.node.metrics import Metrics
from lognode.node.runtime.bounded_waits import BoundedWaits
from lognode.node.runtime.workers import Workers
from lognode.node.tier import arrivals, local_file
from lognode.node.tier.arrivals import THREADS, Arrivals
from lognode.node.tier.local_file import part_size, parts_of
from lognode.node.tier.manifest import Held, LogFacts, Manifest
from lognode.node.tier.names import Chain, StoredFile
from lognode.node.tier.tier_progress import TierProgress
from lognode.node.tier.tier_store import TierStore
from lognode.raft.types import GroupId
from lognode.statemachine.segment_format import SegmentInfo

OLD = GroupId(9, 1)
"""A parent of the range."""


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base_transfer, "_RETRY_FIRST_S", 0.001)
    monkeypatch.setattr(local_file, "PART_BYTES", 3 * PIECE)
    monkeypatch.setattr(arrivals, "_PIECE_BYTES", PIECE)


class Tier:
    """A tier in memory, which the taker uses. `closes`: called before each request."""

    def __init__(self, nodes: Nodes) -> None:
        self.nodes = nodes
        self.objects = MemoryObjects()
        self.store = TierStore(self.objects)
        self.metrics = Metrics()
        self.ranges: dict[int, Any] = {}
        self.workers = Workers("fetch", THREADS)
        self.arrivals = Arrivals(
            self.store, metadata=lambda: SimpleNamespace(ranges=self.ranges),  # type: ignore[arg-type,return-value]
            progress=TierProgress("memory", self.metrics), metrics=self.metrics,
            workers=self.workers,
        )  # fmt: skip

        self.joins = 0

        async def join(*_: Any) -> None:
            self.joins += 1

        uses: Any = SimpleNamespace(source=self.arrivals.source, join=join)
        nodes.taker.host.kept.use(uses)

    def publish(self, *infos: SegmentInfo, gid: GroupId = G1) -> None:
        """Put the giver's files into the tier, and a head that names them."""
        held = {}
        for info in infos:
            file = StoredFile(Chain(*gid), info.content_id, 1)
            content = self.nodes.giver.store.path(info.content_id).read_bytes()
            for at in range(parts_of(info.size)):
                begin = at * local_file.PART_BYTES
                self.objects.put(file.part(at), content[begin:][: part_size(info.size, at)])
            held[info.content_id] = Held(info.size, file.path)
        head = Manifest(Chain(*gid), 1, LogFacts(1, "l", {}), (b"", None), held)
        assert self.store.publish(head)

    def parts(self) -> list[str]:
        return [each.name for each in self.objects.objects("files")]

    def got(self) -> tuple[float, float]:
        """The bytes that the taker has got from the tier, and those that the giver has sent."""
        return (
            self.metrics.tier_received_bytes._value.get(),
            self.nodes.sent.transfer_sent_bytes._value.get(),
        )


async def files(nodes: Nodes) -> list[SegmentInfo]:
    """Two files of the giver: one of eight pieces, and a young one."""
    replica = nodes.giver.host.replica(G1)
    assert replica is not None
    await replica.append(batch(100))
    await nodes.giver.flusher.flush(replica)
    return list(replica.state.durable_base.manifest)


def test_a_member_sends_only_what_the_tier_lacks(tmp_path: Path) -> None:
    async def test(nodes: Nodes) -> None:
        old, young = await files(nodes)
        tier = Tier(nodes)
        tier.publish(old)
        wire = Wire(nodes.server)
        assert nodes.holds_all(await nodes.fetcher(wire).fetch(1, G1, pin="copy"))
        assert tier.got() == (old.size, young.size)
        row = tier.arrivals.row()
        assert row == {"received_files": 1, "received_bytes": old.size}
        assert not list(nodes.taker.directory.tmp.iterdir())

    run(tmp_path, test, pieces=8)


def test_a_young_generation_has_the_files_of_the_one_before(tmp_path: Path) -> None:
    async def test(nodes: Nodes) -> None:
        old, young = await files(nodes)
        tier = Tier(nodes)
        tier.publish(old, gid=OLD)
        lineage = (SimpleNamespace(range_id=9, generation=1),)
        tier.ranges[1] = SimpleNamespace(generation=1, lineage=lineage)
        assert nodes.holds_all(await nodes.fetcher(Wire(nodes.server)).fetch(1, G1, pin="copy"))
        assert tier.got() == (old.size, young.size)

    run(tmp_path, test, pieces=8)


def test_appends_that_wait_for_a_fetch_wait_for_no_tier(tmp_path: Path) -> None:
    async def test(nodes: Nodes) -> None:
        infos = await files(nodes)
        tier = Tier(nodes)
        tier.publish(*infos)
        fetcher = nodes.fetcher(Wire(nodes.server))
        assert nodes.holds_all(await fetcher.fetch(1, G1, pin="seal", from_tier=False))
        assert tier.got() == (0, sum(info.size for info in infos))
        assert not tier.joins, "a claim waits for half a minute where the store hangs"
        await fetcher.fetch(1, G1, pin="copy")
        assert tier.joins == 1

    run(tmp_path, test, pieces=8)


def test_a_tier_that_is_unmounted_counts_as_away(tmp_path: Path) -> None:
    """A repair must tell them apart: the tier may have the only sound copy."""

    async def test(nodes: Nodes) -> None:
        old, _ = await files(nodes)
        tier = Tier(nodes)
        fetcher = nodes.fetcher(Wire(nodes.server))
        with pytest.raises(Unavailable, match="check its mount"):
            await fetcher.fetch_from_tier(G1, old)
        tier.arrivals._rests_until = 0.0
        tier.store.begin("c")
        assert not await fetcher.fetch_from_tier(G1, old)

    run(tmp_path, test, pieces=8)


def test_x28_a_whole_file_of_a_killed_process_is_synced_before_its_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process died after the last write and before its sync; a power loss follows."""
    synced, plain = set(), os.fsync

    def fsync(fd: int) -> None:
        synced.add(os.fstat(fd).st_ino)
        plain(fd)

    async def test(nodes: Nodes) -> None:
        infos = await files(nodes)
        Tier(nodes).publish(infos[0])
        inodes = set()
        for info in infos:
            part = nodes.taker.directory.tmp / f"{PARTIAL}{info.content_id}"
            part.write_bytes(nodes.giver.store.path(info.content_id).read_bytes())
            inodes.add(part.stat().st_ino)
        monkeypatch.setattr(os, "fsync", fsync)
        assert nodes.holds_all(await nodes.fetcher(Wire(nodes.server)).fetch(1, G1, pin="copy"))
        assert inodes <= synced

    run(tmp_path, test, pieces=8)


def test_a_member_goes_on_where_a_file_vanished_from_the_tier(tmp_path: Path) -> None:
    async def test(nodes: Nodes) -> None:
        old, young = await files(nodes)
        tier = Tier(nodes)
        tier.publish(old)
        tier.objects.delete(tier.parts()[1])
        wire = Wire(nodes.server)
        assert nodes.holds_all(await nodes.fetcher(wire).fetch(1, G1, pin="copy"))
        assert wire.offsets()[0] == local_file.PART_BYTES
        assert tier.got() == (0, old.size - local_file.PART_BYTES + young.size)

    run(tmp_path, test, pieces=8)


@pytest.mark.parametrize("cut", [False, True], ids=["flipped", "cut"])
def test_S12_a_damaged_tier_gives_nothing_and_gets_a_rest(tmp_path: Path, cut: bool) -> None:
    async def test(nodes: Nodes) -> None:
        infos = await files(nodes)
        tier = Tier(nodes)
        tier.publish(*infos)
        for name in tier.parts():
            content = tier.objects.found[name]
            bad = content[:-1] if cut else content[:9] + bytes([content[9] ^ 1]) + content[10:]
            tier.objects.put(name, bad, replace=True)
        asked = 0

        def count() -> None:
            nonlocal asked
            asked += 1

        tier.objects.before = count
        assert nodes.holds_all(await nodes.fetcher(Wire(nodes.server)).fetch(1, G1, pin="copy"))
        assert tier.got()[0] == 0
        before = asked
        with pytest.raises(Unavailable, match="failed lately"):
            await tier.arrivals.source(G1, {})
        assert asked == before
        (old, _) = infos
        tier.arrivals._rests_until = 0.0
        with pytest.raises(CorruptData):
            await nodes.fetcher(Wire(nodes.server)).fetch_from_tier(G1, old)

    run(tmp_path, test, pieces=8)


def test_S12_a_torn_part_from_before_is_fetched_again_from_the_tier(tmp_path: Path) -> None:
    async def test(nodes: Nodes) -> None:
        old, young = await files(nodes)
        tier = Tier(nodes)
        tier.publish(old)
        part = nodes.taker.directory.tmp / f"{PARTIAL}{old.content_id}"
        part.write_bytes(bytes(2 * PIECE))
        assert nodes.holds_all(await nodes.fetcher(Wire(nodes.server)).fetch(1, G1, pin="copy"))
        nodes.taker.store.verify(old.content_id)
        assert tier.got() == (old.size, young.size)

    run(tmp_path, test, pieces=8)


@pytest.fixture
def hanging() -> Iterator[Callable[[MemoryObjects, int], None]]:
    """Makes requests of a store hang from some request on; they end with the test."""
    ends = threading.Event()

    def hang(objects: MemoryObjects, after: int) -> None:
        left = after

        def wait() -> None:
            nonlocal left
            left -= 1
            if left < 0:
                ends.wait(60)

        objects.before = wait

    yield hang
    ends.set()


@pytest.mark.parametrize("after", [0, 4])
def test_a_store_that_hangs_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    hanging: Callable[[MemoryObjects, int], None], after: int,
) -> None:  # fmt: skip
    """Also after its rest, since no thread comes back before the request ends."""
    monkeypatch.setattr(arrivals, "_PATIENCE_S", 0.1)

    async def test(nodes: Nodes) -> None:
        infos = await files(nodes)
        tier = Tier(nodes)
        tier.publish(*infos)
        hanging(tier.objects, after)
        base = await nodes.fetcher(Wire(nodes.server)).fetch(1, G1, pin="copy")
        assert nodes.holds_all(base)
        assert tier.got()[1] > 0
        tier.arrivals._rests_until = 0.0
        assert not tier.arrivals.gives_files
        with pytest.raises(Unavailable, match="failed lately"):
            await tier.arrivals.source(G1, {})

    run(tmp_path, test, pieces=8)


def test_all_fetches_of_a_node_together_have_few_pieces_in_memory(tmp_path: Path) -> None:
    async def test(nodes: Nodes) -> None:
        (old, _) = await files(nodes)
        tier = Tier(nodes)
        tier.publish(old)
        now, most, lock = 0, 0, threading.Lock()
        plain = tier.objects.get_range

        def get_range(name: str, begin: int, end: int) -> bytes | None:
            nonlocal now, most
            with lock:
                now += 1
                most = max(most, now)
            found = plain(name, begin, end)
            with lock:
                now -= 1
            return found

        tier.objects.get_range = get_range  # type: ignore[method-assign]
        bucket = nodes.fetcher(Wire(nodes.server))._bucket

        async def one() -> bytes:
            source = await tier.arrivals.source(G1, {old.content_id: old.size})
            found = b""
            async for piece in source.pieces(old.content_id, 0, bucket):
                found += piece
                await asyncio.sleep(0.001)
            return found

        content = nodes.giver.store.path(old.content_id).read_bytes()
        assert await asyncio.gather(*(one() for _ in range(8))) == [content] * 8
        assert most <= arrivals._AT_ONCE
        assert not tier.arrivals._places.locked()

    run(tmp_path, test, pieces=8)


def test_x2_18_the_lease_of_the_member_lasts_while_the_tier_gives_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(base_transfer, "_RENEW_S", 0.0)

    async def test(nodes: Nodes) -> None:
        infos = await files(nodes)
        tier = Tier(nodes)
        tier.publish(*infos)
        wire = Wire(nodes.server)
        assert nodes.holds_all(await nodes.fetcher(wire).fetch(1, G1, pin="copy"))
        assert wire.offsets()
        assert set(wire.asked[1:]) == {(FILE, 0)}
        assert tier.got()[1] == len(wire.offsets()), "a byte at a time"

    run(tmp_path, test, pieces=8)


def test_a_member_that_is_paused_does_not_stop_what_comes_from_the_tier(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lease waited 15 s for each answer, with all pieces that the node may have in memory."""
    monkeypatch.setattr(base_transfer, "_RENEW_S", 0.0)
    monkeypatch.setattr(base_transfer, "_RENEW_WAIT_S", 0.01)

    class Paused(Wire):
        async def request(self, op: Any, body: dict[str, Any], *, deadline: float) -> Any:
            if op is FILE:
                await asyncio.Event().wait()
            return await super().request(op, body, deadline=deadline)

    async def test(nodes: Nodes) -> None:
        tier = Tier(nodes)
        tier.publish(*await files(nodes))
        async with asyncio.timeout(20):
            base = await nodes.fetcher(Paused(nodes.server)).fetch(1, G1, pin="copy")
        assert nodes.holds_all(base)
        assert tier.got()[1] == 0

    run(tmp_path, test, pieces=8)


def test_calls_that_hang_are_counted_and_calls_that_never_begin_are_not() -> None:
    ends = threading.Event()

    async def main() -> None:
        waits = BoundedWaits(Workers("one", 1), 0.05)
        assert await waits.run(lambda: 5) == 5
        for _ in range(3):
            with pytest.raises(TimeoutError):
                await waits.run(ends.wait)
            assert waits.is_hung
        ends.set()
        while waits.is_hung:  # noqa: ASYNC110  a thread has no event of the loop
            await asyncio.sleep(0.001)
        assert await waits.run(lambda: 6) == 6
        assert not waits._calls

    asyncio.run(main())
