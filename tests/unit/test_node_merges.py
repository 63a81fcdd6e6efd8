"""Merges on a node: the manifest is replaced, files go when nobody needs them, damage is found."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from storage_node import StorageNode, descriptor, numbered_batch

from lognode.client.protocol.errors import CorruptData, Unavailable
from lognode.node.replicas.range_replica import RangeReplica
from lognode.statemachine import commands
from lognode.statemachine.merge_process import Merger, Task
from lognode.statemachine.range_state import Base
from lognode.statemachine.segment_writer import SegmentInfo
from lognode.statemachine.turn_limits import Turns

KEYS = [b"a", b"b", b"a", b"c"]
Test = Callable[[StorageNode, RangeReplica], Awaitable[None]]


def run(root: Path, test: Test, merger: Merger | None = None, *, segments: int = 8) -> None:
    """A node that leads a range of some small segments."""

    async def main() -> None:
        node = StorageNode(root, merger=merger or Merger())
        await node.start()
        replica = await node.host.create_range(descriptor(1), Base(), campaign=True)
        assert replica is not None
        await node.leading(replica)
        await add_segments(node, replica, segments)
        try:
            await test(node, replica)
        finally:
            node.stop()

    asyncio.run(main())


async def add_segments(node: StorageNode, replica: RangeReplica, count: int) -> None:
    for _ in range(count):
        await replica.append(numbered_batch(replica.state.next_seq, KEYS))
        await node.flusher.flush(replica)


def ids(replica: RangeReplica) -> list[str]:
    return [info.content_id for info in replica.state.durable_base.manifest]


def files(node: StorageNode) -> set[str]:
    return {path.stem for path in node.directory.files.iterdir()}


def contents(replica: RangeReplica) -> list[list[object]]:
    state = replica.state
    return [
        list(state.scan(key, limit=1000, bytes_max=1 << 20).entries()) for key in (b"a", b"b", b"c")
    ]


class Gated(Merger):
    """A merge that waits until it is told to go on, or fails."""

    def __init__(self) -> None:
        super().__init__()
        self.begun = asyncio.Event()
        self.go = asyncio.Event()
        self.fails: Exception | None = None

    def merge(self, task: Task) -> SegmentInfo | None:
        loop = self.loop
        loop.call_soon_threadsafe(self.begun.set)
        asyncio.run_coroutine_threadsafe(self.go.wait(), loop).result(60)
        if self.fails is not None:
            raise self.fails
        return super().merge(task)

    loop: asyncio.AbstractEventLoop


def test_x13_a_merge_replaces_its_inputs_in_meta_and_on_disk_and_nothing_else(
    tmp_path: Path,
) -> None:
    async def test(node: StorageNode, replica: RangeReplica) -> None:
        await replica.append(numbered_batch(33, KEYS))  # in the memtable
        before, base = contents(replica), replica.state.durable_base
        assert await node.merges.try_merge(replica)
        assert not await node.merges.try_merge(replica)
        assert len(ids(replica)) == 1
        assert files(node) == set(ids(replica))
        assert contents(replica) == before
        after = replica.state.durable_base
        assert (after.applied_index, after.applied_term) == (base.applied_index, base.applied_term)
        assert after.tables == base.tables
        assert list(node.directory.tmp.iterdir()) == []
        # And after a restart.
        node.stop()
        again = StorageNode(tmp_path)
        await again.start()
        (found,) = again.host.ranges()
        await again.leading(found)
        assert contents(found) == before
        assert len(ids(found)) == 1
        node.__dict__.update(again.__dict__)

    run(tmp_path, test)


def test_the_first_read_of_a_new_segment_waits_for_no_file(tmp_path: Path) -> None:
    """Its pages are walked and it is opened before a manifest names it, built or merged."""

    def read(node: StorageNode, replica: RangeReplica) -> None:
        with node.store.on_hand(Turns()):  # raises NotPrepared
            assert replica.state.scan(b"a", limit=100, bytes_max=1 << 20).seqs

    async def test(node: StorageNode, replica: RangeReplica) -> None:
        read(node, replica)
        assert await node.merges.try_merge(replica)
        assert len(ids(replica)) == 1
        read(node, replica)

    run(tmp_path, test)


def test_a_flush_during_a_merge_keeps_its_segment(tmp_path: Path) -> None:
    merger = Gated()

    async def test(node: StorageNode, replica: RangeReplica) -> None:
        merger.loop = asyncio.get_running_loop()
        merging = asyncio.ensure_future(node.merges.try_merge(replica))
        await merger.begun.wait()
        await add_segments(node, replica, 2)
        before = contents(replica)
        merger.go.set()
        assert await merging
        assert len(ids(replica)) == 3
        assert contents(replica) == before
        row = node.meta.get("replica/000000000001/00000001")
        assert row is not None
        assert [info[0] for info in row["base"]["manifest"]] == ids(replica)

    run(tmp_path, test, merger)


def test_inputs_stay_while_somebody_fetches_them(tmp_path: Path) -> None:
    async def test(node: StorageNode, replica: RangeReplica) -> None:
        inputs = ids(replica)
        node.host.pinned.pin("lease", inputs[2:4])
        assert await node.merges.try_merge(replica)
        assert files(node) == {*inputs[2:4], *ids(replica)}
        node.host.pinned.unpin("lease")
        await node.host.collect_garbage()
        assert files(node) == set(ids(replica))

    run(tmp_path, test)


def test_a_merge_of_a_replica_that_ended_meanwhile_changes_nothing(tmp_path: Path) -> None:
    merger = Gated()

    async def test(node: StorageNode, replica: RangeReplica) -> None:
        merger.loop = asyncio.get_running_loop()
        inputs = ids(replica)
        merging = asyncio.ensure_future(node.merges.try_merge(replica))
        await merger.begun.wait()
        seal = commands.encode(commands.SEAL, 0, 7)
        replica.propose(seal, ())
        while not replica.is_sealed:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        merger.go.set()
        assert not await merging
        assert ids(replica) == inputs
        await node.host.collect_garbage()
        assert files(node) == set(inputs)
        replica.merge_not_before = 0.0
        assert not await node.merges.try_merge(replica)  # what a generation ended with stays

    run(tmp_path, test, merger)


def test_a_failed_merge_is_tried_again_after_longer_and_longer(tmp_path: Path) -> None:
    merger = Gated()
    merger.fails = Unavailable("no room")

    async def test(node: StorageNode, replica: RangeReplica) -> None:
        merger.loop = asyncio.get_running_loop()
        merger.go.set()
        inputs = ids(replica)
        for delay in (5, 10, 20, 40):
            now = time.monotonic()
            assert not await node.merges.try_merge(replica)
            assert replica.merge_not_before >= now + delay
        assert ids(replica) == inputs
        assert files(node) == set(inputs)
        merger.fails = None
        assert await node.merges.try_merge(replica)
        assert replica not in node.merges._failed

    run(tmp_path, test, merger)


def test_S12_an_input_that_a_merge_finds_damaged_is_the_damage_of_its_replica(
    tmp_path: Path,
) -> None:
    async def test(node: StorageNode, replica: RangeReplica) -> None:
        path = node.store.path(ids(replica)[3])
        data = path.read_bytes()
        path.write_bytes(data[:5000] + bytes([data[5000] ^ 1]) + data[5001:])
        inputs = ids(replica)
        assert not await node.merges.try_merge(replica)
        assert replica.stopped
        assert "is damaged" in node.host.damaged[replica.gid]
        assert ids(replica) == inputs
        assert not await node.merges.try_merge(replica)

    run(tmp_path, test)


def test_a_merging_process_ends_with_its_node(tmp_path: Path) -> None:
    """`stop` returns while a merge is going on (L4)."""

    async def test(node: StorageNode, replica: RangeReplica) -> None:
        merging = asyncio.ensure_future(node.merges.try_merge(replica))
        while node.merger._process is None:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        process = node.merger._process
        node.merger.stop()
        assert not await merging
        assert process.returncode is not None
        assert list(node.directory.tmp.iterdir()) == []
        assert len(ids(replica)) == 8

    run(tmp_path, test)


def test_merges_run_by_themselves(tmp_path: Path) -> None:
    async def test(node: StorageNode, replica: RangeReplica) -> None:
        running = asyncio.ensure_future(node.merges.run())
        async with asyncio.timeout(60):
            while len(ids(replica)) > 1:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        running.cancel()

    run(tmp_path, test)


def test_damage_is_never_told_of_a_replica_that_has_ended(tmp_path: Path) -> None:
    merger = Gated()
    merger.fails = CorruptData("segment x is damaged", segment="x")

    async def test(node: StorageNode, replica: RangeReplica) -> None:
        merger.loop = asyncio.get_running_loop()
        merging = asyncio.ensure_future(node.merges.try_merge(replica))
        await merger.begun.wait()
        await node.host.retire([replica.gid])
        merger.go.set()
        assert not await merging
        assert not node.host.damaged

    run(tmp_path, test, merger)


def test_x13_files_that_nobody_may_see_go_once_meta_says_so(tmp_path: Path) -> None:
    """By the removal state of the durable base: what was removed since is removed again by a
    restart, which needs what was there before."""

    async def test(node: StorageNode, replica: RangeReplica) -> None:
        before = ids(replica)
        assert not await node.merges.try_merge(replica)
        reply = await replica.propose_and_wait(commands.TRIM_SPANS, [[b"", None, 9]])
        assert reply["status"] == "ok"
        assert not await node.merges.try_merge(replica)
        assert ids(replica) == before
        await add_segments(node, replica, 1)
        seen = contents(replica)
        assert await node.merges.try_merge(replica)
        assert ids(replica)[:2] == before[2:4]
        assert len(ids(replica)) == 3
        assert files(node) == set(ids(replica))
        assert contents(replica) == seen

    run(tmp_path, test, segments=4)
