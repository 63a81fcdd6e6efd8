"""Carries out the duties of this node, which `partitions.duties` derives from the metadata.

`run` looks for duties after every change, and every half second while there are any. It begins the
duties that are not under way yet. Reports go to the controller's leader again and again until the
operation has advanced.
"""

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable, Generator, Hashable
from functools import partial

from ...client.protocol.errors import CorruptData, LognodeError, RangeNotFound, Unavailable
from ...partitions import duties
from ...partitions.duties import Duty, Local
from ...partitions.facts import Report
from ...partitions.lineage import Gid, effects_of
from ...partitions.model import Lineage
from ...raft.types import GroupId
from ...statemachine.effects import differ
from ...statemachine.range_state import Base
from ..directory import meta_keys
from ..directory.disk_room import DiskRoom
from ..metadata.view import View
from ..replicas.flush import Flusher
from ..replicas.host import Host
from ..replicas.range_replica import RangeReplica
from ..runtime import unexpected
from ..runtime.slices import stepped_and_timed
from ..runtime.sync_thread import SyncThread
from ..runtime.unexpected import OnBroken
from .base_transfer import BaseFetcher
from .first_base import first_base
from .held_replicas import HeldReplicas, end_of
from .young import Young

_PERIOD_S = 0.5
_IDLE_PERIOD_S = 30.0
"""Period of looks while there are no duties: a safety net, since changes wake `run`."""
_LOOKING_SHARE = 4
"""A look goes over all ranges, in slices of the loop's time. The pause before the next look is at
least this many times as long as the look took."""
_SEALED_POLL_S = 0.02
_OWN_END_S = 1.0
"""How long to wait until this member reaches the end that its peers decided without it."""
_SEALED_WAIT_S = 2.0
"""How long a new member waits for its peers to flush the end of a generation; appends wait."""
_FLUSHES_S = 10.0
"""How long flushes ahead of a seal may follow each other."""
_NO_MERGE_S = 5.0
"""No merge begins for this long after the last look that saw an operation on a range."""
_BEGINS = 32
"""Replicas that begin at the same time: they share their syncs, and the loop runs in between."""
_RETIRES = 128
"""Replicas that retire at the same time: they share a transaction, and the loop runs in between."""

End = tuple[Lineage, bytes]
"""How a generation ended, and the hash of the effects of its entries."""

log = logging.getLogger("lognode.duties")


class DutyRunner:
    """Carries out the duties of this node. Runs on every node."""

    def __init__(
        self,
        *,
        node_id: int,
        host: Host,
        view: View,
        flusher: Flusher,
        fetcher: BaseFetcher,
        sync: SyncThread,
        report: Callable[[Report], Awaitable[None]],
        room: DiskRoom,
        on_broken: OnBroken,
    ) -> None:
        self._room = room
        self._node_id = node_id
        self._host = host
        self._view = view
        self._flusher = flusher
        self._fetcher = fetcher
        self._sync = sync
        self._report = report
        self._on_broken = on_broken
        self._wake = asyncio.Event()
        self._begins = asyncio.Semaphore(_BEGINS)
        self._young = Young()
        self._tasks: dict[object, asyncio.Task[None]] = {}
        self._copied: set[tuple[int, tuple[int, int]]] = set()
        self._pins: set[tuple[str, int, Gid]] = set()
        """Names under which files are pinned here until the operation (the second element) ends."""
        self._fetching: dict[Hashable, set[Hashable]] = {}
        """The names under which files are pinned here for each duty, by the duty's name."""
        self._prepared = {key for key, _ in host.meta.items(meta_keys.PREPARED)}
        """Keys of the rows of prepared states that are stored here."""
        self._ends: dict[str, tuple[Lineage | None, bytes]] = {}
        """How the input of each such row ended, and its effects, once they were read."""

    def wake(self) -> None:
        """Look for duties again: something changed."""
        self._wake.set()

    async def run(self) -> None:
        """Run until cancelled."""
        try:
            while True:
                busy, took = await stepped_and_timed(self._look())
                try:
                    async with asyncio.timeout(_PERIOD_S if busy else _IDLE_PERIOD_S):
                        await self._wake.wait()
                except TimeoutError:
                    pass
                await asyncio.sleep(_LOOKING_SHARE * took)
                self._wake.clear()
        finally:
            for task in list(self._tasks.values()):
                task.cancel()

    def _look(self) -> Generator[None, None, bool]:
        """Begin duties that are not under way; return False if there is no duty for now."""
        metadata = self._view.metadata
        # Before the duties are found: what an operation prepared is needed no longer only if its
        # successors are not to begin, and these are in the metadata by then.
        over = {
            key
            for key in self._prepared
            if meta_keys.prepared_operation(key) not in metadata.operations
        }
        for pin in [pin for pin in self._pins if pin[1] not in metadata.operations]:
            self._host.pinned.unpin(pin)
            self._pins.discard(pin)
        self._copied = {done for done in self._copied if done[0] in metadata.operations}
        self._hold_merges()
        found = yield from duties.steps(metadata, self._local())
        wanted: set[Hashable] = set()
        for duty in found:
            name = duties.name_of(duty)
            wanted.add(name)
            if name not in self._tasks:
                task = self._tasks[name] = asyncio.ensure_future(self._do(duty))
                task.add_done_callback(partial(self._ended, name))
            yield
        self._unpin_but(wanted)
        if not any(isinstance(duty, duties.Begin) for duty in found):  # a Begin may use them
            self._forget_prepared(over)
        return bool(found or metadata.operations)

    def _hold_merges(self) -> None:
        """Put off merges of ranges with an operation.

        A new member has not copied a merged file, and would fetch it while appends wait.
        """
        for operation in self._view.metadata.operations.values():
            for gid in operation.inputs:
                replica = self._host.replica(GroupId(*gid))
                if replica is not None:
                    replica.put_off_merges(time.monotonic() + _NO_MERGE_S)

    def _unpin_but(self, wanted: set[Hashable]) -> None:
        """Unpin files fetched for duties that no longer exist: they ended, or never will."""
        for name in self._fetching.keys() - wanted - self._tasks.keys():
            for pin in self._fetching.pop(name):
                self._host.pinned.unpin(pin)

    def _forget_prepared(self, over: set[str]) -> None:
        """Remove prepared states of operations that are over: they were used, or never will be."""
        if over and "Forget" not in self._tasks:
            task = self._tasks["Forget"] = asyncio.ensure_future(self._forget(over))
            task.add_done_callback(partial(self._ended, "Forget"))

    async def _forget(self, over: set[str]) -> None:
        await self._sync.run(lambda: self._host.meta.commit({}, list(over)))
        self._prepared -= over
        for key in over:
            self._ends.pop(key, None)
        await self._host.collect_garbage()

    def _ended(self, name: object, task: "asyncio.Task[None]") -> None:
        del self._tasks[name]
        error = unexpected.ended(task, self._on_broken)
        if error is not None:
            level = logging.INFO if isinstance(error, LognodeError) else logging.ERROR
            log.log(level, "put off", extra={"fields": {"duty": name, "error": str(error)}})

    def _local(self) -> Local:
        """Return the state of this node, as input for `partitions.duties`."""
        prepared: dict[tuple[int, Gid], Lineage | None] = {}
        effects: dict[tuple[int, Gid], bytes] = {}
        for operation in self._view.metadata.operations.values():
            number = operation.operation_id
            for gid in operation.inputs:
                known = self._prepared_end(meta_keys.prepared_key(number, gid[0]), GroupId(*gid))
                if known is not None:
                    prepared[number, gid], effects[number, gid] = known
        return Local(
            node_id=self._node_id,
            replicas=HeldReplicas(self._host),
            damaged=(*self._host.damaged, *self._host.aside),
            halted=self._host.halted,
            marks=self._host.marks,
            copied=self._copied,
            prepared=prepared,
            prepared_effects=effects,
        )

    def _prepared_end(self, key: str, gid: GroupId) -> tuple[Lineage | None, bytes] | None:
        """Return how the input in the row ended, and its effects; None without the row."""
        if key not in self._ends and key in self._prepared:
            row = self._host.meta.get(key)
            if row is not None:
                base = Base.from_wire(row["base"])
                self._ends[key] = end_of(gid, base), effects_of(base.tables)
        return self._ends.get(key)

    async def _do(self, duty: Duty) -> None:
        match duty:
            case duties.Begin():
                async with self._begins:
                    if not duty.range_.lineage:
                        await self._young.few()
                    await self._begin(duty)
            case duties.Tell(operation, kind, lineage, effects):
                told = {} if lineage is None else {"lineage": list(lineage), "effects": effects}
                await self._report({"operation": operation, "kind": kind, **told})
                return
            case duties.Copy(gid, operation):
                await self._copy(GroupId(*gid), operation)
            case duties.Flush(gid):
                await self._flusher.flush(self._replica(gid))
            case duties.Seal(gid, operation):
                self._replica(gid).propose_seal(operation)
                return
            case duties.Prepare(gid, operation):
                await self._prepare(GroupId(*gid), operation)
            case duties.CatchUp(gid):
                await self._catch_up(self._replica(gid), pin=self._pin_of(duty, gid))
            case duties.Damage(gid, reason):
                self._host.damage(self._replica(gid), CorruptData(reason))
            case duties.GoAlone(gid):
                await self._host.go_on_alone(self._replica(gid))
            case duties.StandDown(gid):
                self._stand_down(self._replica(gid))
            case duties.Retire(gids):
                for at in range(0, len(gids), _RETIRES):
                    await self._host.retire([GroupId(*gid) for gid in gids[at : at + _RETIRES]])
        self.wake()  # this duty may have made the next one due

    def _replica(self, gid: tuple[int, int]) -> RangeReplica:
        replica = self._host.replica(GroupId(*gid))
        if replica is None:
            raise RangeNotFound(f"no replica of {gid} on this node any more", range=gid[0])
        return replica

    # Generations that are to begin.

    async def _begin(self, duty: duties.Begin) -> None:
        if duty.late:
            await self._begin_late(duty)
            return
        ends = [
            await self._end_of(end, source, duty)
            for end, source in zip(duty.range_.ends(), duty.parents, strict=True)
        ]
        begin = partial(first_base, duty.range_, ends, lost="recovered" in duty.parents)
        # The tables of several parents may have a million rows, which nothing else changes.
        base = await asyncio.to_thread(begin) if len(ends) > 1 else begin()
        replica = await self._host.create_range(duty.range_, base, campaign=duty.campaign)
        if replica is not None:
            self._young.add(replica)

    async def _end_of(self, end: End, source: duties.Source, duty: duties.Begin) -> Base:
        """Return the parent's state at its end."""
        gid = GroupId(*end[0][:2])
        if source in ("own", "recovered"):
            return self._replica(gid).state.durable_base
        if source == "peers":
            own = await self._own_end(gid, end)
            return own or await self._fetch_at(gid, end, pin=self._pin_of(duty, gid))
        row = self._host.meta.get(meta_keys.prepared_key(duty.range_.operation, gid.range_id))
        if row is None:
            raise RangeNotFound(f"what was prepared of {gid} is gone", range=gid.range_id)
        return Base.from_wire(row["base"])

    async def _own_end(self, gid: GroupId, end: End) -> Base | None:
        """Return this member's own state at the generation's end, if it gets there in a moment.

        The others decide without it as soon as they are a majority. This member may be their
        leader, which is the busiest. If it fetched a state that it has but for a few entries, no
        member of the new generation would stand for election before an election timeout.
        """
        until = time.monotonic() + _OWN_END_S
        while (replica := self._host.replica(gid)) is not None and not replica.stopped:
            if replica.state.sealed is not None:
                await self._flusher.flush(replica, hurried=True)
                base = replica.state.durable_base
                return base if _is_at(gid, base, end) else None
            if time.monotonic() > until:
                break
            await asyncio.sleep(_SEALED_POLL_S)
        return None

    def _pin_of(self, duty: Duty, gid: Gid) -> Hashable:
        """Return a pin for a generation's files, which lasts as long as the duty is wanted."""
        name = duties.name_of(duty)
        pin = (name, tuple(gid))
        self._fetching.setdefault(name, set()).add(pin)
        return pin

    def _pin_for(self, operation: int, gid: Gid) -> Hashable:
        """Return a pin for a generation's files, which lasts as long as the operation."""
        pin = ("copy", operation, gid)
        self._pins.add(pin)
        return pin

    async def _begin_late(self, duty: duties.Begin) -> None:
        """Begin from a peer's base: the other members have continued without this node."""
        gid = GroupId(duty.range_.range_id, duty.range_.generation)
        base = await self._fetch_at(gid, None, pin=self._pin_of(duty, gid))
        await self._host.create_range(duty.range_, base, campaign=False)

    async def _fetch_at(
        self, gid: GroupId, end: End | None, *, pin: object, ahead: bool = False
    ) -> Base:
        """Fetch a base of the generation from any other node; with `end`, only that at the end."""
        fetch = self._fetcher.fetch_ahead if ahead else self._fetcher.fetch
        self._check_room()
        last: LognodeError = Unavailable(f"no other node has {gid}")
        for node in self._others(gid):
            try:
                base = await fetch(node, gid, pin=pin)
            except LognodeError as error:
                last = error
                continue
            if end is None or _is_at(gid, base, end):
                return base
            last = Unavailable(f"node {node} has {gid} at another index, or with another state")
        raise last

    def _check_room(self) -> None:
        if not self._room.may_fetch:
            raise Unavailable(f"{self._room.free} bytes are left on the disk: nothing is fetched")

    def _others(self, gid: GroupId) -> list[int]:
        """Return the other nodes, beginning with the last known members of the range."""
        metadata = self._view.metadata
        range_ = metadata.ranges.get(gid.range_id)
        members = range_.members if range_ is not None else ()
        nodes = [
            node.node_id
            for node in metadata.nodes.values()
            if node.node_id != self._node_id and node.state != "REMOVED"
        ]
        return sorted(nodes, key=lambda node: node not in members)

    # Operations.

    async def _copy(self, gid: GroupId, operation: int) -> None:
        replica = self._host.replica(gid)
        if replica is None:
            await self._fetch_at(gid, None, pin=self._pin_for(operation, gid), ahead=True)
        else:
            await self._flush_ahead(replica)
        self._copied.add((operation, gid))

    async def _flush_ahead(self, replica: RangeReplica) -> None:
        """Leave little in memory for the seal, at which appends wait for the flush.

        Each flush leaves the entries that came while it was built. These are fewer each time, as
        long as building is faster than appending. Otherwise the flushes end all the same.
        """
        until = time.monotonic() + _FLUSHES_S
        await self._flusher.flush(replica)
        before: float = math.inf
        while _is_worth_a_flush(replica.state.memtable_bytes, before) and time.monotonic() < until:
            before = replica.state.memtable_bytes
            await self._flusher.flush(replica, hurried=True)

    async def _prepare(self, gid: GroupId, operation: int) -> None:
        base = await self._fetch_sealed(gid, pin=self._pin_for(operation, gid))
        row = {"range": gid.range_id, "generation": gid.generation, "base": base.to_wire()}
        key = meta_keys.prepared_key(operation, gid.range_id)
        self._prepared.add(key)
        await self._sync.run(lambda: self._host.meta.commit({key: row}))
        self._ends.pop(key, None)

    async def _fetch_sealed(self, gid: GroupId, *, pin: object) -> Base:
        """Return the base at the generation's end, once it is durable at the peer that was copied.

        Each member flushes for itself, so that another peer has other files.
        """
        until = time.monotonic() + _SEALED_WAIT_S
        while True:
            base = await self._fetch_at(gid, None, pin=pin)
            if base.tables.get("sealed"):
                return base
            if time.monotonic() > until:
                raise Unavailable(f"{gid} is not sealed yet")
            await asyncio.sleep(_SEALED_POLL_S)

    def _stand_down(self, replica: RangeReplica) -> None:
        """Stop the replica. Its data stay until the metadata says that the generation is over."""
        replica.stop()
        gid = {"range": replica.gid.range_id, "generation": replica.gid.generation}
        log.warning("replica takes no part: its range is recovered without it",
                    extra={"fields": gid})  # fmt: skip

    # Catching up.

    async def _catch_up(self, replica: RangeReplica, *, pin: Hashable) -> None:
        leader = replica.leader or self._view.leader(replica.gid.range_id, replica.gid.generation)
        if leader is None or leader == self._node_id:
            raise RangeNotFound("no leader to fetch a base from", range=replica.gid.range_id)
        self._check_room()
        base = await self._fetcher.fetch(leader, replica.gid, pin=pin)
        if base.applied_index > replica.applied_index:
            log.info(
                "base installed",
                extra={"fields": {"range": replica.gid.range_id, "index": base.applied_index}},
            )
            await self._host.reinstall_range(replica, base)


def _is_worth_a_flush(left: int, before: float) -> bool:
    """Whether another flush is worth it: each small file must be much smaller than the last."""
    return left > duties.TAIL_BYTES or (left > duties.LITTLE_BYTES and 2 * left < before)


def _is_at(gid: GroupId, base: Base, end: End) -> bool:
    """Whether the base is the state at that end."""
    lineage, effects = end
    return end_of(gid, base) == lineage and not differ(effects_of(base.tables), effects)
