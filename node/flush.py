"""From memtable to segment: freeze, build in the builder process, commit, cut the log.

The order is that of the crash points: the segment file is durable before the one meta
transaction that names it, and the Raft log is cut only behind what that transaction says is
applied. A crash between any two steps leaves a file nobody names, which the start removes, or a
log that is longer than it need be.
"""

import asyncio
import logging
import time
from pathlib import Path

from ..client.errors import LognodeError, Unavailable
from ..statemachine.builder import Builder
from ..statemachine.meta import MetaStore
from ..statemachine.range_state import Frozen
from ..statemachine.segment_writer import SegmentInfo
from ..statemachine.segments import SegmentStore
from .metrics import Metrics
from .range_replica import RangeReplica
from .rounds import Rounds
from .rows import replica_key, replica_row
from .sync_thread import SyncThread

log = logging.getLogger("lognode.flush")


class Flusher:
    """Flushes replicas one at a time: there is one builder process."""

    def __init__(
        self,
        *,
        builder: Builder,
        tmp: Path,
        store: SegmentStore,
        meta: MetaStore,
        sync: SyncThread,
        rounds: Rounds,
        metrics: Metrics,
    ) -> None:
        self._builder = builder
        self._tmp = tmp
        self._store = store
        self._meta = meta
        self._sync = sync
        self._rounds = rounds
        self._metrics = metrics
        self._turn = asyncio.Lock()
        self._files = 0

    async def flush(self, replica: RangeReplica) -> None:
        """Bring what is applied now into segments. Returns when meta says so, durably.

        Raises LognodeError when the builder failed or the replica ended meanwhile: nothing was
        lost, and the next flush builds the same segment again. Raises DiskFailure.
        """
        async with self._turn:
            replica.flushing = True
            try:
                await self._flush(replica)
            finally:
                replica.flushing = False

    async def _flush(self, replica: RangeReplica) -> None:
        state = replica.state
        started = time.monotonic()
        frozen = state.freeze()
        if frozen is None:
            return
        info = None
        try:
            info = await self._build(frozen)
            if replica.stopped:
                # Retired, or gone on from a later base: its row is no longer ours to write.
                raise Unavailable("this replica has stopped")
            base = state.base_with(frozen, info)
            row = {replica_key(replica.gid): replica_row(replica.descriptor, base)}
            await self._sync.run(lambda: self._meta.commit(row))
            state.flushed(base)
        except BaseException:
            state.thaw(frozen)
            raise
        finally:
            if info is not None:
                self._store.release(info.content_id)
        replica.memtable_since = time.monotonic()
        self._cut(replica, frozen.applied_index)
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

    async def _build(self, frozen: Frozen) -> SegmentInfo | None:
        if not len(frozen.memtable):
            return None
        self._files += 1
        path = self._tmp / f"build-{self._files}"
        first_seq, sources = frozen.memtable.first_seq, frozen.sources()
        info = await asyncio.to_thread(self._builder.build, path, first_seq, sources)
        # Until a manifest in meta names it, the end of some other replica must not remove it.
        self._store.hold(info.content_id)
        try:
            await self._sync.run(lambda: self._store.add(path, info.content_id))
        except BaseException:
            self._store.release(info.content_id)
            raise
        return info

    def _cut(self, replica: RangeReplica, applied_index: int) -> None:
        # One memtable's worth of log stays, so that a member that was away for a moment catches
        # up from the log and needs no base.
        behind, replica.cut_next = replica.cut_next, applied_index
        if behind is not None:
            behind = min([behind, *replica.log_pins.values()])
        if behind is not None and not replica.stopped and behind > replica.raft_log.base_index:
            replica.raft_log.cut_front(behind)
            self._rounds.kick()

    async def release(self, replica: RangeReplica) -> None:
        """Flush, then cut all of the log that is in segments: it keeps the oldest WAL file.

        Nothing where somebody who is fetching a base needs all of the log.
        """
        pinned_from = min(replica.log_pins.values(), default=None)
        if pinned_from is not None and pinned_from <= replica.raft_log.base_index:
            return
        if replica.state.unflushed and not await self.try_flush(replica):
            return
        index = min([replica.state.durable_base.applied_index, *replica.log_pins.values()])
        if not replica.stopped and index > replica.raft_log.base_index:
            replica.raft_log.cut_front(index)
            replica.cut_next = index
            self._rounds.kick()

    async def try_flush(self, replica: RangeReplica) -> bool:
        """`flush` for the background: False and a log line where it failed."""
        try:
            await self.flush(replica)
        except LognodeError as error:
            log.error(
                "segment could not be built; it is tried again",
                extra={"fields": {"range": replica.gid.range_id, "error": str(error)}},
            )
            return False
        return True
