"""Tiered merge of segments: each node merges alone, in the background, one merge at a time.

`rules.merging` says which merge is due. The order makes crashes harmless, as
in `flush`: the new file is durable before one meta transaction puts it in place of its inputs.
Only then are the inputs removed, unless something else names or fetches them. A crash between two
steps leaves a file that nothing names. Nothing that a reader can see changes (x13).
"""

import asyncio
import itertools
import logging
import os
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final
from weakref import WeakKeyDictionary

from ...client.protocol.errors import CorruptData, LognodeError, Unavailable
from ...statemachine.merge_process import Merger, Task
from ...statemachine.meta import MetaStore
from ...statemachine.range_state import Base
from ...statemachine.segment_format import SegmentInfo
from ...statemachine.segments import SegmentStore
from ..directory.disk_room import DiskRoom
from ..metrics import Metrics
from ..replicas.host import Host
from ..replicas.prepare import open_ahead
from ..replicas.range_replica import RangeReplica
from ..rules import merging
from ..rules.durable_steps import Commit
from ..rules.flushing import store_base
from ..runtime.slices import one_by_one
from ..runtime.sync_thread import SyncThread

_PERIOD_S: Final = 1.0
_RETRY_FIRST_S: Final = 5.0
_RETRY_MAX_S: Final = 300.0

log = logging.getLogger("lognode.merge")


class Merges:
    """Merges segments. Runs on every node."""

    def __init__(
        self,
        *,
        merger: Merger,
        host: Host,
        tmp: Path,
        store: SegmentStore,
        meta: MetaStore,
        sync: SyncThread,
        room: DiskRoom,
        on_damaged: Callable[[RangeReplica, CorruptData], None],
        metrics: Metrics,
    ) -> None:
        self._merger = merger
        self._host = host
        self._tmp = tmp
        self._store = store
        self._meta = meta
        self._sync = sync
        self._room = room
        self._on_damaged = on_damaged
        self._metrics = metrics
        self._numbers = itertools.count(1)
        self._seen: WeakKeyDictionary[RangeReplica, Base] = WeakKeyDictionary()
        """The durable base of each replica whose manifest needs no merge."""
        self._failed: WeakKeyDictionary[RangeReplica, int] = WeakKeyDictionary()
        """Consecutive merges of each replica that failed."""

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            await asyncio.sleep(_PERIOD_S)
            async for replica in one_by_one(self._host.ranges()):
                if self._may_be_due(replica) and replica.merge_not_before <= time.monotonic():
                    await self.try_merge(replica)

    def _may_be_due(self, replica: RangeReplica) -> bool:
        """Whether the replica's durable base has changed since it was found to need no merge."""
        return self._seen.get(replica) is not replica.state.durable_base

    async def try_merge(self, replica: RangeReplica) -> bool:
        """Do one merge, if the replica needs one; return whether it was done.

        A damaged input is repaired like one that a read finds (S12), and never merged. A failed
        merge is tried again after a while.
        """
        try:
            merged = await self._merge(replica)
        except LognodeError as error:
            failed = self._failed.get(replica, 0)
            delay = min(_RETRY_MAX_S, _RETRY_FIRST_S * 2 ** min(failed, 10))
            self._failed[replica] = failed + 1
            replica.put_off_merges(time.monotonic() + delay)
            log.error(
                "merging segments failed; the node tries again",
                extra={"fields": {"range": replica.gid.range_id, "error": str(error),
                                  "in_seconds": delay}},
            )  # fmt: skip
            if isinstance(error, CorruptData) and not replica.stopped:
                self._on_damaged(replica, error)
            return False
        self._failed.pop(replica, None)
        return merged

    async def _merge(self, replica: RangeReplica) -> bool:
        base = replica.state.durable_base
        if not self._may_be_due(replica) or replica.stopped:
            return False
        leaving = self._host.kept.leaving(replica.descriptor.log_id, base)
        merge = merging.due(
            base, replica.descriptor.span, ended=replica.is_sealed,
            stays=lambda name: name not in leaving and self._store.is_listed(name),
        )  # fmt: skip
        if merge is None:
            self._seen[replica] = base
            return False
        if not merge.writes:
            gone = merge.inputs
            await self._commit(replica, gone, None)
            await self._host.collect_garbage()
            self._metrics.segments_removed.inc(len(gone))
            self._metrics.removed_bytes.inc(sum(info.size for info in gone))
            log.info(
                "segments removed",
                extra={"fields": {"range": replica.gid.range_id, "segments": len(gone),
                                  "bytes": sum(info.size for info in gone)}},
            )  # fmt: skip
            return True
        inputs = merge.inputs
        if not self._has_room(sum(info.size for info in inputs)):
            return False
        if any(self._store.is_suspended(info.content_id) for info in inputs):
            return False  # an input is being repaired
        started = time.monotonic()
        pin = object()
        self._host.pinned.pin(pin, [info.content_id for info in inputs])
        try:
            merged = await self._replace(replica, merge)
        finally:
            self._host.pinned.unpin(pin)
        await self._host.collect_garbage()
        self._metrics.segments_merged.inc(len(inputs))
        self._metrics.merged_bytes.inc(merged.size if merged else 0)
        log.info(
            "segments merged",
            extra={
                "fields": {
                    "range": replica.gid.range_id,
                    "segments": len(inputs),
                    "entries": merged.entries if merged else 0,
                    "bytes": merged.size if merged else 0,
                    "seconds": round(time.monotonic() - started, 3),
                }
            },
        )
        return True

    def _has_room(self, size: int) -> bool:
        """Whether the disk has room for inputs and output together."""
        room = self._room
        return room.may_merge(size)

    async def _commit(
        self, replica: RangeReplica, inputs: Sequence[SegmentInfo], merged: SegmentInfo | None
    ) -> None:
        """Replace the inputs by the merged file in one meta transaction."""
        async with replica.base_turn:
            if replica.stopped or replica.is_sealed:
                raise Unavailable("this replica has ended")
            base = replica.state.base_merged(inputs, merged)
            for step in store_base(replica.descriptor, base):
                if isinstance(step, Commit):
                    await self._sync.run(partial(self._meta.commit, step.puts))
                else:
                    replica.state.merged(base)

    async def _replace(self, replica: RangeReplica, merge: merging.Merge) -> SegmentInfo | None:
        merged = await self._write(replica, merge)
        try:
            await self._commit(replica, merge.inputs, merged)
        finally:
            if merged is not None:
                self._store.release(merged.content_id)
        return merged

    async def _write(self, replica: RangeReplica, merge: merging.Merge) -> SegmentInfo | None:
        """Return the merged file in the store, held; None when nothing of the inputs is left."""
        # The process id is in the name: a merge may outlive a killed node by a moment.
        path = self._tmp / f"merge-{os.getpid()}-{next(self._numbers)}"
        span = replica.descriptor.span
        files = [(self._store.path(info.content_id), info) for info in merge.inputs]
        task = Task(
            path, files, span.start, span.end, merge.rules, merge.oldest, merge.value_gain
        )  # fmt: skip
        merged = await asyncio.to_thread(self._merger.merge, task)
        if merged is not None:
            # Until a manifest in meta names the file, the end of a replica must not remove it.
            self._store.hold(merged.content_id)
            try:
                await self._sync.run(lambda: self._store.add(path, merged.content_id))
                await open_ahead(self._store, merged.content_id)
            except BaseException:
                self._store.release(merged.content_id)
                raise
        return merged
