"""Carries out the repair of damaged segments on a node: see `rules.repairing`.

Each file in doubt has a task of its own. The task hashes the file, asks peers for the same file by
its content id, and lets replicas continue that waited for the file.
"""

import asyncio
import contextlib
import logging
from collections.abc import Coroutine, Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple

from ...client.protocol.errors import CorruptData, LognodeError, RangeNotFound
from ...partitions.model import Descriptor
from ...raft.types import GroupId
from ...statemachine.segment_format import SegmentInfo
from ...statemachine.segments import SegmentStore
from ...statemachine.unknown import UnknownCommandError
from ..lifecycle.base_transfer import BaseFetcher
from ..metrics import Metrics
from ..replicas.host import Host
from ..replicas.range_replica import RangeReplica
from ..replicas.replica import Replica
from ..rules import repairing
from ..rules.durable_steps import CheckFile, Distrust, FetchFile, Resume, Step, Steps, Suspend
from ..runtime import unexpected
from ..runtime.unexpected import OnBroken

_MENDED_MAX = 1_000

log = logging.getLogger("lognode.repair")


class _Doubt(NamedTuple):
    """A file in doubt, the replica for which damage was reported, and the damage."""

    content_id: str
    gid: GroupId
    error: CorruptData


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
            suspend, *rest = repairing.doubt(content_id)
            self._carry_out_now(suspend)  # before any other read
            self._begin(content_id, self._mend(_Doubt(content_id, gid, error), rest))

    def ask_members(self, content_id: str) -> None:
        """Ask members once for a file that the tier has lost; the replicas go on without it."""
        self._begin(("members", content_id), self._of_members(content_id))

    async def _of_members(self, content_id: str) -> None:
        holders = self._host.holders(content_id)
        descriptors = [descriptor for descriptor, _ in holders.values()]
        for gid, peer in repairing.sources(self._node_id, descriptors):
            try:
                await self._fetcher.fetch_file(peer, gid, holders[gid][1])
            except LognodeError as error:
                fields = {"id": content_id, "peer": peer, "reason": error.message}
                log.warning("a segment that the tier has lost did not come from a member",
                            extra={"fields": fields})  # fmt: skip
            else:
                self._note_mended(content_id)
                return

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
        """Find which of the replica's files are damaged."""
        replica, bad = self._host.replica(gid), dict[str, CorruptData]()
        for info in () if replica is None else tuple(replica.state.manifest):
            try:
                await asyncio.to_thread(self._store.verify, info.content_id)
            except CorruptData as damage:
                bad[info.content_id] = damage
        for content_id, found in bad.items():
            self.doubt(gid, content_id, found)
        rows = self._host.rows_of([gid])
        await self._host.carry_out(repairing.searched(error.message, rows, bad))

    async def _mend(self, doubt: _Doubt, steps: Iterable[Step]) -> None:
        await self._carry_out(doubt, steps)
        waiting = {gid: aside.bad for gid, aside in self._host.aside.items()}
        for gid in repairing.returning(waiting, self._store.is_suspended):
            await self._host.carry_out(repairing.bring_back(gid))

    async def _carry_out(self, doubt: _Doubt, steps: Iterable[Step]) -> None:
        for step in steps:
            match step:
                case Suspend() | Resume():
                    self._carry_out_now(step)
                case Distrust(content_id):
                    await self._host.sound.forget([content_id])
                case CheckFile():
                    await self._carry_out(doubt, await self._check(doubt))
                case FetchFile():
                    await self._carry_out(doubt, await self._fetch(doubt))
                case _:
                    await self._host.carry_out((step,))

    def _carry_out_now(self, step: Step) -> None:
        match step:
            case Suspend(content_id):
                self._store.suspend(content_id)
            case Resume(content_id):
                self._store.resume(content_id)

    async def _check(self, doubt: _Doubt) -> Steps:
        content_id, gid, error = doubt
        damaged = False
        try:
            await asyncio.to_thread(self._store.verify, content_id)
        except CorruptData as damage:
            log.error("segment is damaged", extra={"fields": {"reason": damage.message}})
            damaged = True
        mended = not damaged and content_id in self._mended
        if mended:
            del self._mended[content_id]
        rows = self._host.rows_of([gid])
        return repairing.checked(
            content_id, error.message, damaged=damaged, mended=mended, rows=rows
        )

    async def _fetch(self, doubt: _Doubt) -> Steps:
        """Ask the file's sources for the file until one gives it, or until the file is lost."""
        content_id, loop = doubt.content_id, asyncio.get_running_loop()
        began = loop.time()
        while holders := self._host.holders(content_id):
            refusal: LognodeError = RangeNotFound("the range has no other member", range=0)
            unreachable: LognodeError | None = None
            try:
                if await self._host.kept.bring_back(content_id):
                    self._note_mended(content_id)
                    return repairing.fetched(content_id)
            except CorruptData as error:
                refusal = error
            except LognodeError as error:
                # The file is no more lost than the tier: no replica is damaged meanwhile.
                unreachable, began = error, loop.time()
            try:
                if await self._of_tier(holders):
                    self._note_mended(content_id)
                    return repairing.fetched(content_id)
            except LognodeError as error:
                unreachable = error
            descriptors = [descriptor for descriptor, _ in holders.values()]
            sources = repairing.sources(self._node_id, descriptors)
            if unreachable is not None and not sources:
                began = loop.time()  # nobody could rebuild the replica, and the tier may have it
            for gid, peer in sources:
                try:
                    await self._fetcher.fetch_file(peer, gid, holders[gid][1])
                except (RangeNotFound, CorruptData) as error:
                    refusal = error
                except LognodeError as error:
                    unreachable = error
                else:
                    self._note_mended(content_id)
                    return repairing.fetched(content_id)
            waited_s = loop.time() - began
            if repairing.after_asking(waited_s, all_asked=unreachable is None) == "lost":
                reason = (unreachable or refusal).message
                fields = {"id": content_id, "reason": reason}
                log.error("segment cannot be repaired", extra={"fields": fields})
                rows = self._host.rows_of(self._host.holders(content_id))
                return repairing.lost(content_id, doubt.error.message, rows)
            await asyncio.sleep(repairing.RETRY_S)
        return repairing.unneeded(content_id)

    async def _of_tier(self, holders: Mapping[GroupId, tuple[Descriptor, SegmentInfo]]) -> bool:
        """Fetch a file that these replicas need from the tier, before a member has to send it.

        False: the tier does not have the file, or has a damaged file. Raises Unavailable.
        """
        for gid, (_, info) in holders.items():
            with contextlib.suppress(CorruptData):
                if await self._fetcher.fetch_from_tier(gid, info):
                    return True
        return False

    def _note_mended(self, content_id: str) -> None:
        self._mended[content_id] = None
        while len(self._mended) > _MENDED_MAX:
            del self._mended[next(iter(self._mended))]
        self._metrics.segments_repaired.inc()
        log.warning("segment is repaired", extra={"fields": {"id": content_id}})
