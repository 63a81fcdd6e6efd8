"""What a node does for its duties: what it keeps for them, and what may happen meanwhile."""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from storage_node import StorageNode, descriptor

from lognode.client.protocol.errors import CorruptData, Unavailable
from lognode.node.directory import meta_keys
from lognode.node.directory.disk_room import DiskRoom
from lognode.node.lifecycle import duty_runner
from lognode.node.lifecycle.duty_runner import DutyRunner
from lognode.node.rules.ending import damage_all
from lognode.partitions.duties import LITTLE_BYTES, TAIL_BYTES
from lognode.partitions.model import Descriptor, Lineage, NodeRecord, Operation, Output, Span
from lognode.raft.types import GroupId
from lognode.statemachine.range_state import Base
from lognode.statemachine.segment_writer import SegmentInfo

G1 = GroupId(1, 1)


def run(root: Path, test: Callable[[StorageNode], Awaitable[None]]) -> None:
    async def main() -> None:
        node = StorageNode(root)
        await node.start()
        try:
            await test(node)
            assert node.failure is None
        finally:
            node.stop()

    asyncio.run(main())


class Metadata:
    """Of one range and another node."""

    def __init__(self, *ranges: Descriptor) -> None:
        self.ranges = {range_.range_id: range_ for range_ in ranges}
        self.operations: dict[int, Any] = {}
        self.nodes = {n: NodeRecord(n, "", "", "", n, 1, "ACTIVE") for n in (1, 2)}

    def is_done(self, range_id: int, generation: int) -> bool:
        return False


def test_files_that_came_for_a_generation_that_never_begins_here_may_go(tmp_path: Path) -> None:
    """What a fetch that failed had pinned stayed on the disk until the next start."""
    parent = Lineage(1, 1, 9, 1, 5, 0, b"hash")
    next_ = replace(descriptor(1, (1, 2, 3), generation=2), lineage=(parent,))

    async def test(node: StorageNode) -> None:
        class Fetcher:
            asked = 0

            async def fetch(self, peer: int, gid: GroupId, *, pin: object, from_tier: bool) -> Base:
                node.host.pinned.pin(pin, ["one", "two"])
                self.asked += 1
                await asyncio.sleep(0)
                raise Unavailable("the peer has gone")

        fetcher: Any = Fetcher()
        view: Any = SimpleNamespace(metadata=Metadata(next_), leader=lambda *_: None)
        duties = DutyRunner(
            node_id=1, host=node.host, view=view, flusher=node.flusher, fetcher=fetcher,
            sync=node.files, report=lambda _: asyncio.sleep(0), room=DiskRoom(1, 0),
            on_broken=node._fail,
        )  # fmt: skip
        running = asyncio.ensure_future(duties.run())
        while fetcher.asked < 2:
            duties.wake()
            await asyncio.sleep(0.01)
        assert list(node.host.pinned.content_ids()) == ["one", "two"], "kept for the next try"
        view.metadata = Metadata()
        async with asyncio.timeout(10):
            while node.host.pinned:
                duties.wake()
                await asyncio.sleep(0.01)
        running.cancel()

    run(tmp_path, test)


def test_L1_a_new_member_waits_for_the_seal_and_not_for_its_next_look(tmp_path: Path) -> None:
    """Its peers flush what the seal left while it asks: half a second went by until it asked again,
    in which the range took no appends."""

    async def test(node: StorageNode) -> None:
        class Fetcher:
            asked = 0

            async def fetch(self, peer: int, gid: GroupId, *, pin: object, from_tier: bool) -> Base:
                self.asked += 1
                assert not from_tier, "appends wait for this fetch"
                return Base(9, 1, tables={"sealed": [5, 9, 1]} if self.asked > 3 else {})

        view: Any = SimpleNamespace(metadata=Metadata(), leader=lambda *_: None)
        move = Operation(5, "move", ((1, 1),), (Output(1, 2, Span(b"", None), (1,)),), "SEALING")
        view.metadata.operations[5] = move
        fetcher: Any = Fetcher()
        duties = DutyRunner(
            node_id=1, host=node.host, view=view, flusher=node.flusher, fetcher=fetcher,
            sync=node.files, report=lambda _: asyncio.sleep(0), room=DiskRoom(1, 0),
            on_broken=node._fail,
        )  # fmt: skip
        deque(duties._look(), maxlen=0)
        (task,) = duties._tasks.values()  # Prepare
        async with asyncio.timeout(10):
            await task
        row = node.meta.get(meta_keys.prepared_key(5, 1))
        assert row is not None, "one duty that nobody asked for again"
        assert row["base"] == Base(9, 1, tables={"sealed": [5, 9, 1]}).to_wire()
        assert fetcher.asked == 4

    run(tmp_path, test)


def test_no_files_are_merged_while_others_copy_them(tmp_path: Path) -> None:
    """The merged one came with the seal, while appends waited, however large it was."""

    async def test(node: StorageNode) -> None:
        replica = await node.host.create_range(descriptor(1, (1, 2, 3)), Base(), campaign=False)
        assert replica is not None
        view: Any = SimpleNamespace(metadata=Metadata(), leader=lambda *_: None)
        unused: Any = None
        duties = DutyRunner(
            node_id=1, host=node.host, view=view, flusher=node.flusher, fetcher=unused,
            sync=node.files, report=lambda _: asyncio.sleep(0), room=DiskRoom(1, 0),
            on_broken=node._fail,
        )  # fmt: skip
        deque(duties._look(), maxlen=0)
        assert replica.merge_not_before == 0.0
        view.metadata.operations[5] = Operation(5, "move", ((1, 1),), (), "PLANNED")
        deque(duties._look(), maxlen=0)
        assert replica.merge_not_before > time.monotonic() + 1.0

    run(tmp_path, test)


def test_x2_a_replica_that_is_damaged_while_its_base_comes_does_not_go_on_from_it(
    tmp_path: Path,
) -> None:
    """A KeyError that nobody saw was all that stood between."""

    async def test(node: StorageNode) -> None:
        replica = await node.host.create_range(descriptor(1, (1, 2, 3)), Base(), campaign=False)
        assert replica is not None
        node.host.damage(replica, CorruptData("a checksum"))
        with pytest.raises(Unavailable):
            await node.host.reinstall_range(replica, Base(8, 1))
        assert G1 not in node.host.groups
        assert node.host.damaged == {G1: "a checksum"}

    run(tmp_path, test)


def test_S12_x2_damage_is_told_to_other_nodes_once_meta_has_it(tmp_path: Path) -> None:
    """A crash before the transaction brings the replica back, which others would have given up."""

    async def test(node: StorageNode) -> None:
        replica = await node.host.create_range(descriptor(1, (1, 2, 3)), Base(), campaign=False)
        assert replica is not None
        node.host.damage(replica, CorruptData("a checksum"))
        assert node.host.damaged == {G1: "a checksum"}, "this node knows it at once"
        assert node.host.stored_damage == {}
        while not node.host.stored_damage:
            assert node.host.meta.get(meta_keys.replica_key(G1))["damaged"] in (None, "a checksum")
            await asyncio.sleep(0.001)
        assert node.host.meta.get(meta_keys.replica_key(G1))["damaged"] == "a checksum"
        assert node.host.stored_damage == {G1: "a checksum"}

    run(tmp_path, test)


def test_x3_a_replica_that_is_retired_while_its_damage_is_stored_stays_retired(
    tmp_path: Path,
) -> None:
    async def test(node: StorageNode) -> None:
        replica = await node.host.create_range(descriptor(1, (1, 2, 3)), Base(), campaign=False)
        assert replica is not None
        steps = damage_all(node.host.rows_of([G1, GroupId(7, 1)]), "a checksum")
        given_up = asyncio.ensure_future(node.host.carry_out(steps))
        await asyncio.sleep(0)
        assert replica.stopped
        await node.host.retire([G1])
        await given_up
        assert node.host.damaged == {}
        assert node.host.meta.get(meta_keys.replica_key(G1)) is None

    run(tmp_path, test)


def test_x3_a_replica_that_is_retired_while_its_base_is_stored_stays_retired(
    tmp_path: Path,
) -> None:
    """The reset of its log was written behind the record that it is retired: it came back."""

    async def test(node: StorageNode) -> None:
        replica = await node.host.create_range(descriptor(1, (1, 2, 3)), Base(), campaign=False)
        assert replica is not None
        again = asyncio.ensure_future(node.host.reinstall_range(replica, Base(8, 1)))
        await asyncio.sleep(0)
        await node.host.retire([G1])
        with pytest.raises(Unavailable):
            await again
        assert G1 not in node.host.groups

    run(tmp_path, test)

    async def later(node: StorageNode) -> None:
        assert G1 not in node.wal.groups
        assert not node.host.damaged

    run(tmp_path, later)


def test_x3_a_replica_that_is_retired_while_its_log_is_synced_stays_retired(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The replica took part again, with a log that was freed."""

    async def test(node: StorageNode) -> None:
        replica = await node.host.create_range(descriptor(1, (1, 2, 3)), Base(), campaign=False)
        assert replica is not None
        durable = node.rounds.durable

        async def retired_meanwhile() -> None:
            monkeypatch.setattr(node.rounds, "durable", durable)
            await node.host.retire([G1])

        monkeypatch.setattr(node.rounds, "durable", retired_meanwhile)
        with pytest.raises(Unavailable):
            await node.host.reinstall_range(replica, Base(8, 1))
        assert G1 not in node.host.groups
        assert node.host.serving(1) is None

    run(tmp_path, test)


def test_L2_a_base_that_is_not_later_does_not_end_the_replica(tmp_path: Path) -> None:
    """The replica may have caught up from another leader while the base was decoded."""

    async def test(node: StorageNode) -> None:
        replica = await node.host.create_range(descriptor(1, (1, 2, 3)), Base(), campaign=False)
        assert replica is not None
        with pytest.raises(Unavailable):
            await node.host.reinstall_range(replica, Base(1, 0))
        assert node.host.replica(G1) is replica
        assert not replica.stopped

    run(tmp_path, test)


def test_data_prepared_for_an_ended_operation_is_deleted(tmp_path: Path) -> None:
    """On a node that had nothing to retire it stayed, row and files, for good."""

    async def test(node: StorageNode) -> None:
        path, made = node.store.path("one"), node.directory.tmp / "made"
        made.write_bytes(b"segment")
        node.store.add(made, "one")
        base = Base(9, 1, [SegmentInfo("one", 7, 1, 1, 2, b"a", b"a", 1, 1)])
        row = {"range": 1, "generation": 1, "base": base.to_wire()}
        node.meta.commit({meta_keys.prepared_key(5, 1): row})
        view: Any = SimpleNamespace(metadata=Metadata(), leader=lambda *_: None)
        view.metadata.operations[5] = Operation(5, "expand", ((1, 1),), (), "DECIDED")
        unused: Any = None
        duties = DutyRunner(
            node_id=1, host=node.host, view=view, flusher=node.flusher, fetcher=unused,
            sync=node.files, report=lambda _: asyncio.sleep(0), room=DiskRoom(1, 0),
            on_broken=node._fail,
        )  # fmt: skip
        running = asyncio.ensure_future(duties.run())
        await asyncio.sleep(0.05)
        await node.host.collect_garbage()
        assert path.exists()
        del view.metadata.operations[5]
        async with asyncio.timeout(10):
            while path.exists():
                duties.wake()
                await asyncio.sleep(0.01)
        assert node.meta.get(meta_keys.prepared_key(5, 1)) is None
        running.cancel()

    run(tmp_path, test)


class Flushes:
    """A builder, and what came to memory while each file was built."""

    def __init__(self, *left: int) -> None:
        self.state = SimpleNamespace(memtable_bytes=1 << 30)
        self.left = list(left)
        self.hurried: list[bool] = []

    async def flush(self, replica: Any, *, hurried: bool = False) -> None:
        self.hurried.append(hurried)
        self.state.memtable_bytes = self.left.pop(0) if len(self.left) > 1 else self.left[0]
        await asyncio.sleep(0.001)


@pytest.mark.parametrize(
    ("left", "seconds", "hurried"),
    [
        ((LITTLE_BYTES,), 10.0, [False]),
        ((9 * TAIL_BYTES, 3 * TAIL_BYTES, LITTLE_BYTES), 10.0, [False, True, True]),
        ((9 * TAIL_BYTES,), 0.0, [False]),
        ((TAIL_BYTES, TAIL_BYTES // 3, LITTLE_BYTES + 1, 0), 10.0, [False, True, True, True]),
        ((TAIL_BYTES, TAIL_BYTES // 2, 0), 10.0, [False, True]),
    ],
    ids=["once", "less each time", "never", "little by little", "not much less"],
)
def test_L1_files_are_built_ahead_of_the_seal_until_little_is_left(
    left: tuple[int, ...], seconds: float, hurried: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One was built and the range sealed with what had come meanwhile, 150 MB in one case."""
    monkeypatch.setattr(duty_runner, "_FLUSHES_S", seconds)
    flushes = Flushes(*left)
    duties = DutyRunner.__new__(DutyRunner)
    duties._flusher = flushes  # type: ignore[assignment]
    asyncio.run(duties._flush_ahead(flushes))  # type: ignore[arg-type]
    assert flushes.hurried == hurried
