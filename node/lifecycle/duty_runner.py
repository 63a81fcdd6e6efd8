"""Carries out the duties of this node, which `partitions.duties` derives from the metadata.

`run` looks for duties after every change, and every half second while there are any. It begins the
duties that are not under way yet. Reports go to the controller's leader again and again until the
operation has advanced.
"""

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable, Generator
from functools import partial

from ...client.protocol.errors import CorruptData, LognodeError, RangeNotFound, Unavailable
from ...partitions import duties
from ...partitions.duties import Duty, Local
from ...partitions.facts import Report
from ...partitions.lineage import Gid
from ...raft.types import GroupId
from ...statemachine.range_state import Base
from ..directory import meta_keys
from ..directory.disk_room import DiskRoom
from ..metadata.view import View
from ..replicas.flush import Flusher
from ..replicas.host import Host
from ..replicas.range_replica import RangeReplica
from ..rules import base_fetches
from ..rules.base_fetches import (
    BeginLate,
    Copied,
    Fetch,
    Own,
    Parent,
    Pin,
    Reinstall,
    Store,
    Stored,
    fits,
    pin_of,
)
from ..rules.first_base import first_base
from ..rules.generation_ends import (
    End,
    PreparedEnd,
    is_at,
    prepared,
    prepared_end,
)
from ..runtime import unexpected
from ..runtime.slices import stepped_and_timed
from ..runtime.sync_thread import SyncThread
from ..runtime.unexpected import OnBroken
from .base_transfer import BaseFetcher
from .held_replicas import HeldReplicas
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
        self._copied: set[tuple[int, Gid]] = set()
        self._givers: dict[tuple[int, Gid], int] = {}
        """From which node the files for an operation were copied ahead."""
        self._pins: set[Pin] = set()
        self._prepared = {key for key, _ in host.meta.items(meta_keys.PREPARED)}
        """Keys of the rows of prepared states that are stored here."""
        self._ends: dict[str, PreparedEnd] = {}
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
        # Both before the duties are found, which takes many turns. What an operation prepared is
        # needed no longer only if its successors are not to begin, and these are in the metadata
        # once the operation is not.
        operations, kept = frozenset(metadata.operations), frozenset(self._prepared)
        self._copied = {done for done in self._copied if done[0] in operations}
        for done in [done for done in self._givers if done[0] not in operations]:
            del self._givers[done]
        self._hold_merges()
        found = yield from duties.steps(metadata, self._local())
        for duty in found:
            name = duties.name_of(duty)
            if name not in self._tasks:
                task = self._tasks[name] = asyncio.ensure_future(self._do(duty))
                task.add_done_callback(partial(self._ended, name))
            yield
        names = {*map(duties.name_of, found), *self._tasks}
        for pin in base_fetches.unpinned(self._pins, self._view.metadata.operations, names):
            self._host.pinned.unpin(pin)
            self._pins.discard(pin)
        self._forget_prepared(set(base_fetches.prepared_over(kept, operations, found)))
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
        own = prepared(self._view.metadata.operations, self._prepared_end)
        return Local(
            node_id=self._node_id,
            replicas=HeldReplicas(self._host),
            damaged=(*self._host.damaged, *self._host.aside),
            halted=self._host.halted,
            marks=self._host.marks,
            copied=self._copied,
            prepared=own.ends,
            prepared_effects=own.effects,
            builds_at_once=self._flusher.builds_at_once,
        )

    def _prepared_end(self, key: str) -> PreparedEnd | None:
        """Return the end in the row of a prepared state; None without the row."""
        if key not in self._ends and key in self._prepared:
            row = self._host.meta.get(key)
            if row is not None:
                self._ends[key] = prepared_end(row)
        return self._ends.get(key)

    async def _do(self, duty: Duty) -> None:
        match duty:
            case duties.Begin():
                async with self._begins:
                    if not duty.range_.lineage:
                        await self._young.few()
                    await self._begin(duty)
            case duties.Tell():
                await self._report(duty.report())
                return
            case duties.Copy():
                await self._copy(duty)
            case duties.Flush(gid):
                await self._flusher.flush(self._replica(gid))
            case duties.Seal(gid, operation):
                self._replica(gid).propose_seal(operation)
                return
            case duties.LearnEnd(gid, index, term):
                self._replica(gid).learn_commit(index, term)
                return
            case duties.Prepare(gid):
                await self._use(duty, gid, await self._fetch_sealed(duty))
            case duties.CatchUp(gid):
                await self._catch_up(duty, self._replica(gid))
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
            raise RangeNotFound(f"this node no longer has a replica of {gid}", range=gid[0])
        return replica

    # Generations that are to begin.

    async def _begin(self, duty: duties.Begin) -> None:
        if duty.late:  # the other members have continued without this node
            late = (duty.range_.range_id, duty.range_.generation)
            await self._use(duty, late, await self._fetch_any(duty, GroupId(*late)))
            return
        ends = [await self._end_of(parent, duty) for parent in base_fetches.parents_of(duty)]
        policy = self._view.policy(duty.range_.log_id)
        begin = partial(
            first_base, duty.range_, ends, lost="recovered" in duty.parents,
            has_partitions=policy is not None and policy.kafka_partitions is not None,
        )  # fmt: skip
        # The tables of several parents may have a million rows, which nothing else changes.
        base = await asyncio.to_thread(begin) if len(ends) > 1 else begin()
        replica = await self._host.create_range(duty.range_, base, campaign=duty.campaign)
        if replica is not None:
            self._young.add(replica)

    async def _end_of(self, parent: Parent, duty: duties.Begin) -> Base:
        """Return the parent's state at its end."""
        match parent:
            case Own(gid):
                return self._replica(gid).state.durable_base
            case Stored(gid, key):
                row = self._host.meta.get(key)
                if row is None:
                    raise RangeNotFound(
                        f"the data that the node prepared for {gid} is gone", range=gid[0]
                    )
                return Base.from_wire(row["base"])
            case Fetch(gid, end):
                group = GroupId(*gid)
                return await self._own_end(group, end) or await self._fetch_any(duty, group)

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
                return base if is_at(gid, base, end) else None
            if time.monotonic() > until:
                break
            await asyncio.sleep(_SEALED_POLL_S)
        return None

    def _pin(self, duty: Duty, gid: Gid) -> Pin:
        """Return the name under which a generation's files are pinned here for the duty."""
        pin = pin_of(duty, gid)
        self._pins.add(pin)
        return pin

    async def _use(self, duty: Duty, gid: Gid, base: Base) -> None:
        """Use a peer's base that fits the duty and whose files are here."""
        match base_fetches.use_of(duty, gid, base):
            case Reinstall():
                await self._host.reinstall_range(self._replica(gid), base)
            case Copied(operation):
                self._copied.add((operation, gid))
            case Store(puts):
                self._prepared.update(puts)
                await self._sync.run(lambda: self._host.meta.commit(puts))
                for key in puts:
                    self._ends.pop(key, None)
            case BeginLate(range_):
                await self._host.create_range(range_, base, campaign=False)

    async def _fetch_any(self, duty: Duty, gid: GroupId) -> Base:
        """Fetch a base of the generation that fits the duty, from any other node.

        For a `Prepare`, return that of the first node that has any: see `_fetch_sealed`. Appends
        wait for this fetch, and it needs only files that are too young for a tier.
        """
        if isinstance(duty, duties.Copy):
            fetch = self._fetcher.fetch_ahead
        else:
            from_tier = not isinstance(duty, duties.Prepare)
            fetch = partial(self._fetcher.fetch, from_tier=from_tier)
        self._check_room()
        last: LognodeError = Unavailable(f"no other node has {gid}")
        first = self._first_to_ask(duty, gid)
        for node in base_fetches.sources_of(duty, gid, self._view.metadata, self._node_id, first):
            try:
                base = await fetch(node, gid, pin=self._pin(duty, gid))
            except LognodeError as error:
                last = error
                continue
            if isinstance(duty, duties.Copy):
                self._givers[duty.operation, gid] = node
            if isinstance(duty, duties.Prepare) or fits(duty, gid, base):
                return base
            last = Unavailable(f"node {node} has {gid} at another index, or with another state")
        raise last

    def _first_to_ask(self, duty: Duty, gid: GroupId) -> int | None:
        """Return the node whose files cost the least: what is here already, or in the tier.

        Each member may have frozen its memtables otherwise. The files in the tier are the leader's.
        """
        if isinstance(duty, duties.Prepare):
            return self._givers.get((duty.operation, gid))
        if self._host.kept.gives_files:
            return self._view.leader(gid.range_id, gid.generation)
        return None

    def _check_room(self) -> None:
        if not self._room.may_fetch:
            raise Unavailable(
                f"{self._room.free} bytes are free on the disk, too few to fetch files"
            )

    # Operations.

    async def _copy(self, duty: duties.Copy) -> None:
        replica = self._host.replica(GroupId(*duty.gid))
        if replica is None:
            base = await self._fetch_any(duty, GroupId(*duty.gid))
            await self._use(duty, duty.gid, base)
        else:
            await self._flush_ahead(replica)
            self._copied.add((duty.operation, duty.gid))

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

    async def _fetch_sealed(self, duty: duties.Prepare) -> Base:
        """Return the base at the generation's end, once it is durable at the peer that was copied.

        Each member flushes for itself, so that another peer has other files.
        """
        until = time.monotonic() + _SEALED_WAIT_S
        while True:
            base = await self._fetch_any(duty, GroupId(*duty.gid))
            if fits(duty, duty.gid, base):
                return base
            if time.monotonic() > until:
                raise Unavailable(f"{duty.gid} is not sealed yet")
            await asyncio.sleep(_SEALED_POLL_S)

    def _stand_down(self, replica: RangeReplica) -> None:
        """Stop the replica. Its data stay until the metadata says that the generation is over."""
        replica.stop()
        gid = {"range": replica.gid.range_id, "generation": replica.gid.generation}
        log.warning("the replica takes no part: its range is recovered without this member",
                    extra={"fields": gid})  # fmt: skip

    # Catching up.

    async def _catch_up(self, duty: duties.CatchUp, replica: RangeReplica) -> None:
        gid = replica.gid
        leader = replica.leader or self._view.leader(gid.range_id, gid.generation)
        peers = base_fetches.sources_of(duty, gid, self._view.metadata, self._node_id, leader)
        if not peers:
            raise RangeNotFound("the group has no leader to fetch a base from", range=gid.range_id)
        self._check_room()
        base = await self._fetcher.fetch(peers[0], gid, pin=self._pin(duty, gid))
        if fits(duty, replica.gid, base, replica.applied_index):
            log.info(
                "base installed",
                extra={"fields": {"range": gid.range_id, "index": base.applied_index}},
            )
            await self._use(duty, gid, base)


def _is_worth_a_flush(left: int, before: float) -> bool:
    """Whether another flush is worth it: each small file must be much smaller than the last."""
    return left > duties.TAIL_BYTES or (left > duties.LITTLE_BYTES and 2 * left < before)
