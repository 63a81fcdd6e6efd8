"""From memtable to segment: freeze, build in the builder process, commit, cut the log.

The order makes crashes harmless. The segment file is durable before the one meta transaction that
names it. The Raft log is cut only up to the applied index of that transaction. A crash between two
steps leaves a file that nothing names, which the next start removes, or a log that is longer than
needed.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

from ...client.protocol.errors import LognodeError, Unavailable
from ...statemachine.builder import Builder
from ...statemachine.meta import MetaStore
from ...statemachine.range_state import Frozen
from ...statemachine.rules import of_tables
from ...statemachine.segment_format import SegmentInfo
from ...statemachine.segments import SegmentStore
from ..metrics import Metrics
from ..rules.durable_steps import Commit
from ..rules.flushing import cut_log, store_base
from ..runtime.slices import stepped
from ..runtime.sync_thread import SyncThread
from .prepare import open_ahead
from .range_replica import RangeReplica
from .replica import Memory
from .rounds import Rounds

_SHRINK = 2_000
"""Keys and batches of a memtable that are freed in one turn of the loop."""

log = logging.getLogger("lognode.flush")


class Flusher:
    """Flushes replicas, one at a time: there is one builder process."""

    def __init__(
        self,
        *,
        builder: Builder,
        tmp: Path,
        store: SegmentStore,
        meta: MetaStore,
        sync: SyncThread,
        rounds: Rounds,
        memory: Memory,
        metrics: Metrics,
    ) -> None:
        self._builder = builder
        self._tmp = tmp
        self._store = store
        self._meta = meta
        self._sync = sync
        self._rounds = rounds
        self._memory = memory
        self._metrics = metrics
        self._turn = asyncio.Lock()
        self._files = 0

    @property
    def builds_at_once(self) -> bool:
        """Whether a builder process waits for work, so that a small file takes milliseconds."""
        return self._builder.is_ready

    async def flush(self, replica: RangeReplica, *, hurried: bool = False) -> None:
        """Flush all entries applied now into segments; return when meta names these durably.

        `hurried`: the builder does not give way. Sealed ranges need this, because their appends
        wait. Raises LognodeError when the builder failed or the replica ended meanwhile: nothing
        was lost, and the next flush builds the same segment again. Raises DiskFailure.
        """
        wanted, _ = replica.state.effective
        async with self._turn:
            # Waiting memtables go first. The live memtable is frozen only then, so that repeated
            # failures of flushes leave no queue of small memtables.
            while replica.state.durable_base.applied_index < wanted:
                if not replica.state.queue:
                    replica.freeze()
                await self._flush_oldest(replica, hurried=hurried)

    async def flush_oldest(self, replica: RangeReplica) -> None:
        """Flush the oldest frozen memtable as `flush` does, if there is one."""
        async with self._turn:
            if replica.state.queue:
                await self._flush_oldest(replica)

    async def _flush_oldest(self, replica: RangeReplica, *, hurried: bool = False) -> None:
        state = replica.state
        started = time.monotonic()
        frozen = state.queue[0]
        info = None
        try:
            info = await self._build(frozen, hurried=hurried or replica.is_sealed)
            await stepped(frozen.steps())
            async with replica.base_turn:
                if replica.stopped:
                    # Retired, or restarted from a later base: the row no longer belongs to this
                    # object.
                    raise Unavailable("this replica has stopped")
                base = state.base_with(frozen, info)
                for step in store_base(replica.descriptor, base):
                    if isinstance(step, Commit):
                        await self._sync.run(partial(self._meta.commit, step.puts))
                    else:
                        state.flushed(base)
        finally:
            if info is not None:
                self._store.release(info.content_id)
        self._cut(replica, frozen.applied_index)
        while frozen.memtable.shrink(_SHRINK):  # noqa: ASYNC110  works, and does not poll
            await asyncio.sleep(0)
        if info is not None:
            self._metrics.segments_built.inc()
            log.info(
                "segment built",
                extra={
                    "fields": {
                        "range": replica.gid.range_id,
                        "entries": info.entries,
                        "bytes": info.size,
                        "seconds": round(time.monotonic() - started, 3),
                    }
                },
            )

    async def _build(self, frozen: Frozen, *, hurried: bool) -> SegmentInfo | None:
        if not len(frozen.memtable):
            return None
        self._files += 1
        path = self._tmp / f"build-{self._files}"
        first_seq, sources = frozen.memtable.first_seq, frozen.sources()
        gives_way = not (hurried or self._memory.scarce)
        info = await asyncio.to_thread(
            self._builder.build, path, first_seq, sources, gives_way=gives_way,
            value_gain=of_tables(frozen.tables).value_gain,
        )  # fmt: skip
        # Until a manifest in meta names the file, the end of another replica must not remove it.
        self._store.hold(info.content_id)
        try:
            await self._sync.run(lambda: self._store.add(path, info.content_id))
            await open_ahead(self._store, info.content_id)
        except BaseException:
            self._store.release(info.content_id)
            raise
        return info

    def _cut(self, replica: RangeReplica, applied_index: int) -> None:
        self._cut_to(replica, replica.flushed_before(applied_index))

    def _cut_to(self, replica: RangeReplica, wanted: int | None) -> int | None:
        """Cut the log up to an entry, or less where it is needed; return up to which, if at all."""
        if replica.stopped:
            return None
        durable, pins = replica.state.durable_base.applied_index, replica.log_pins.indexes()
        for _, last in cut_log(replica.gid, replica.raft_log, wanted, durable, pins):
            replica.raft_log.cut_front(last)
            self._rounds.kick()
            return last
        return None

    async def release(self, replica: RangeReplica) -> None:
        """Cut all of the log that is in segments, and flush until its oldest WAL file may go.

        Frozen memtables are flushed first. Where that is enough, the live memtable is left to the
        leader's FREEZE. Do nothing while a member that fetches a base needs all of the log.
        """
        pinned_from = min(replica.log_pins.indexes(), default=None)
        if pinned_from is not None and pinned_from <= replica.raft_log.base_index:
            return
        oldest = replica.raft_log.oldest_file
        self._cut_to_durable(replica)
        while replica.state.unflushed and not replica.stopped:
            if replica.raft_log.oldest_file != oldest:
                return
            flushed = self.try_flush_oldest if replica.state.queue else self.try_flush
            if not await flushed(replica):
                return
            self._cut_to_durable(replica)

    def _cut_to_durable(self, replica: RangeReplica) -> None:
        cut = self._cut_to(replica, replica.state.durable_base.applied_index)
        if cut is not None:
            replica.flushed_before(cut)

    async def try_flush(self, replica: RangeReplica) -> bool:
        """Flush in the background; return False and log a warning when the flush failed."""
        return await self._tried(self.flush, replica)

    async def try_flush_oldest(self, replica: RangeReplica) -> bool:
        """Do `flush_oldest` in the background, as `try_flush`."""
        return await self._tried(self.flush_oldest, replica)

    async def _tried(
        self, flush: Callable[[RangeReplica], Awaitable[None]], replica: RangeReplica
    ) -> bool:
        try:
            await flush(replica)
        except LognodeError as error:
            log.error(
                "building a segment failed; the node tries again",
                extra={"fields": {"range": replica.gid.range_id, "error": str(error)}},
            )
            return False
        return True
