"""The storage of a node without its network: the daemon's own parts over a real directory."""

import asyncio
import os
import random
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path

from lognode.client.protocol import limits
from lognode.client.protocol.records import encode_batch
from lognode.node.directory.data_directory import DataDirectory
from lognode.node.directory.disk_room import DiskRoom
from lognode.node.metrics import Metrics
from lognode.node.replicas.clocks import Clocks
from lognode.node.replicas.flush import Flusher
from lognode.node.replicas.host import Host
from lognode.node.replicas.range_replica import RangeReplica
from lognode.node.replicas.replica import Memory, Services
from lognode.node.replicas.rounds import Rounds
from lognode.node.runtime.sync_thread import SyncThread
from lognode.node.runtime.turn_ends import TurnEnds
from lognode.node.runtime.wal_writer import WalWriter
from lognode.node.upkeep.memtables import Memtables
from lognode.node.upkeep.merges import Merges
from lognode.partitions.model import Descriptor, Span
from lognode.raft.os_disk import OsDisk
from lognode.raft.read_rounds import Asker
from lognode.raft.types import GroupId, Message, RaftOptions
from lognode.raft.wal import Wal
from lognode.statemachine.builder import Builder
from lognode.statemachine.merge_process import Merger, Task, run
from lognode.statemachine.meta import LmdbMeta
from lognode.statemachine.segment_writer import SegmentInfo, Source, build
from lognode.statemachine.segments import SegmentStore

WAL_FILE_BYTES = 4096
META_BYTES = 64 << 20


class InlineBuilder(Builder):
    """Builds in this process, so that its steps are counted with the others."""

    def build(
        self, path: Path, first_seq: int, sources: Sequence[Source], *, gives_way: bool = True,
        value_gain: int = limits.value_gain,
    ) -> SegmentInfo:  # fmt: skip
        return build(path, first_seq, sources, value_gain=value_gain)


class InlineMerger(Merger):
    """Merges in this process, as `InlineBuilder` builds. A file is open once in a process: what the
    store has open of the inputs is let go."""

    store: SegmentStore

    def merge(self, task: Task) -> SegmentInfo | None:
        self.store.doubt(info.content_id for _, info in task.inputs)
        return run(task)


class _NoLinks:
    def send(self, peer: int, gid: GroupId, fingerprint: bytes, message: Message) -> None:
        """There is nobody."""

    def ask(self, asker: Asker) -> None:
        """Nor anybody to ask."""


class StorageNode:
    """Node 1, wired as the daemon wires it."""

    def __init__(
        self, root: Path, *, builder: Builder | None = None, merger: Merger | None = None
    ) -> None:
        self.directory = DataDirectory(root)
        self.failure: BaseException | None = None
        self.builder = builder or InlineBuilder()
        self.merger = merger or InlineMerger()

    async def start(self) -> None:
        """Recover, as the daemon does."""
        self.directory.open()
        self.sync = SyncThread("wal", on_failure=self._fail)
        self.files = SyncThread("files", on_failure=self._fail)
        self.meta = LmdbMeta(self.directory.meta, map_bytes=META_BYTES)
        self.meta.sync()
        self.directory.sync()
        self.disk = OsDisk(self.directory.wal)
        self.wal = Wal.open(self.disk, entropy=os.urandom, file_bytes=WAL_FILE_BYTES)
        self.store = SegmentStore(self.directory.files)
        if isinstance(self.merger, InlineMerger):
            self.merger.store = self.store
        turn_ends = TurnEnds(
            propose=lambda: self.rounds.propose(), flush=lambda: None,
            begin_round=lambda: self.rounds.begin(), on_broken=self._fail,
        )  # fmt: skip
        self.rounds = Rounds(
            self.wal, WalWriter(self.wal, self.sync),
            on_synced=lambda gids: self.host.synced(gids), on_failure=self._fail,
            on_file_begun=lambda: None, turn_ends=turn_ends, metrics=Metrics(),
        )  # fmt: skip
        self.memory = Memory()
        services = Services(
            node_id=1, links=_NoLinks(), confirmations=_NoLinks(), rounds=self.rounds,
            turn_ends=turn_ends, options=RaftOptions(0.03, 0.06, 0.009, 0.009),
            rng=random.Random(1), metrics=Metrics(), memory=self.memory, stamp_ms=Clocks().stamp_ms,
            on_broken=self._fail,
            liveness=None, on_appended=lambda *_: None, on_leader=lambda gid, term, leader: None,
            on_stuck=lambda replica, error: self.host.damage(replica, error),
            room=DiskRoom(1, 0),
        )  # fmt: skip
        self.host = Host(
            wal=self.wal, meta=self.meta, sync=self.files, rounds=self.rounds, store=self.store,
            services=services, links_up=dict, links_full=list, on_change=lambda: None,
            hash_files=True,
        )  # fmt: skip
        self.flusher = Flusher(
            builder=self.builder, tmp=self.directory.tmp, store=self.store, meta=self.meta,
            sync=self.files, rounds=self.rounds, memory=self.memory, metrics=Metrics(),
        )  # fmt: skip
        self.merges = Merges(
            merger=self.merger, host=self.host, tmp=self.directory.tmp, store=self.store,
            meta=self.meta, sync=self.files, room=DiskRoom(1, 0),
            on_damaged=self.host.damage, metrics=Metrics(),
        )  # fmt: skip
        self.memtables = Memtables(
            host=self.host, wal=self.wal, flusher=self.flusher, memory=self.memory,
            room=DiskRoom(1, 0),
        )  # fmt: skip
        await self.host.recover()

    def _fail(self, error: BaseException) -> None:
        self.failure = self.failure or error

    def stop(self) -> None:
        """As a node that ends in order."""
        self.host.stop()
        self.rounds.stop()
        self.builder.stop()
        self.merger.stop()
        self.sync.close()
        self.files.close()
        self.store.close()
        self.meta.close()
        self.disk.close()
        self.directory.close()

    async def reclaim(self) -> None:
        """What maintenance does now and then, until no file goes any more."""
        for _ in range(3):
            await self.sync.run(partial(self.wal.let_go, self.wal.reclaim()))
            self.rounds.kick()
            await self.rounds.durable()

    async def leading(self, replica: RangeReplica) -> None:
        """Return when the replica leads and has applied what it holds."""
        async with asyncio.timeout(20):
            while not replica.leads or replica.applied_index < replica.raft_log.last_index:
                if self.failure is not None:
                    raise self.failure
                await asyncio.sleep(0.001)

    async def applied(self, replica: RangeReplica) -> None:
        """Return when the replica has applied what it holds."""
        async with asyncio.timeout(20):
            await replica.wait_applied(replica.raft_log.last_index)


def descriptor(range_id: int, members: tuple[int, ...] = (1,), generation: int = 1) -> Descriptor:
    """A range over all keys."""
    return Descriptor(range_id, generation, 1, Span(b"", None), members)


def numbered_batch(number: int, keys: Sequence[bytes], *, filler: int = 60) -> bytes:
    """A batch of producer 7 from record `number` on; each value tells its record's number."""
    values = [b"%d:" % at + bytes(filler) for at in range(number, number + len(keys))]
    return encode_batch(keys, values, producer=7, epoch=1, low=1, numbers=number, compress=False)


def one_life(root: Path, test: Callable[[StorageNode], Awaitable[None]]) -> None:
    """Start a node on the directory, test, and end as if killed: no row says that all was well."""

    async def main() -> None:
        node = StorageNode(root)
        await node.start()
        try:
            await test(node)
        finally:
            node.stop()

    asyncio.run(main())
