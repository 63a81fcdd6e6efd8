"""Flushing when something fails: the builder, the rename, the meta transaction, the replica."""

import asyncio
import os
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from storage_failpoints import follower_command, peer_base
from storage_node import META_BYTES, StorageNode, descriptor, numbered_batch

from lognode.client.protocol import limits
from lognode.client.protocol.errors import Overloaded, Unavailable
from lognode.client.protocol.invariants import DiskFailure
from lognode.client.protocol.levels import LEVEL_MAX
from lognode.client.protocol.records import encode_batch
from lognode.node.replicas.range_replica import RangeReplica
from lognode.node.rules import merging
from lognode.raft.types import GroupId
from lognode.statemachine import commands
from lognode.statemachine.builder import Builder
from lognode.statemachine.range_state import Base
from lognode.statemachine.segment_writer import SegmentInfo, Source, build

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

    def build(
        self, path: Path, first_seq: int, sources: Sequence[Source], *, gives_way: bool = True,
        value_gain: int = limits.value_gain,
    ) -> SegmentInfo:  # fmt: skip
        process = self._running()
        if self.fail is not None:
            self.fail(process.pid)
        return super().build(path, first_seq, sources, gives_way=gives_way, value_gain=value_gain)


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


@pytest.mark.slow
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


DEAF = "import time; time.sleep(600)"
MUTE = "import sys, time; sys.stdin.buffer.read(1 << 20); time.sleep(600)"


class SleepingBuilder(Builder):
    """Its first processes do not do what they are for; the next are real."""

    def __init__(self, *sleeping: str) -> None:
        super().__init__(patience_s=0.2)
        self._sleeping = list(sleeping)
        self.killed: list[subprocess.Popen[bytes]] = []

    def _running(self) -> "subprocess.Popen[bytes]":
        if self._process is None and self._sleeping:
            self._process = subprocess.Popen(
                [sys.executable, "-c", self._sleeping.pop(0)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            )  # fmt: skip
            self.killed.append(self._process)
        elif self._process is None:
            self._patience_s = 60.0  # on a busy machine a sound one takes its time
        return super()._running()


@pytest.mark.slow
@pytest.mark.parametrize("records", [1, 3_000], ids=["few", "more than a pipe holds"])
@pytest.mark.parametrize("sleeping", [DEAF, MUTE], ids=["deaf", "mute"])
def test_S2_L3_a_builder_that_hangs_is_killed_and_the_segment_built_again(
    tmp_path: Path, sleeping: str, records: int
) -> None:
    builder = SleepingBuilder(sleeping, sleeping)

    async def test(node: StorageNode, replica: RangeReplica) -> None:
        keys = [b"%04d" % at for at in range(records)]
        data = encode_batch(keys, [os.urandom(100) for _ in keys], producer=0, epoch=1, low=1,
                            numbers=1)  # fmt: skip
        await replica.append(data)
        for hung in (1, 2):
            with pytest.raises(Unavailable, match=r"made no progress for [\d.]+ s, and was killed"):
                await node.flusher.flush(replica)
            assert builder._hung == hung
            assert builder.killed[-1].poll() == -9
            assert left_in_tmp(node) == []
            assert seqs(replica, b"a") == [1, 3]
        assert await node.flusher.try_flush(replica)
        assert replica.state.durable_base.applied_index == replica.applied_index
        assert replica.state.manifest[-1].entries == records + 4
        assert seqs(replica, b"a") == [1, 3]
        assert builder._hung == 0

    run(tmp_path, test, builder)
    builder.stop()


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


def test_the_records_of_flushes_end_with_the_replica(tmp_path: Path) -> None:
    """A row per generation that was ever flushed here stayed for as long as the process."""

    async def test(node: StorageNode, replica: RangeReplica) -> None:
        class NoBuilder(Builder):
            def build(
                self,
                path: Path,
                first_seq: int,
                sources: Sequence[Source],
                *,
                gives_way: bool = True,
                value_gain: int = limits.value_gain,
            ) -> SegmentInfo:
                raise Unavailable("no room")

        before = [rows_kept(part) for part in (node.flusher, node.memtables)]
        node.flusher._builder, sound = NoBuilder(), node.flusher._builder
        replica.freeze()
        running = asyncio.ensure_future(node.memtables.build())
        async with asyncio.timeout(10):
            while replica.may_flush(time.monotonic()):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        running.cancel()
        node.flusher._builder = sound
        await node.flusher.flush(replica)
        assert replica._flushed_index is not None
        await node.host.retire([replica.gid])
        assert [rows_kept(part) for part in (node.flusher, node.memtables)] == before

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
        (gone,) = node.store.forget_except([])
        assert not node.store.has(info.content_id)
        node.store.remove(gone)
        assert not list(node.directory.files.iterdir())

    run(tmp_path, test)


class WaitingBuilder(Builder):
    """Builds in this process, and nothing before it may."""

    def __init__(self) -> None:
        super().__init__()
        self.may = threading.Event()
        self.built: list[Path] = []

    def build(
        self, path: Path, first_seq: int, sources: Sequence[Source], *, gives_way: bool = True,
        value_gain: int = limits.value_gain,
    ) -> SegmentInfo:  # fmt: skip
        assert self.may.wait(60)
        self.built.append(path)
        return build(path, first_seq, sources)


def test_S1_x16_memtables_freeze_and_appends_go_on_while_the_builder_is_busy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The leader proposes FREEZE when its memtable is full; nobody waits for the builder."""
    monkeypatch.setattr(limits, "memtable_bytes_max", 5_000)
    monkeypatch.setattr(limits, "memtable_hard_bytes_max", 40_000)
    monkeypatch.setattr(limits, "append_light_bytes", 0)  # who brings little is refused later
    builder = WaitingBuilder()

    async def test(node: StorageNode, replica: RangeReplica) -> None:
        building = asyncio.ensure_future(node.memtables.build())
        number = 5
        while replica.state.memtable_bytes <= limits.memtable_hard_bytes_max:
            await replica.append(numbered_batch(number, [b"a"] * 10, filler=100))
            number += 10
            await node.memtables.look(0.0)
        with pytest.raises(Overloaded, match="segments") as refused:
            await replica.append(numbered_batch(number, [b"a"]))
        assert refused.value.outcome == "not_applied"
        async with asyncio.timeout(60):
            while replica.state.memtable_full:  # noqa: ASYNC110  its FREEZE is on the way
                await asyncio.sleep(0.001)
        assert 6 <= len(replica.state.queue) <= 10
        assert replica.state.memtable_bytes < 50_000
        frozen_at = [frozen.applied_index for frozen in replica.state.queue]
        for index in frozen_at:
            command = commands.decode(replica.raft_log.entry(index).command)
            assert command is not None
            assert command.kind == commands.FREEZE
        assert replica.state.durable_base.manifest == []
        builder.may.set()
        async with asyncio.timeout(60):
            while replica.state.queue:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
        building.cancel()
        assert replica.state.durable_base.applied_index == frozen_at[-1]
        assert len(builder.built) == len(replica.state.manifest) == len(frozen_at)
        reply = await replica.append(numbered_batch(number, [b"a"]))
        assert reply["status"] == "ok"
        assert seqs(replica, b"a") == [1, 3, *range(5, number + 1)][:100]

    run(tmp_path, test, builder)


def test_L3_the_memtables_of_a_node_are_bounded_frozen_ones_included(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    builder = WaitingBuilder()

    async def test(node: StorageNode, replica: RangeReplica) -> None:
        other = await node.host.create_range(descriptor(2), Base(), campaign=True)
        assert other is not None
        await node.leading(other)
        follower = await node.host.create_range(
            descriptor(3, members=(1, 2, 3)), Base(), campaign=False
        )
        assert follower is not None
        follower.state.apply(2, 1, follower_command(2))
        await other.append(numbered_batch(1, [b"a"] * 50, filler=1000))
        sizes = [r.state.memtable_bytes for r in (replica, other, follower)]
        assert sizes[1] > sizes[0] + sizes[2]

        # The largest is enough, and while it waits for the builder nothing else is frozen.
        monkeypatch.setattr(limits, "memtables_bytes_max", sum(sizes) - 100)
        for _ in range(3):
            await node.memtables.look(time.monotonic())
            await node.applied(other)
        assert [len(r.state.queue) for r in (replica, other, follower)] == [0, 1, 0]
        assert other.raft_log.entry(other.applied_index).command == other_freeze(other)

        # The leader asks its members, a follower has nobody to ask.
        monkeypatch.setattr(limits, "memtables_bytes_max", 0)
        await node.memtables.look(time.monotonic())
        await node.applied(replica)
        assert [len(r.state.queue) for r in (replica, other, follower)] == [1, 1, 1]
        assert follower.applied_index == 1

        monkeypatch.setattr(limits, "memtables_hard_bytes_max", sum(sizes) // 2)
        await node.memtables.look(time.monotonic())
        with pytest.raises(Overloaded, match="the node waits until it has built segments"):
            await replica.append(numbered_batch(5, [b"a"]))
        building = asyncio.ensure_future(node.memtables.build())
        builder.may.set()
        async with asyncio.timeout(60):
            while node.memory.full:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
        building.cancel()
        assert len(other.state.manifest) == 1, "the largest goes first"
        reply = await replica.append(numbered_batch(5, [b"a"]))
        assert reply["status"] == "ok"

    run(tmp_path, test, builder)


class Watched(Builder):
    """Keeps of each build whether it gave way, and how the file keeps values."""

    def __init__(self) -> None:
        super().__init__()
        self.gave_way: list[bool] = []
        self.gains: list[int] = []

    def build(
        self, path: Path, first_seq: int, sources: Sequence[Source], *, gives_way: bool = True,
        value_gain: int = limits.value_gain,
    ) -> SegmentInfo:  # fmt: skip
        self.gave_way.append(gives_way)
        self.gains.append(value_gain)
        return super().build(path, first_seq, sources, gives_way=gives_way, value_gain=value_gain)


def test_segments_that_are_waited_for_are_built_before_all_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A builder that gave way under full load let memtables grow until appends were refused."""
    builder = Watched()

    async def test(node: StorageNode, replica: RangeReplica) -> None:
        for most in (1 << 30, 0, 1 << 30):
            await replica.append(numbered_batch(replica.state.next_seq, [b"a"]))
            replica.freeze()
            monkeypatch.setattr(limits, "frozen_scarce_bytes", most)
            await node.memtables.look(time.monotonic())
            await node.flusher.flush_oldest(replica)
        assert builder.gave_way == [True, False, True]

    run(tmp_path, test, builder)


def test_x2_22_a_file_is_made_by_the_level_at_the_last_entry_of_its_memtable(
    tmp_path: Path,
) -> None:
    builder = Watched()

    async def test(node: StorageNode, replica: RangeReplica) -> None:
        await node.flusher.flush(replica)
        await replica.append(numbered_batch(replica.state.next_seq, [b"a"]))
        replica.freeze()
        assert replica.propose_in_passing(commands.LEVEL, LEVEL_MAX)
        await node.applied(replica)
        await replica.append(numbered_batch(replica.state.next_seq, [b"a"]))
        await node.flusher.flush(replica)
        assert replica.state.level == LEVEL_MAX
        assert builder.gains == [16, 16, 8]
        for _ in range(5):  # eight files are due to be joined
            await replica.append(numbered_batch(replica.state.next_seq, [b"a"]))
            await node.flusher.flush(replica)
        found = merging.due(replica.state.durable_base, replica.descriptor.span, ended=False)
        assert found is not None
        assert found.value_gain == 8

    run(tmp_path, test, builder)


def other_freeze(replica: RangeReplica) -> bytes:
    """The FREEZE that is the last entry applied, with the time that it has."""
    found = commands.decode(replica.raft_log.entry(replica.applied_index).command)
    assert found is not None
    return commands.encode(commands.FREEZE, found.timestamp_ms, None)


def test_an_old_memtable_is_frozen_by_its_leader_and_much_later_by_the_member_itself(
    tmp_path: Path,
) -> None:
    async def test(node: StorageNode, replica: RangeReplica) -> None:
        follower = await node.host.create_range(
            descriptor(3, members=(1, 2, 3)), Base(), campaign=False
        )
        assert follower is not None
        follower.state.apply(2, 1, follower_command(2))
        now = time.monotonic()
        proposed = []
        for later in (0, limits.memtable_age_s + 1):
            await node.memtables.look(now + later)
            proposed.append(replica.freeze_proposed)
        assert proposed == [False, True]
        await node.applied(replica)
        assert [len(r.state.queue) for r in (replica, follower)] == [1, 0]
        await node.flusher.flush(replica)
        index = replica.applied_index
        # Nothing is proposed for an empty memtable, or it would go on for ever.
        for _ in range(3):
            await node.memtables.look(time.monotonic() + limits.memtable_age_s + 1)
            await node.applied(replica)
        assert replica.applied_index == index
        await node.memtables.look(time.monotonic() + 2 * limits.memtable_age_s + 1)
        assert len(follower.state.queue) == 1

    run(tmp_path, test)


def test_a_cold_memtable_is_frozen_by_its_leader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "memtable_cold_bytes", 10_000)

    async def test(node: StorageNode, replica: RangeReplica) -> None:
        now, frozen = time.monotonic(), []
        for filler in (0, 20_000):
            batch = numbered_batch(replica.state.next_seq, [b"a"], filler=filler)
            await replica.append(batch)
            for later in (0, limits.memtable_cold_s - 1, limits.memtable_cold_s + 1):
                await node.memtables.look(now + later)
                await node.applied(replica)
                frozen.append(len(replica.state.queue))
            now += 2 * limits.memtable_cold_s
        assert frozen == [0, 0, 0, 0, 0, 1]

    run(tmp_path, test)


def test_a_flush_for_a_seal_is_urgent(tmp_path: Path) -> None:
    builder = Watched()

    async def test(node: StorageNode, replica: RangeReplica) -> None:
        for seals in (False, True):
            await replica.append(numbered_batch(replica.state.next_seq, [b"a"]))
            if seals:
                replica.propose_seal(5)
                while not replica.is_sealed:  # noqa: ASYNC110
                    await asyncio.sleep(0.001)
            await node.flusher.flush(replica)
        assert builder.gave_way == [True, False]

    run(tmp_path, test, builder)
