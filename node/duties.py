"""What the metadata asks of this node: create, copy ahead, seal, prepare, install, retire.

`run` looks at the image again after every change and every half second, and does what is not done
yet; each step can be done twice, or broken off anywhere, without harm. Reports go to the
controller's leader again and again until the operation has moved on.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from ..client import limits
from ..client.errors import CorruptData, LognodeError, RangeNotFound, Unavailable
from ..partitions.model import Descriptor, Lineage, Operation
from ..raft.types import GroupId
from ..statemachine.range_state import Base
from . import rows
from .base_transfer import BaseFetcher
from .flush import Flusher
from .host import Host
from .range_replica import RangeReplica
from .sync_thread import SyncThread
from .view import View

_PERIOD_S = 0.5
_TAIL_BYTES = limits.MIB
"""What may be left in memory for the flush at the seal, while appends wait."""

log = logging.getLogger("lognode.duties")

Report = Callable[[dict[str, Any]], Awaitable[None]]


class Duties:
    """Runs on every node."""

    def __init__(
        self,
        *,
        node_id: int,
        host: Host,
        view: View,
        flusher: Flusher,
        fetcher: BaseFetcher,
        sync: SyncThread,
        report: Report,
    ) -> None:
        self._node_id = node_id
        self._host = host
        self._view = view
        self._flusher = flusher
        self._fetcher = fetcher
        self._sync = sync
        self._report = report
        self._wake = asyncio.Event()
        self._tasks: dict[object, asyncio.Task[None]] = {}
        self._copies: set[int] = set()
        """Operations whose files are pinned here until they end."""

    def wake(self) -> None:
        """Something changed."""
        self._wake.set()

    async def run(self) -> None:
        """Never returns; cancel it."""
        try:
            while True:
                self._look()
                try:
                    async with asyncio.timeout(_PERIOD_S):
                        await self._wake.wait()
                except TimeoutError:
                    pass
                self._wake.clear()
        finally:
            for task in self._tasks.values():
                task.cancel()

    def _look(self) -> None:
        metadata = self._view.metadata
        for range_ in metadata.ranges.values():
            gid = GroupId(range_.range_id, range_.generation)
            if self._node_id in range_.members:
                if gid not in self._host.groups:
                    if self._host.mark(gid.range_id) < gid.generation:
                        self._begin(gid, self._install(range_))
                elif range_.operation:
                    self._begin(("installed", gid), self._installed(range_))
        for operation in metadata.operations.values():
            number = operation.operation_id
            if operation.phase == "PLANNED":
                self._begin(("copy", number), self._copy_ahead(operation))
            elif operation.phase == "SEALING":
                self._begin(("seal", number), self._seal_and_prepare(operation))
        for pin in [("copy", number) for number in self._copies - metadata.operations.keys()]:
            self._host.pinned.pop(pin, None)
        self._copies &= metadata.operations.keys()
        for replica in self._host.ranges():
            if replica.group.base_wanted and not replica.is_sealed:
                self._begin(("base", replica.gid), self._catch_up(replica))
        over = [
            gid
            for gid in (*self._host.groups, *self._host.damaged)
            if metadata.is_done(gid.range_id, gid.generation)
        ]
        if over:
            self._begin("retire", self._retire(over))

    def _begin(self, name: object, duty: "Awaitable[None]") -> None:
        """Run a duty in the background, one of each name at a time."""
        task = self._tasks.get(name)
        if task is not None and not task.done():
            if asyncio.iscoroutine(duty):
                duty.close()
            return
        self._tasks[name] = asyncio.ensure_future(self._guarded(name, duty))

    async def _guarded(self, name: object, duty: "Awaitable[None]") -> None:
        try:
            await duty
        except LognodeError as error:
            log.info("put off", extra={"fields": {"duty": name, "error": str(error)}})

    # New logs, and generations that were decided.

    async def _install(self, range_: Descriptor) -> None:
        if not range_.lineage:
            first = range_.members[range_.range_id % len(range_.members)]  # spreads the leaders
            await self._host.create_range(range_, Base(), campaign=first == self._node_id)
            return
        (parent,) = range_.lineage
        sealed = await self._sealed_base(range_.operation, parent)
        base = successor(sealed)
        mine = self._host.replica(GroupId(parent.range_id, parent.generation))
        campaign = mine is not None and mine.leads
        await self._host.create_range(range_, base, campaign=campaign)
        self._host.pinned.pop(("install", GroupId(parent.range_id, parent.generation)), None)
        if range_.operation:
            await self._installed(range_)

    async def _installed(self, range_: Descriptor) -> None:
        await self._report({"operation": range_.operation, "kind": "installed"})

    async def _sealed_base(self, operation: int, parent: Lineage) -> Base:
        """The parent's durable state at exactly its final index, from wherever it is."""
        gid = GroupId(parent.range_id, parent.generation)
        replica = self._host.replica(gid)
        if replica is not None:
            mine = lineage_of(gid, replica.state.durable_base)
            if mine == parent:
                return replica.state.durable_base
            if mine is not None and mine[:4] == parent[:4]:
                # The same entries gave another state here (executions 1.6).
                error = CorruptData("the state at the seal has another hash than its peers'")
                self._host.damage(replica, error)
        row = self._host.meta.get(rows.prepared_key(operation))
        if row is not None:
            base = Base.from_wire(row["base"])
            if is_at(base, parent):
                return base
        return await self._fetch_at(gid, parent, pin=("install", gid))

    async def _fetch_at(self, gid: GroupId, parent: Lineage | None, *, pin: object) -> Base:
        last: LognodeError = Unavailable(f"no other node has {gid}")
        for node in self._others(gid):
            try:
                base = await self._fetcher.fetch(node, gid, pin=pin)
            except LognodeError as error:
                last = error
                continue
            if parent is None or is_at(base, parent):
                return base
            last = Unavailable(f"node {node} has {gid} at another index")
        raise last

    def _others(self, gid: GroupId) -> list[int]:
        """The other nodes, those first that the range was on when it was last heard of."""
        metadata = self._view.metadata
        range_ = metadata.ranges.get(gid.range_id)
        members = range_.members if range_ is not None else ()
        nodes = [node for node in metadata.nodes if node != self._node_id]
        return sorted(nodes, key=lambda node: node not in members)

    # Operations.

    async def _copy_ahead(self, operation: Operation) -> None:
        """A new member fetches the files that exist, while the range goes on."""
        self._copies.add(operation.operation_id)
        for output in operation.outputs:
            if self._node_id not in output.members:
                return
        for range_id, generation in operation.inputs:
            gid = GroupId(range_id, generation)
            replica = self._host.replica(gid)
            if replica is None:
                await self._fetch_at(gid, None, pin=("copy", operation.operation_id))
            elif replica.state.memtable_bytes > _TAIL_BYTES:
                await self._flusher.flush(replica)
        await self._report({"operation": operation.operation_id, "kind": "copied"})

    async def _seal_and_prepare(self, operation: Operation) -> None:
        for range_id, generation in operation.inputs:
            gid = GroupId(range_id, generation)
            replica = self._host.replica(gid)
            if replica is not None:
                await self._seal(replica, operation)
            elif any(self._node_id in output.members for output in operation.outputs):
                await self._prepare(gid, operation)

    async def _seal(self, replica: RangeReplica, operation: Operation) -> None:
        replica.propose_seal(operation.operation_id)
        sealed = replica.state.sealed
        if sealed is None or replica.applied_index < sealed.final_index:
            return
        if replica.state.durable_base.applied_index < sealed.final_index:
            await self._flusher.flush(replica)  # the tail always goes to a file (executions 1.8)
        await self._tell_prepared(operation, replica.gid, replica.state.durable_base)

    async def _prepare(self, gid: GroupId, operation: Operation) -> None:
        self._copies.add(operation.operation_id)
        key = rows.prepared_key(operation.operation_id)
        row = self._host.meta.get(key)
        if row is None:
            base = await self._fetch_at(gid, None, pin=("copy", operation.operation_id))
            if not base.tables.get("sealed"):
                raise Unavailable(f"{gid} is not sealed yet")
            row = {"range": gid.range_id, "generation": gid.generation, "base": base.to_wire()}
            stored = row
            await self._sync.run(lambda: self._host.meta.commit({key: stored}))
        await self._tell_prepared(operation, gid, Base.from_wire(row["base"]))

    async def _tell_prepared(self, operation: Operation, gid: GroupId, base: Base) -> None:
        lineage = lineage_of(gid, base)
        if lineage is None:
            return
        await self._report(
            {"operation": operation.operation_id, "kind": "prepared", "lineage": list(lineage)}
        )

    # Catching up, and the end.

    async def _catch_up(self, replica: RangeReplica) -> None:
        """The leader's log no longer continues ours: install its base, in this generation."""
        leader = replica.leader or self._view.leader(replica.gid.range_id, replica.gid.generation)
        if leader is None or leader == self._node_id:
            raise RangeNotFound("no leader to fetch a base from", range=replica.gid.range_id)
        pin = ("base", replica.gid)
        base = await self._fetcher.fetch(leader, replica.gid, pin=pin)
        if base.applied_index > replica.applied_index:
            log.info(
                "base installed",
                extra={"fields": {"range": replica.gid.range_id, "index": base.applied_index}},
            )
            await self._host.reinstall_range(replica, base)
        self._host.pinned.pop(pin, None)

    async def _retire(self, gids: list[GroupId]) -> None:
        await self._host.retire(gids)
        open_operations = {rows.prepared_key(number) for number in self._view.metadata.operations}
        stale = [
            key for key, _ in self._host.meta.items(rows.PREPARED) if key not in open_operations
        ]
        if stale:
            await self._sync.run(lambda: self._host.meta.commit({}, stale))


def lineage_of(gid: GroupId, base: Base) -> Lineage | None:
    """The lineage that a durable base at its generation's seal gives; None before the seal."""
    sealed = base.tables.get("sealed")
    if not sealed or sealed[1] != base.applied_index:
        return None
    return Lineage(
        gid.range_id, gid.generation, base.applied_index, base.applied_term,
        base.tables["next_seq"], base.tables["last_timestamp_ms"], base.tables["hash"],
    )  # fmt: skip


def is_at(base: Base, parent: Lineage) -> bool:
    """Whether the base is the parent's state at exactly its final index (executions 1.6)."""
    gid = GroupId(parent.range_id, parent.generation)
    return lineage_of(gid, base) == parent


def successor(sealed: Base) -> Base:
    """The state in which the next generation begins: the same entries, an empty log."""
    tables = {**sealed.tables, "sealed": None}
    return Base(1, 0, list(sealed.manifest), tables)
