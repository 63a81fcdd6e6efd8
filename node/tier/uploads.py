"""The work of leaders for the tier: upload the files of durable bases, and publish manifests.

Each range that this node leads is served by one task at a time, which takes the steps that
`planning` asks for. Requests run in two threads, a part of a file each, so at most two parts are in
memory. While the store gives errors, one range at a time tries, later and later. What waits is what
the manifests of the replicas name; nothing is queued.
"""

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import Callable, Container
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from ...client.protocol.errors import CorruptData, LognodeError, Unavailable
from ...partitions.metadata import Metadata
from ...partitions.model import LogRecord
from ...raft.types import GroupId
from ...statemachine.range_state import Base
from ...statemachine.segments import SegmentStore
from ..lifecycle import base_pieces
from ..replicas.host import Host
from ..replicas.range_replica import RangeReplica
from ..runtime.rate import TokenBucket
from ..runtime.slices import one_by_one
from ..runtime.workers import Workers
from . import planning
from .local_file import LocalFile, part_size
from .manifest import Held, LogFacts, Manifest
from .names import Chain, StoredFile
from .planning import Own
from .tier_progress import TierProgress
from .tier_store import TierStore

AT_ONCE: Final = 2
"""Ranges that are served together, and threads that `workers` needs for them."""
_PERIOD_S: Final = 1.0
_AGAIN_S: Final = 15.0
"""How long a range rests whose replica is behind the head, or whose file is gone or damaged."""
_TRUST_S: Final = 60.0
"""How long a head is trusted without a look: a number that is taken shows every other manifest."""
_REST_FIRST_S: Final = 1.0
_REST_MAX_S: Final = 60.0
_NEVER: Final = float("-inf")
_KEPT_TABLES: Final = ("next_seq", "last_timestamp_ms", "level")

log = logging.getLogger("lognode.tier")


@dataclass(slots=True)
class _Range:
    """What this node knows of the tier for a range that it leads."""

    served: tuple[Base, LogRecord] | None = None
    """The base and the log's record that the tier has."""
    behind: Base | None = None
    """A base that is behind the head: nothing of it waits, and the leader looks again later."""
    held: Container[str] = ()
    """The content ids of files that the tier has, as far as known."""
    head: Manifest | None = None
    """The head while the range is served: its base may be large."""
    looked_at: float = _NEVER
    """When the head was last read from the store."""
    tried_at: float = _NEVER
    rests_until: float = _NEVER


class Uploads:
    """Runs on every node with a tier. All calls on the loop. `doubt` gets a damaged file."""

    def __init__(
        self,
        *,
        node_id: int,
        cluster: str,
        host: Host,
        files: SegmentStore,
        store: TierStore,
        bytes_per_s: int,
        metadata: Callable[[], Metadata],
        wall_ms: Callable[[], int],
        doubt: Callable[[GroupId, str | None, CorruptData], None],
        progress: TierProgress,
        workers: Workers,
    ) -> None:
        self._node_id = node_id
        self._cluster = cluster
        self._host = host
        self._files = files
        self._store = store
        self._bucket = TokenBucket(bytes_per_s, time.monotonic)
        self._metadata = metadata
        self._wall_ms = wall_ms
        self._doubt = doubt
        self._progress = progress
        self._workers = workers
        self._ranges: dict[GroupId, _Range] = {}
        self._tasks: dict[GroupId, asyncio.Task[None]] = {}
        self._news = asyncio.Event()
        self._bug: BaseException | None = None
        self._has_begun = False
        self._failures = 0
        self._rests_until = _NEVER

    def stop(self) -> None:
        """Stop. A request under way ends by itself, and nobody waits for it."""
        for task in list(self._tasks.values()):
            task.cancel()
        self._workers.leave()

    async def run(self) -> None:
        """Run until cancelled. Raises the error of a range that failed by a bug."""
        while True:
            self._news.clear()
            await self._look()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_PERIOD_S):
                    await self._news.wait()
            bug, self._bug = self._bug, None
            if bug is not None:
                raise bug

    async def _look(self) -> None:
        """Count what waits, and serve the ranges that were served least lately."""
        led: set[GroupId] = set()
        due: list[RangeReplica] = []
        async for replica in one_by_one(self._host.ranges()):
            if replica.leads and (record := self._record(replica)) is not None:
                led.add(replica.gid)
                known = self._ranges.setdefault(replica.gid, _Range())
                if self._is_due(replica, known, record):
                    due.append(replica)
        for gid in self._ranges.keys() - led - self._tasks.keys():
            del self._ranges[gid]
            self._progress.forget(gid)
        now = time.monotonic()
        if now < self._rests_until:
            return
        room = 1 if self._failures else AT_ONCE
        due.sort(key=lambda replica: self._ranges[replica.gid].tried_at)
        for replica in due:
            known = self._ranges[replica.gid]
            if len(self._tasks) >= room:
                return
            if replica.gid not in self._tasks and now >= known.rests_until:
                known.tried_at = now
                task = asyncio.get_running_loop().create_task(self._serve(replica, known))
                self._tasks[replica.gid] = task
                task.add_done_callback(partial(self._ended, replica.gid))

    def _is_due(self, replica: RangeReplica, known: _Range, record: LogRecord) -> bool:
        served, base = known.served, replica.state.durable_base
        if served is not None and served[0] is base and served[1] == record:
            return False
        if replica.gid not in self._tasks and known.behind is not base:
            own = self._own(replica, record)
            self._progress.waits(replica.gid, *planning.waiting(own, known.held))
        return True

    def _ended(self, gid: GroupId, task: "asyncio.Task[None]") -> None:
        del self._tasks[gid]
        if not task.cancelled():
            self._bug = task.exception() or self._bug
        self._news.set()

    async def _serve(self, replica: RangeReplica, known: _Range) -> None:
        """Bring the tier to the replica's base. Errors of the store give all ranges a rest."""
        now = time.monotonic
        try:
            await self._take_steps(replica, known)
        except LognodeError as error:
            self._note(replica, error)
            if isinstance(error, CorruptData) and "segment" in error.fields:
                known.rests_until = now() + _AGAIN_S
                self._doubt(replica.gid, error.fields["segment"], error)
                return
            rest_s = min(_REST_MAX_S, _REST_FIRST_S * 2 ** min(self._failures, 10))
            self._failures += 1
            self._rests_until = now() + rest_s * random.uniform(0.5, 1.0)
        except FileNotFoundError:  # a merge or retention has deleted the file meanwhile
            known.rests_until = now() + _PERIOD_S
        except OSError as error:
            known.rests_until = now() + _AGAIN_S
            self._note(replica, error)
        finally:
            known.head, known.looked_at = None, _NEVER

    def _note(self, replica: RangeReplica, error: LognodeError | OSError) -> None:
        self._progress.failed(error)
        fields = {"range": replica.gid.range_id, "error": str(error)}
        log.warning("the tier is behind; the node tries again", extra={"fields": fields})

    async def _take_steps(self, replica: RangeReplica, known: _Range) -> None:
        if not self._has_begun:
            await self._workers.run(partial(self._store.begin, self._cluster))
            self._has_begun = True
        chain = Chain(*replica.gid)
        while replica.leads and (record := self._record(replica)) is not None:
            base = replica.state.durable_base
            own = self._own(replica, record)
            if time.monotonic() - known.looked_at > _TRUST_S:
                look = partial(self._store.head, chain, own)
                known.head = await self._workers.run(look)
                known.looked_at = time.monotonic()
            known.held = frozenset(known.head.held if known.head is not None else ())
            step = planning.next_step(own, known.head)
            if isinstance(step, planning.Wait | planning.Done | planning.Ended):
                self._failures = 0
                self._progress.waits(replica.gid, 0, 0)
                if isinstance(step, planning.Wait):
                    known.behind, known.rests_until = base, time.monotonic() + _AGAIN_S
                else:
                    known.served = base, record
                return
            self._progress.waits(replica.gid, *planning.waiting(own, known.held))
            following = await self._following(own, base, step, known.head)
            following = replace(following, node=self._node_id, written_ms=self._wall_ms())
            if await self._workers.run(partial(self._store.publish, following)):
                known.head = following
                self._failures = 0
                self._progress.moved_on(replica.gid)
                self._progress.succeeded()
            else:
                known.looked_at = _NEVER

    async def _following(
        self, own: Own, base: Base, step: planning.Step, head: Manifest | None
    ) -> Manifest:
        """Do what the step needs; return the manifest to publish."""
        if head is None:
            return planning.first(own, [await self._closed(own, each) for each in own.parents])
        match step:
            case planning.Upload(content_id) | planning.Adopt(content_id):
                stored = await self._stored(own, step, head.number)
                following = planning.with_file(own, head, content_id, stored)
                if not planning.is_complete(own, following):
                    return following
                return planning.based(own, following, await base_pieces.pack(_kept(base)))
            case planning.Restate():
                return replace(planning.next_of(head), log=own.log)
            case _:
                packed = await base_pieces.pack(_kept(base))
                return planning.based(own, planning.next_of(head), packed)

    async def _closed(self, own: Own, parent: Chain) -> Manifest:
        closing = partial(planning.closing, own, parent)
        return await self._workers.run(partial(self._store.close, parent, own, closing))

    async def _stored(self, own: Own, step: planning.Upload | planning.Adopt, label: int) -> Held:
        """Return where the file of a step is in the tier, after its upload."""
        if isinstance(step, planning.Adopt):
            return step.held
        return await self.upload(own, step.content_id, step.size, label)

    async def upload(self, own: Own, content_id: str, size: int, label: int) -> Held:
        """Upload the parts that the tier lacks. Raises OSError for a file that is gone, and
        Unavailable if a listing does not show all parts afterwards."""
        file = StoredFile(own.chain, content_id, label)
        run = self._workers.run
        local = await run(partial(LocalFile, self._files.path(content_id), content_id, size))
        try:
            await run(local.check)
            for at, replaces in await run(partial(self._store.missing_parts, file, size)):
                await asyncio.sleep(self._bucket.reserve(part_size(size, at)))
                put = partial(self._store.put_part, local, file, at, replace=replaces)
                await run(put)
        finally:
            # A cancelled task leaves its request to the thread, whose read then fails.
            run(local.close)
        held = Held(size, file.path)
        if not await run(partial(self._store.has, held)):
            raise Unavailable(
                f"the tier lacks parts of {file.path} after their upload: another place may have "
                "been mounted meanwhile"
            )
        self._progress.uploaded(size)
        return held

    def _record(self, replica: RangeReplica) -> LogRecord | None:
        return self._metadata().logs.get(replica.descriptor.log_id)

    def _own(self, replica: RangeReplica, record: LogRecord) -> Own:
        own, places = own_of(replica, record), self._host.kept.of(replica.gid)
        absent = {
            name: Held(*places[name])
            for name in own.files.keys() & places.keys() if not self._files.is_listed(name)
        }  # fmt: skip
        return replace(own, absent=absent)


def facts_of(record: LogRecord) -> LogFacts:
    """Return what a restore needs of a log."""
    return LogFacts(
        record.log_id, record.name, record.policy.to_body(), record.hierarchy.hex() or None
    )


def own_of(replica: RangeReplica, record: LogRecord) -> Own:
    """Return what a member has, as if all files were on its disk."""
    descriptor, base = replica.descriptor, replica.state.durable_base
    return Own(
        Chain(*replica.gid), (descriptor.span.start, descriptor.span.end), facts_of(record),
        (base.applied_index, base.applied_term),
        {info.content_id: info.size for info in base.manifest},
        tuple(Chain(each.range_id, each.generation) for each in descriptor.lineage),
        descriptor.members,
    )  # fmt: skip


def _kept(base: Base) -> Base:
    """Return the base without what belongs to clients of this cluster alone."""
    tables: dict[str, Any] = {
        name: base.tables[name] for name in _KEPT_TABLES if name in base.tables
    }
    removal = base.tables.get("removal")
    if removal is not None:
        tables["removal"] = {**removal, "leases": []}
    return Base(base.applied_index, base.applied_term, base.manifest, tables)
