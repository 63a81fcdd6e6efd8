"""Flushing when something fails: the builder, the rename, the meta transaction, the replica."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from storage_failpoints import follower_command, peer_base
from storage_node import META_BYTES, StorageNode, descriptor, numbered_batch

from lognode.client.errors import Unavailable
from lognode.client.invariants import DiskFailure
from lognode.node.maintenance import Maintenance
from lognode.node.metrics import Metrics
from lognode.node.range_replica import RangeReplica
from lognode.raft.types import GroupId
from lognode.statemachine.builder import Builder
from lognode.statemachine.range_state import Base
from lognode.statemachine.segment_writer import SegmentInfo, Source

G1 = GroupId(1, 1)


def run(
    root: Path,
    test: Callable[[StorageNode, RangeReplica], Awaitable[None]],
    builder: Builder | None = None,
) -> None:
    """On a node with one range that it leads alone, and that holds four records."""

    async def main() -> None:
        node = StorageNode(root, builder=builder)
        await node.start()
        replica = await node.host.create_range(descriptor(1), Base(), campaign=True)
        assert replica is not None
        await node.leading(replica)
        await replica.append(numbered_batch(1, [b"a", b"b", b"a", b"c"]))
        try:
            await test(node, replica)
        finally:
            node.stop()

    asyncio.run(main())


def seqs(replica: RangeReplica, key: bytes) -> list[int]:
    return replica.state.scan(key, limit=100, bytes_max=1 << 20).seqs


def left_in_tmp(node: StorageNode) -> list[str]:
    return [path.name for path in node.directory.tmp.iterdir()]


class FailingBuilder(Builder):
    """The real child process; `fail` says what happens to it when it is asked next."""

    fail: Callable[[int], None] | None = None

    def build(self, path: Path, first_seq: int, sources: Sequence[Source]) -> SegmentInfo:
        process = self._running()
        if self.fail is not None:
            self.fail(process.pid)
        return super().build(path, first_seq, sources)


def test_S2_x8_a_builder_that_is_killed_loses_nothing_and_is_started_again(tmp_path: Path) -> None:
    builder = FailingBuilder()

    async def test(node: StorageNode, replica: RangeReplica) -> None:
        builder.fail = lambda pid: os.kill(pid, 9)
        with pytest.raises(Unavailable, match="builder process ended"):
            await node.flusher.flush(replica)
        assert seqs(replica, b"a") == [1, 3]
        assert replica.state.durable_base.applied_index == 1
        assert left_in_tmp(node) == []
        await replica.append(numbered_batch(5, [b"a"]))
        builder.fail = None
        await node.flusher.flush(replica)
        assert replica.state.durable_base.applied_index == replica.applied_index
        assert len(replica.state.memtable) == 0
        assert seqs(replica, b"a") == [1, 3, 5]

    run(tmp_path, test, builder)


SERVED = """
import sys
from pathlib import Path
from boundaries import Boundaries
Boundaries(Path(sys.argv[1]), kill_at=("", int(sys.argv[2]))).install()
from lognode.statemachine.builder import serve
serve(sys.stdin.buffer, sys.stdout.buffer)
"""


class DyingBuilder(Builder):
    """A real builder process that kills itself at its n-th step on the disk."""

    step = 0

    def __init__(self, root: Path) -> None:
        super().__init__()
        self._root = root

    def _running(self) -> "subprocess.Popen[bytes]":
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-c", SERVED, self._root, str(self.step)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            )  # fmt: skip
        return self._process


def test_S2_x8_a_builder_killed_at_each_of_its_steps_leaves_no_file_and_no_gap(
    tmp_path: Path,
) -> None:
    builder = DyingBuilder(tmp_path)
    steps = []

    async def test(node: StorageNode, replica: RangeReplica) -> None:
        while True:
            builder.step += 1
            if await node.flusher.try_flush(replica):
                break
            steps.append(builder.step)
            assert left_in_tmp(node) == []
            assert list(node.directory.files.iterdir()) == []
            assert seqs(replica, b"a") == [1, 3]
        assert replica.state.durable_base.applied_index == replica.applied_index
        assert seqs(replica, b"a") == [1, 3]

    run(tmp_path, test, builder)
    print(f"{len(steps)} failpoints in the builder process")
    assert len(steps) >= 6


def test_S2_a_builder_that_cannot_write_says_which_file_and_why(tmp_path: Path) -> None:
    async def test(node: StorageNode, replica: RangeReplica) -> None:
        node.directory.tmp.rmdir()
        with pytest.raises(Unavailable, match=r"tmp/build-1: .*No such file or directory"):
            await node.flusher.flush(replica)
        assert seqs(replica, b"a") == [1, 3]
        node.directory.tmp.mkdir()
        assert await node.flusher.try_flush(replica)
        assert seqs(replica, b"a") == [1, 3]

    run(tmp_path, test, Builder())


def test_hole_12_a_failed_meta_transaction_ends_the_node_and_nothing_is_half(
    tmp_path: Path,
) -> None:
    async def test(node: StorageNode, replica: RangeReplica) -> None:
        real = node.meta.commit

        def failing(puts: Mapping[str, Any], deletes: Sequence[str] = ()) -> None:
            real({"filler": bytes(2 * META_BYTES)})

        node.meta.commit = failing
        with pytest.raises(DiskFailure, match=r"writing .*meta.mdb failed: .*MAP_FULL"):
            await node.flusher.flush(replica)
        await asyncio.sleep(0)
        assert isinstance(node.failure, DiskFailure)
        assert seqs(replica, b"a") == [1, 3]
        assert replica.state.durable_base.applied_index == 1
        assert node.meta.get("filler") is None
        node.meta.commit = real
        await node.flusher.flush(replica)
        assert replica.state.durable_base.applied_index == replica.applied_index

    run(tmp_path, test)


def test_hole_12_a_failed_rename_ends_the_node(tmp_path: Path) -> None:
    async def test(node: StorageNode, replica: RangeReplica) -> None:
        node.directory.files.rmdir()
        with pytest.raises(DiskFailure, match=r"moving .*build-1 to .*\.seg failed: No such file"):
            await node.flusher.flush(replica)
        await asyncio.sleep(0)
        assert isinstance(node.failure, DiskFailure)
        assert seqs(replica, b"a") == [1, 3]
        node.directory.files.mkdir()

    run(tmp_path, test)


def test_S2_x1_a_flush_never_writes_an_older_base_over_one_just_installed(tmp_path: Path) -> None:
    """Found by reading: the log would begin behind what meta says is applied."""

    async def test(node: StorageNode, replica: RangeReplica) -> None:
        follower = await node.host.create_range(
            descriptor(2, members=(1, 2, 3)), Base(), campaign=False
        )
        assert follower is not None
        follower.state.apply(2, 1, follower_command(2))
        base = peer_base(node.store, node.directory.tmp / "peer", 5)
        flushing = asyncio.ensure_future(node.flusher.flush(follower))
        await asyncio.sleep(0)
        installed = await node.host.reinstall_range(follower, base)
        with pytest.raises(Unavailable):
            await flushing
        row = node.meta.get("replica/000000000002/00000001")
        assert row is not None
        assert Base.from_wire(row["base"]).applied_index == base.applied_index
        assert installed.raft_log.base_index == base.applied_index

    run(tmp_path, test)


def test_what_is_kept_of_flushes_goes_with_the_replica(tmp_path: Path) -> None:
    """A row per generation that was ever flushed here stayed for as long as the process."""

    async def test(node: StorageNode, replica: RangeReplica) -> None:
        class NoBuilder(Builder):
            def build(self, path: Path, first_seq: int, sources: Sequence[Source]) -> SegmentInfo:
                raise Unavailable("no room")

        maintenance = Maintenance(
            host=node.host, wal=node.wal, sync=node.sync, rounds=node.rounds,
            flusher=node.flusher, metrics=Metrics(),
        )  # fmt: skip
        before = [rows_kept(part) for part in (node.flusher, maintenance)]
        node.flusher._builder, sound = NoBuilder(), node.flusher._builder
        replica.memtable_since = -1e9
        running = asyncio.ensure_future(maintenance.run())
        async with asyncio.timeout(10):
            while not replica.flush_not_before:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        running.cancel()
        node.flusher._builder = sound
        await node.flusher.flush(replica)
        assert replica.cut_next is not None
        await node.host.retire([replica.gid])
        assert [rows_kept(part) for part in (node.flusher, maintenance)] == before

    run(tmp_path, test)


def rows_kept(part: object) -> int:
    return sum(len(value) for value in vars(part).values() if isinstance(value, dict))


def test_S2_a_segment_that_meta_is_about_to_name_is_not_garbage(tmp_path: Path) -> None:
    """The end of another replica collects garbage between the rename and the meta transaction."""

    async def test(node: StorageNode, replica: RangeReplica) -> None:
        loop = asyncio.get_running_loop()
        commit = node.meta.commit

        def collect_first(puts: Mapping[str, Any], deletes: Sequence[str] = ()) -> None:
            collecting = asyncio.run_coroutine_threadsafe(node.host.collect_garbage(), loop)
            collecting.result(10)
            commit(puts, deletes)

        node.meta.commit = collect_first
        await node.flusher.flush(replica)
        (info,) = replica.state.durable_base.manifest
        assert node.store.has(info.content_id)
        assert seqs(replica, b"a") == [1, 3]
        node.store.remove_except([])
        assert not node.store.has(info.content_id)

    run(tmp_path, test)
