"""The replicas of a node: recovered at start, created, sealed and retired, each only once.

This module keeps an old member from harm. `mark` keeps a generation from being created at or below
another that was started before (x3). `started` and the WAL's group must both be there, or the
replica is damaged (x2). A base is in meta before its replica takes part.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Protocol, TypeVar, cast

from ...client.protocol.errors import CorruptData, Unavailable
from ...client.protocol.invariants import invariant
from ...partitions.metadata import Metadata
from ...partitions.model import CONTROLLER_RANGE, Descriptor
from ...raft.group_log import GroupLog
from ...raft.types import GroupId
from ...raft.wal import Wal
from ...statemachine.meta import MetaStore
from ...statemachine.producers import Producers
from ...statemachine.range_state import Base, RangeState
from ...statemachine.segment_format import SegmentInfo
from ...statemachine.segments import Removed, SegmentStore
from ...statemachine.unknown import UnknownCommandError
from ..directory import feature_level, meta_keys
from ..directory.image_rows import ImageRows
from ..directory.kept_files import KeptFiles
from ..directory.meta_puts import MetaPuts
from ..directory.sound_files import SoundFiles
from ..rules import recovering
from ..rules.beginning import begin, may_begin
from ..rules.durable_steps import (
    Begin,
    CheckAside,
    CheckFiles,
    CheckPresent,
    CollectFiles,
    Commit,
    CreateLog,
    Damaged,
    Mark,
    RaiseCommit,
    ResetLog,
    RetireLogs,
    Rows,
    SetAside,
    SettleRows,
    Step,
    Steps,
    Stop,
    SyncLogs,
)
from ..rules.ending import damage, files_of, need, needed, retire
from ..rules.flushing import cut_log
from ..rules.recovering import Stored
from ..rules.reinstalling import alone, go_alone, reinstall
from ..rules.repairing import step_failed
from ..runtime.slices import stepped
from ..runtime.sync_thread import SyncThread
from .base_files import BaseFiles
from .controller_replica import ControllerReplica
from .controller_store import ControllerStore
from .pinned_files import PinnedFiles
from .range_replica import RangeReplica
from .replica import Replica, Services
from .rounds import Rounds

log = logging.getLogger("lognode.host")


AnyReplica = TypeVar("AnyReplica", bound=Replica)
Made = TypeVar("Made", bound=Replica, covariant=True)


class MakeReplica(Protocol[Made]):
    """Makes a replica from its log, and lets the replica take part."""

    def __call__(self, raft_log: GroupLog, *, campaign: bool) -> Made: ...


class Host:
    """All replicas of this node, by group and, while they serve, by range.

    `hash_files`: the last stop was not orderly, so recovery hashes the segments that were never
    read back.
    """

    def __init__(
        self,
        *,
        wal: Wal,
        meta: MetaStore,
        sync: SyncThread,
        rounds: Rounds,
        store: SegmentStore,
        services: Services,
        links_up: Callable[[], dict[int, int]],
        links_full: Callable[[], list[int]],
        on_change: Callable[[], None],
        hash_files: bool,
    ) -> None:
        self.sound = SoundFiles(meta, sync)
        self.kept = KeptFiles(meta, sync)
        self._base_files = BaseFiles(store, self.kept, self.sound, hash_files=hash_files)
        self._rows: set[GroupId] = set()
        """Replicas of ranges that may have a row in meta."""
        self._storing: dict[GroupId, asyncio.Future[None]] = {}
        """Damage that meta does not have yet."""
        self._wal = wal
        self.meta = meta
        self._puts = MetaPuts(meta, sync)
        self._controllers = ControllerStore(meta, sync)
        self._sync = sync
        self._rounds = rounds
        self.store = store
        self._services = services
        self._links_up = links_up
        self._links_full = links_full
        self._on_change = on_change
        self.groups: dict[GroupId, Replica] = {}
        self._ranges: tuple[RangeReplica, ...] | None = None
        """What `ranges` returns; None after a change of `groups`."""
        self.damaged: dict[GroupId, str] = {}
        self.aside: dict[GroupId, SetAside] = {}
        """Replicas that take no part until their damaged files are repaired."""
        self.halted: dict[GroupId, str] = {}
        """Why each replica takes no part until the node is upgraded."""
        self.controller: ControllerReplica | None = None
        self.pinned = PinnedFiles()
        self.marks: dict[int, int] = {}
        """The highest generation that was ever started here, per range."""
        self._serving: dict[int, RangeReplica] = {}
        self._full_peers: set[int] = set()
        """Peers whose disks are full."""
        self._retiring: set[GroupId] = set()
        """Replicas whose rows are being deleted; their logs go afterwards."""

    # Looking up.

    def serving(self, range_id: int) -> RangeReplica | None:
        """Return the newest replica of the range here, sealed or not, or None."""
        return self._serving.get(range_id)

    def replica(self, gid: GroupId) -> RangeReplica | None:
        """Return the replica of exactly this generation, or None."""
        found = self.groups.get(gid)
        return found if isinstance(found, RangeReplica) else None

    def ranges(self) -> tuple[RangeReplica, ...]:
        """Return every range replica. All that looks at the ranges at rest shares the tuple."""
        if self._ranges is None:
            self._ranges = tuple(r for r in self.groups.values() if isinstance(r, RangeReplica))
        return self._ranges

    # Start and stop.

    async def recover(self) -> None:
        """Start every replica that meta knows and whose log in the WAL is whole."""
        for key, value in self.meta.items(meta_keys.MARK):
            self.marks[int(key[len(meta_keys.MARK) :])] = value
        for key, value in self.meta.items(meta_keys.CONTROLLER):
            await self._recover_controller(key, value)
        await self.sound.load(self.store.content_ids)
        self.kept.load()
        for key, value in self.meta.items(meta_keys.REPLICA):
            await self._recover_range(key, value)
        await self._carry_out(recovering.unknown_logs(self._wal.groups, self._stored(), self.marks))
        await self.sound.add(self._base_files.hashed)
        await self.collect_garbage()

    async def _recover_controller(self, key: str, row: dict[str, Any]) -> None:
        descriptor = Descriptor.from_wire(row["descriptor"])
        applied = (row["applied"][0], row["applied"][1])

        def make(raft_log: GroupLog, *, campaign: bool) -> ControllerReplica:
            stored = ImageRows(meta_keys.controller_buckets(descriptor.generation))
            metadata = stored.load(self.meta.items(stored.prefix), row)
            return self._begin_controller(
                descriptor, metadata, applied, stored, raft_log, campaign=campaign
            )

        await self._carry_out(self._recovery(Stored(key, row, descriptor, applied)), make)

    async def _recover_range(self, key: str, row: dict[str, Any]) -> None:
        self._rows.add(recovering.row_gid(key))
        descriptor, base = Descriptor.from_wire(row["descriptor"]), Base.from_wire(row["base"])
        stored = Stored(key, row, descriptor, _applied(base))
        make = partial(self._begin_range, descriptor, base, None)
        for step in self._recovery(stored):
            if isinstance(step, CheckFiles):
                bad = await self._base_files.bad(stored.gid, base)
                await self._carry_out(recovering.files_checked(stored, bad), make)
            else:
                await self._carry_out((step,), make)

    def _recovery(self, stored: Stored) -> Steps:
        log_ = self._wal.groups.get(stored.gid)
        return recovering.recover(stored, log_, self._wal.recovery.damaged.get(stored.gid))

    def _stored(self) -> list[GroupId]:
        """Return the groups that have a row in meta."""
        rows = [*self.meta.items(meta_keys.REPLICA), *self.meta.items(meta_keys.CONTROLLER)]
        return [recovering.row_gid(key) for key, _ in rows]

    def stop(self) -> None:
        """Stop every replica."""
        for replica in list(self.groups.values()):
            replica.stop()

    # Damage.

    def damage(self, replica: Replica, error: CorruptData) -> None:
        """Stop a replica whose own data is damaged. It never serves or votes again in this
        generation, not even after a restart (S12, x2). The other replicas continue.

        The node knows the damage at once. Other nodes learn of it once meta has it:
        `stored_damage`.
        """
        gid = replica.gid
        replica.stop()
        if self.groups.get(gid) is not replica:
            return
        for step in damage(gid, self._row(gid), error.message):
            if isinstance(step, Commit):
                self._storing[gid] = stored = self._commit(step)
                stored.add_done_callback(lambda _: self._storing.pop(gid, None))
            else:
                self._carry_out_now(step)
        self._on_change()

    @property
    def stored_damage(self) -> dict[GroupId, str]:
        """The damage that a restart would know, too: only this is told to other nodes."""
        return {gid: why for gid, why in self.damaged.items() if gid not in self._storing}

    def halt(self, replica: Replica, error: UnknownCommandError) -> None:
        """Stop a replica whose log holds a command of a newer program. It takes no part until the
        node runs such a program, whose start continues with that entry."""
        gid = replica.gid
        replica.stop()
        if self.groups.get(gid) is not replica:
            return
        self.halted[gid] = str(error)
        if self.controller is replica:
            self.controller = None
        log.critical(
            "the replica stops at a command of a newer program; upgrade this node",
            extra={"fields": {"range": gid.range_id, "generation": gid.generation,
                              "reason": str(error)}},
        )  # fmt: skip
        self._on_change()

    def set_aside(self, replica: RangeReplica, error: CorruptData) -> None:
        """Stop a replica that needs a damaged file and whose log is whole. It takes no part until
        the file is repaired, or for good when it cannot be."""
        replica.stop()
        if self.groups.get(replica.gid) is not replica:
            return
        files = (*replica.state.durable_base.manifest, *replica.state.manifest)
        bad: str = error.fields["segment"]
        for step in step_failed(replica.descriptor, files, bad, error.message):
            self._carry_out_now(step)
        self._on_change()

    async def carry_out(self, steps: Steps) -> None:
        """Carry out steps by which replicas are given up, or begin again from their rows."""
        await self._carry_out(steps)
        self._on_change()

    def rows_of(self, gids: Iterable[GroupId]) -> dict[GroupId, Any]:
        """Return the rows of those replicas that take part here, or wait for a file."""
        present = [gid for gid in gids if gid in self.groups or gid in self.aside]
        return {gid: self._row(gid) for gid in present}

    def _row(self, gid: GroupId) -> Any:
        """Return the row in meta of a replica, or None."""
        return self.meta.get(meta_keys.row_key(gid))

    def holders(self, content_id: str) -> dict[GroupId, tuple[Descriptor, SegmentInfo]]:
        """Return the replicas that need the file."""
        found = {
            replica.gid: (replica.descriptor, info)
            for replica in self.ranges()
            if (info := need(replica.state, content_id)) is not None
        }
        for gid, aside in self.aside.items():
            if content_id in aside.files:
                found[gid] = aside.descriptor, aside.files[content_id]
        return found

    def refusal(self, gid: GroupId) -> str | None:
        """Return why the replica of that generation takes no part now or for good, or None."""
        aside = self.aside.get(gid)
        if aside is not None:
            return "; ".join(aside.bad.values())
        return self.damaged.get(gid) or self.halted.get(gid)

    def _put_aside(self, aside: SetAside) -> None:
        gid = aside.gid
        self.aside[gid] = aside
        log.warning(
            "the replica waits for a damaged file",
            extra={"fields": {"range": gid.range_id, "generation": gid.generation,
                              "reason": "; ".join(aside.bad.values())}},
        )  # fmt: skip

    def _note_damage(self, gid: GroupId, reason: str) -> None:
        self.damaged[gid] = reason
        log.error(
            "the replica is damaged and takes no part; its peers go on without the replica",
            extra={"fields": {"range": gid.range_id, "generation": gid.generation,
                              "reason": reason}},
        )  # fmt: skip

    # Creating and retiring.

    async def create_range(
        self, descriptor: Descriptor, base: Base, *, campaign: bool
    ) -> RangeReplica | None:
        """Begin a generation here from a base whose files are in the store.

        Return None when this generation, or a later one, was started here before. Also return None
        when the WAL knows of a part in it that meta does not: the replica is then damaged (x2).
        """
        gid = GroupId(descriptor.range_id, descriptor.generation)
        if not may_begin(gid, self.groups, self.marks):
            return None
        with self.pinned.during(("begin", gid), (info.content_id for info in base.manifest)):
            places = self._base_files.places(descriptor, base)
            producers = await _producers(base)
            rows = Rows.of_range(descriptor, base, places)
            self._rows.add(gid)
            if places is not None:
                self.kept.take(gid, places)
            left = self._wal.groups.get(gid)
            steps = begin(gid, rows, _applied(base), left, campaign=campaign)
            make = partial(self._begin_range, descriptor, base, producers)
            begun = await self._carry_out(steps, make)
        if begun is None:
            return None
        log.info(
            "replica started",
            extra={"fields": {"range": gid.range_id, "generation": gid.generation,
                              "members": descriptor.members}},
        )  # fmt: skip
        return begun

    async def create_controller(
        self,
        descriptor: Descriptor,
        metadata: Metadata,
        applied: tuple[int, int],
        *,
        campaign: bool,
    ) -> ControllerReplica | None:
        """Begin a generation of the controller here, as `create_range` does for a range."""
        gid = GroupId(CONTROLLER_RANGE, descriptor.generation)
        if not may_begin(gid, self.groups, self.marks):
            return None
        rows, stored = await self._controllers.whole(descriptor, metadata, applied)
        steps = begin(gid, rows, applied, self._wal.groups.get(gid), campaign=campaign)
        make = partial(self._begin_controller, descriptor, metadata, applied, stored)
        return await self._carry_out(steps, make)

    async def checkpoint_controller(self, replica: ControllerReplica) -> None:
        """Store the metadata as applied now and cut the log behind it."""
        index = await self._controllers.checkpoint(replica)
        if index is None:
            return
        replica.checkpointed(index)
        if not replica.stopped:
            for _, last in cut_log(replica.gid, replica.raft_log, index, index):
                replica.raft_log.cut_front(last)
            self._rounds.kick()

    async def reinstall_range(self, replica: RangeReplica, base: Base) -> RangeReplica:
        """Continue from a later base of the same generation: the leader's log was cut too far.

        The replica continues as it was while the base is decoded. Raises Unavailable when the
        replica has ended, or has applied as much meanwhile.
        """
        self._check_runs(replica)
        producers = await _producers(base)
        self._check_runs(replica)
        self._base_files.check_has(replica.gid, base)
        rows = Rows.of_range(replica.descriptor, base)
        steps = reinstall(replica.gid, rows, _applied(base), replica.applied_index)
        make = partial(self._begin_range, replica.descriptor, base, producers)
        return await self._must_begin(steps, make)

    async def reinstall_controller(
        self, replica: ControllerReplica, metadata: Metadata, applied: tuple[int, int]
    ) -> ControllerReplica:
        """Do the same as `reinstall_range`, for the controller."""
        self._check_runs(replica)
        rows, stored = await self._controllers.whole(replica.descriptor, metadata, applied)
        self._check_runs(replica)
        steps = reinstall(replica.gid, rows, applied, replica.applied_index)
        make = partial(self._begin_controller, replica.descriptor, metadata, applied, stored)
        return await self._must_begin(steps, make)

    async def go_on_alone(self, replica: RangeReplica) -> None:
        """Let the replica continue as the only member of its generation (unsafe recovery).

        The replica keeps its log and base, leads at once in order to seal, and serves no client.
        Raises Unavailable when the replica has ended.
        """
        gid, key, raft_log = replica.gid, meta_keys.replica_key(replica.gid), replica.raft_log
        async with replica.base_turn:  # a base being stored now names the former members
            self._check_runs(replica)
            row: Any = self.meta.get(key)
            steps = go_alone(gid, key, row, self._services.node_id)
            descriptor = alone(replica.descriptor, self._services.node_id)
            log.warning(
                "the replica goes on alone to end its generation, for a recovery of its range",
                extra={"fields": {"range": gid.range_id, "generation": gid.generation,
                                  "last_index": raft_log.last_index,
                                  "last_term": raft_log.last_term}},
            )  # fmt: skip
            base = Base.from_wire(row["base"])
            await self._must_begin(steps, partial(self._begin_range, descriptor, base, None))

    def _check_runs(self, replica: Replica) -> None:
        """Raise Unavailable when the replica has ended meanwhile."""
        if self.groups.get(replica.gid) is not replica:
            raise Unavailable(f"the replica of {replica.gid} has ended meanwhile")

    def _check_present(self, gid: GroupId) -> None:
        """Raise Unavailable for a group that was retired: a new row would bring the group back."""
        if gid not in self._wal.groups or gid in self._retiring:
            raise Unavailable(f"the node has retired {gid} meanwhile")

    async def retire(self, gids: Iterable[GroupId]) -> None:
        """Free the logs, rows and files of generations that are over for good."""
        over = list(gids)
        self._retiring.update(over)
        await self._carry_out(retire(over))

    async def collect_garbage(self) -> None:
        """Remove the segment files that nothing names.

        For a running replica the state in memory names its files, without decoding its row:
        decoding a thousand rows took 20 ms of the loop.
        """
        rows = self.idle_rows()
        states = (replica.state for replica in self.ranges())
        pinned = self.pinned.content_ids()
        removed = self.store.forget_except(needed(states, rows.values(), pinned))
        await self.sound.forget([each.content_id for each in removed])
        await asyncio.shield(self._remove(removed))  # all of it, even if the caller is cancelled

    def idle_rows(self) -> dict[GroupId | str, Any]:
        """Return the rows that name files besides running replicas: of replicas that do not run, by
        group, and of prepared states, by key."""
        idle = self._rows - self.groups.keys()
        rows: dict[GroupId | str, Any] = {gid: self._row(gid) for gid in idle}
        return rows | dict(self.meta.items(meta_keys.PREPARED))

    async def give_up(self, content_ids: Iterable[str]) -> None:
        """Delete the copies of files that are in the tier for all that need them here."""
        removed = self.store.give_up(content_ids)
        await self.sound.forget([each.content_id for each in removed])
        await asyncio.shield(self._remove(removed))

    async def _remove(self, removed: Iterable[Removed]) -> None:
        """Remove one file at a time: other writes to meta wait for one removal at most."""
        for each in removed:
            await self._sync.run(partial(self.store.remove, each))

    # Links.

    def connected(self, peer: int, epoch: int) -> None:
        """Tell each replica that the link to a peer is up."""
        for replica in list(self.groups.values()):
            replica.connected(peer, epoch)

    def disconnected(self, peer: int) -> None:
        """Tell each replica that the link to a peer is down."""
        for replica in list(self.groups.values()):
            replica.disconnected(peer)

    def send_no_entries(self, peers: set[int]) -> None:
        """Set the peers whose disks are full: no entries are sent to them."""
        before, self._full_peers = self._full_peers, peers
        for peer in peers - before:
            self.pause(peer)
        for peer in before - peers - set(self._links_full()):
            self.resume(peer)

    def pause(self, peer: int) -> None:
        """Tell each replica that the link to a peer, or its disk, is full."""
        for replica in list(self.groups.values()):
            replica.pause(peer)

    def resume(self, peer: int) -> None:
        """Tell each replica that the link to a peer has room again."""
        if peer in self._full_peers:
            return
        for replica in list(self.groups.values()):
            replica.resume(peer)

    def synced(self, gids: Iterable[GroupId]) -> None:
        """Tell these groups' replicas that a WAL round that touched them is durable."""
        for gid in gids:
            replica = self.groups.get(gid)
            if replica is not None:
                replica.synced()

    # Internals.

    async def _must_begin(self, steps: Steps, make: MakeReplica[AnyReplica]) -> AnyReplica:
        """Carry out steps of which one begins a replica, and return the replica."""
        begun = await self._carry_out(steps, make)
        invariant(begun is not None, "steps without a replica that begins", steps=steps)
        return cast("AnyReplica", begun)

    async def _carry_out(
        self, steps: Steps, make: MakeReplica[AnyReplica] | None = None
    ) -> AnyReplica | None:
        """Carry out the steps one after another; return the replica that began, if any.

        `make` makes the replica of a `Begin` step; without `make` it begins from its row. Raises
        Unavailable when the group of a `CheckPresent` step was retired meanwhile, and DiskFailure.
        """
        begun = None
        for step in steps:
            match step:
                case Commit(puts, _, _, joint=True):
                    await self._puts.put(puts)
                case Commit():
                    await self._commit(step)
                case SyncLogs():
                    await self._rounds.durable()
                case CollectFiles():
                    await self.collect_garbage()
                case Begin(gid, campaign) if make is not None:
                    begun = make(self._wal.groups[gid], campaign=campaign)
                case Begin(gid, campaign):
                    self._begin_again(gid, campaign=campaign)
                case SettleRows():
                    await self._sync.run(lambda: None)
                case CheckAside(gid):
                    if gid not in self.aside or self._row(gid) is None:
                        return None
                case _:
                    self._carry_out_now(step)
        return begun

    def _commit(self, step: Commit) -> "asyncio.Future[None]":
        def commit() -> None:
            noted = feature_level.rows(self.meta.get, step.level)
            self.meta.commit({**step.puts, **noted}, step.deletes, step.prefixes)

        return self._sync.run(commit)

    def _carry_out_now(self, step: Step) -> None:
        """Carry out a step that needs no wait."""
        match step:
            case CreateLog(gid, (index, term)):
                self._wal.create_group(gid, index=index, term=term)
            case ResetLog(gid, base):
                self._wal.groups[gid].reset(*base)
            case RaiseCommit(gid, commit):
                self._wal.groups[gid].set_commit(commit)
            case RetireLogs(gids):
                for gid in gids:
                    self._wal.retire_group(gid)
                    self._forget(gid)
                self._rows.difference_update(gids)
                self.kept.forget(gids)
                self._retiring.difference_update(gids)
                self._rounds.kick()
            case Stop(gids):
                for gid in gids:
                    self._stop(gid)
            case CheckPresent(gid):
                self._check_present(gid)
            case Mark(gid):
                self.marks[gid.range_id] = gid.generation
            case Damaged(gid) if gid in self._retiring or self._row(gid) is None:
                pass  # it was retired while its row was stored
            case Damaged(gid, reason):
                self._forget(gid)
                if gid.range_id != CONTROLLER_RANGE:
                    self.store.doubt(files_of([self._row(gid)]))
                self._note_damage(gid, reason)
            case SetAside(gid):
                self._forget(gid)
                self._put_aside(step)
            case _:
                invariant(False, "a step that this executor does not know", step=step)

    def _stop(self, gid: GroupId) -> None:
        replica = self.groups.pop(gid, None)
        self._ranges = None
        for known in (self.damaged, self.aside, self.halted):
            known.pop(gid, None)
        if replica is not None:
            replica.stop()

    def _forget(self, gid: GroupId) -> None:
        """Forget a stopped replica that does not begin again."""
        serving = self._serving.get(gid.range_id)
        if serving is not None and serving.gid == gid:
            del self._serving[gid.range_id]
        if self.controller is not None and self.controller.gid == gid:
            self.controller = None

    def _begin_range(
        self, descriptor: Descriptor, base: Base, producers: Producers | None, raft_log: GroupLog,
        *, campaign: bool,
    ) -> RangeReplica:  # fmt: skip
        state = RangeState(
            start=descriptor.span.start, end=descriptor.span.end, store=self.store, base=base,
            producers=producers,
        )  # fmt: skip
        replica = RangeReplica(
            descriptor=descriptor,
            raft_log=raft_log,
            state=state,
            services=self._services,
            on_change=lambda _: self._on_change(),
        )
        self._adopt(replica, campaign=campaign)
        newest = self._serving.get(descriptor.range_id)
        if newest is None or newest.stopped or newest.gid.generation <= descriptor.generation:
            self._serving[descriptor.range_id] = replica
        return replica

    def _begin_again(self, gid: GroupId, *, campaign: bool) -> None:
        """Let a replica continue from its row and its log, as after a start."""
        row = self._row(gid)
        descriptor, base = Descriptor.from_wire(row["descriptor"]), Base.from_wire(row["base"])
        self.aside.pop(gid, None)
        self._begin_range(descriptor, base, None, self._wal.groups[gid], campaign=campaign)
        log.info(
            "the replica continues",
            extra={"fields": {"range": gid.range_id, "generation": gid.generation}},
        )

    def _begin_controller(
        self,
        descriptor: Descriptor,
        metadata: Metadata,
        applied: tuple[int, int],
        stored: ImageRows,
        raft_log: GroupLog,
        *,
        campaign: bool,
    ) -> ControllerReplica:
        replica = ControllerReplica(
            descriptor=descriptor,
            raft_log=raft_log,
            metadata=metadata,
            applied=applied,
            services=self._services,
            on_change=self._on_change,
            stored=stored,
        )
        self._adopt(replica, campaign=campaign)
        if self.controller is None or self.controller.gid.generation <= descriptor.generation:
            self.controller = replica
        return replica

    def _adopt(self, replica: Replica, *, campaign: bool) -> None:
        self.groups[replica.gid] = replica
        self._ranges = None
        self.halted.pop(replica.gid, None)  # meeting the command again halts it again
        for peer, epoch in self._links_up().items():
            replica.connected(peer, epoch)
        for peer in {*self._links_full(), *self._full_peers}:
            replica.pause(peer)
        replica.start(campaign=campaign)


async def _producers(base: Base) -> Producers:
    """Build the table of producers of a base, in slices of the loop's time."""
    return await stepped(Producers.from_wire_steps(base.tables.get("producers", {})))


def _applied(base: Base) -> tuple[int, int]:
    return base.applied_index, base.applied_term
