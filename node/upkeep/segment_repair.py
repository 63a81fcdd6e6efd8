"""Repairs a damaged segment in place: a peer sends the same file, by its content id.

Segments are derived from the log. So a replica whose WAL is whole may fetch a segment again and
stay in its generation (x2). Until then nothing of the file is served: reads of it go to other
members. A replica that needs the file to apply an entry, or to start, waits for it. Afterwards it
continues from its last durable base, as after a start. Where no other member has that file, the
replica is damaged, and rebuilt into the next generation.
"""

import asyncio
import logging
from collections.abc import Coroutine
from functools import partial
from typing import Any

from ...client.protocol.errors import CorruptData, LognodeError, RangeNotFound
from ...partitions.model import Descriptor
from ...raft.types import GroupId
from ...statemachine.segments import SegmentStore
from ...statemachine.unknown import UnknownCommandError
from ..lifecycle.base_transfer import BaseFetcher
from ..metrics import Metrics
from ..replicas.host import Host
from ..replicas.range_replica import RangeReplica
from ..replicas.replica import Replica
from ..runtime import unexpected
from ..runtime.unexpected import OnBroken

_RETRY_S = 0.5
_PATIENCE_S = 30.0
"""How long to wait for peers that cannot be asked."""
_MENDED_MAX = 1_000

log = logging.getLogger("lognode.repair")


class SegmentRepair:
    """Repairs the files of this node. All calls on the loop."""

    def __init__(
        self,
        *,
        node_id: int,
        host: Host,
        store: SegmentStore,
        fetcher: BaseFetcher,
        metrics: Metrics,
        on_broken: OnBroken,
    ) -> None:
        self._node_id = node_id
        self._host = host
        self._store = store
        self._fetcher = fetcher
        self._metrics = metrics
        self._on_broken = on_broken
        self._tasks: dict[object, asyncio.Task[None]] = {}
        self._mended: dict[str, None] = {}
        """Files that were repaired lately: earlier reads may still report their damage."""
        metrics.segments_in_doubt.set_function(lambda: len(self.in_doubt))

    @property
    def in_doubt(self) -> list[str]:
        """Return the content ids of files that are being checked or fetched."""
        return [name for name in self._tasks if isinstance(name, str)]

    def begin(self) -> None:
        """Repair the damaged files that the start found."""
        for gid, aside in list(self._host.aside.items()):
            for content_id, reason in aside.bad.items():
                self.doubt(gid, content_id, CorruptData(reason, segment=content_id))

    def stop(self) -> None:
        """Stop all repairs."""
        for task in list(self._tasks.values()):
            task.cancel()

    def read_found(self, replica: RangeReplica, error: CorruptData) -> None:
        """React to damage found by a read. The replica continues, except for reads of that file."""
        self.doubt(replica.gid, error.fields.get("segment"), error)

    def step_found(self, replica: Replica, error: CorruptData | UnknownCommandError) -> None:
        """React to an error that stops the replica.

        Damage in its log ends the replica for good. A damaged file sets it aside until the file is
        repaired. A command of a newer program halts it until the node is upgraded.
        """
        if isinstance(error, UnknownCommandError):
            self._host.halt(replica, error)
            return
        content_id = error.fields.get("segment")
        if content_id is None or not isinstance(replica, RangeReplica):
            self._host.damage(replica, error)
            return
        self._host.set_aside(replica, error)
        self.doubt(replica.gid, content_id, error)

    def doubt(self, gid: GroupId, content_id: str | None, error: CorruptData) -> None:
        """Check and repair a file of the replica; None: it is not known which file is damaged."""
        if content_id is None:
            self._begin(gid, self._search(gid, error))
        elif content_id not in self._tasks:
            self._store.suspend(content_id)
            self._begin(content_id, self._mend(gid, content_id, error))

    def _begin(self, name: object, work: "Coroutine[Any, Any, None]") -> None:
        if name in self._tasks:
            work.close()
            return
        task = self._tasks[name] = asyncio.get_running_loop().create_task(work)
        task.add_done_callback(partial(self._ended, name))

    def _ended(self, name: object, task: "asyncio.Task[None]") -> None:
        del self._tasks[name]
        error = unexpected.ended(task, self._on_broken)
        if error is not None:
            log.error("repair of a segment failed", exc_info=error)

    async def _search(self, gid: GroupId, error: CorruptData) -> None:
        """Find which of the replica's files is damaged, and give the replica up if none is."""
        replica, found = self._host.replica(gid), False
        for info in () if replica is None else tuple(replica.state.manifest):
            try:
                await asyncio.to_thread(self._store.verify, info.content_id)
            except CorruptData as damage:
                self.doubt(gid, info.content_id, damage)
                found = True
        if not found:
            self._host.give_up(gid, error)

    async def _mend(self, gid: GroupId, content_id: str, error: CorruptData) -> None:
        await self._host.sound.forget([content_id])
        try:
            await asyncio.to_thread(self._store.verify, content_id)
        except CorruptData as damage:
            error = damage
        else:
            # The file is sound and a read of it failed: the same bytes from a peer would not help.
            self._store.resume(content_id)
            if content_id in self._mended:
                del self._mended[content_id]
            else:
                self._host.give_up(gid, error)
            await self._bring_back()
            return
        log.error("segment is damaged", extra={"fields": {"reason": error.message}})
        try:
            fetched = await self._fetch(content_id)
        except LognodeError as refusal:
            log.error(
                "segment cannot be repaired",
                extra={"fields": {"id": content_id, "reason": refusal.message}},
            )
            for holder in self._host.holders(content_id):
                self._host.give_up(holder, error)
            self._store.resume(content_id)
            return
        if not fetched:
            self._store.resume(content_id)  # no replica needs it any more
            return
        self._mended[content_id] = None
        while len(self._mended) > _MENDED_MAX:
            del self._mended[next(iter(self._mended))]
        self._metrics.segments_repaired.inc()
        log.warning("segment is repaired", extra={"fields": {"id": content_id}})
        await self._bring_back()

    async def _fetch(self, content_id: str) -> bool:
        """Get the file from any other member; return False when no replica here needs it any more.

        Raises the last error when no member has the file, or when no member that has it can be
        asked in time.
        """
        loop = asyncio.get_running_loop()
        until = loop.time() + _PATIENCE_S
        while holders := self._host.holders(content_id):
            unreachable = None
            refusal: LognodeError = RangeNotFound("the range has no other member", range=0)
            for gid, (descriptor, info) in holders.items():
                for peer in self._others(descriptor):
                    try:
                        await self._fetcher.fetch_file(peer, gid, info)
                    except (RangeNotFound, CorruptData) as error:
                        refusal = error
                    except LognodeError as error:
                        unreachable = error
                    else:
                        return True
            if unreachable is None or loop.time() > until:
                raise unreachable or refusal
            await asyncio.sleep(_RETRY_S)
        return False

    def _others(self, descriptor: Descriptor) -> list[int]:
        return [member for member in descriptor.members if member != self._node_id]

    async def _bring_back(self) -> None:
        """Restart replicas that were set aside and whose files are all sound now."""
        for gid, aside in list(self._host.aside.items()):
            if not any(map(self._store.is_suspended, aside.bad)):
                await self._host.bring_back(gid)
