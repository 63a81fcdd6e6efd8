"""The replicas of a node: recovered at start, created, sealed and retired, each only once.

This module keeps an old member from harm. `mark` keeps a generation from being created at or below
another that was started before (x3). `started` and the WAL's group must both be there, or the
replica is damaged (x2). A base is in meta before its replica takes part.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter
from typing import Any

from ...client.protocol.errors import CorruptData, Unavailable
from ...partitions.metadata import Metadata
from ...partitions.model import CONTROLLER_RANGE, Descriptor
from ...raft.group_log import GroupLog
from ...raft.types import GroupId
from ...raft.wal import Wal
from ...statemachine.meta import MetaStore
from ...statemachine.producers import Producers
from ...statemachine.range_state import Base, RangeState
from ...statemachine.segment_writer import SegmentInfo
from ...statemachine.segments import Removed, SegmentStore
from ...statemachine.unknown import UnknownCommandError
from ..directory import meta_keys
from ..directory.image_rows import ImageRows
from ..directory.meta_puts import MetaPuts
from ..directory.sound_files import SoundFiles
from ..runtime.slices import stepped
from ..runtime.sync_thread import SyncThread
from .controller_replica import ControllerReplica
from .controller_store import ControllerStore
from .pinned_files import PinnedFiles
from .range_replica import RangeReplica
from .replica import Replica, Services
from .rounds import Rounds

_CONTENT_ID = attrgetter("content_id")

log = logging.getLogger("lognode.host")


@dataclass(frozen=True, slots=True)
class Aside:
    """A replica that waits for a sound file. Its log is whole, so that it can continue (x2)."""

    descriptor: Descriptor
    files: dict[str, SegmentInfo]
    """The files of its base, by content id."""
    bad: dict[str, str]
    """The damage of each damaged file, by content id."""


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
        self._hash_files = hash_files
        self._hashed: set[str] = set()
        self.sound = SoundFiles(meta, sync)
        self._rows: set[GroupId] = set()
        """Replicas of ranges that may have a row in meta."""
        self._marking: set[asyncio.Future[None]] = set()
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
        self.damaged: dict[GroupId, str] = {}
        self.aside: dict[GroupId, Aside] = {}
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

    def ranges(self) -> list[RangeReplica]:
        """Return every range replica."""
        return [r for r in self.groups.values() if isinstance(r, RangeReplica)]

    # Start and stop.

    async def recover(self) -> None:
        """Start every replica that meta knows and whose log in the WAL is whole."""
        for key, value in self.meta.items(meta_keys.MARK):
            self.marks[int(key[len(meta_keys.MARK) :])] = value
        for key, value in self.meta.items(meta_keys.CONTROLLER):
            descriptor = Descriptor.from_wire(value["descriptor"])
            raft_log = await self._sound_log(key, value, descriptor, tuple(value["applied"]))
            if raft_log is not None:
                stored = ImageRows(meta_keys.controller_buckets(descriptor.generation))
                metadata = stored.load(self.meta.items(stored.prefix), value)
                self._begin_controller(
                    descriptor, raft_log, metadata, tuple(value["applied"]), stored, campaign=False
                )
        await self.sound.load(self.store.content_ids)
        for key, value in self.meta.items(meta_keys.REPLICA):
            self._rows.add(_gid_of(key))
            descriptor = Descriptor.from_wire(value["descriptor"])
            base = Base.from_wire(value["base"])
            applied = (base.applied_index, base.applied_term)
            raft_log = await self._sound_log(key, value, descriptor, applied)
            if raft_log is None:
                continue
            bad = await self._bad_files(base)
            gid = raft_log.gid
            if not bad:
                self._begin_range(descriptor, raft_log, base, campaign=False)
            elif len(descriptor.members) == 1:
                await self._store_damage(gid, key, value, next(iter(bad.values())))
            else:
                self._put_aside(gid, Aside(descriptor, _files(base.manifest), bad))
        self._retire_unknown()
        await self.sound.add(self._hashed)
        await self.collect_garbage()

    def stop(self) -> None:
        """Stop every replica."""
        for replica in list(self.groups.values()):
            replica.stop()

    async def _sound_log(
        self, key: str, row: dict[str, Any], descriptor: Descriptor, applied: tuple[int, int]
    ) -> GroupLog | None:
        gid = GroupId(descriptor.range_id, descriptor.generation)
        reason = row.get("damaged") or self._wal.recovery.damaged.get(gid)
        raft_log = self._wal.groups.get(gid)
        if reason is None and raft_log is None:
            reason = "its log is not in the WAL"
        if reason is None and raft_log is not None and raft_log.base_index > applied[0]:
            reason = f"meta ends at entry {applied[0]}, its log begins after {raft_log.base_index}"
        elif reason is None and raft_log is not None and not row.get("installed"):
            # An entry is durable here before it is applied; only a base comes before its log (x15).
            term = raft_log.term_at(applied[0])
            if term is None:
                reason = f"its log ends at entry {raft_log.last_index}, meta applied {applied[0]}"
            elif term != applied[1]:
                reason = (f"its log holds entry {applied[0]} of term {term}, "
                          f"meta applied that of term {applied[1]}")  # fmt: skip
        if reason is not None or raft_log is None:
            # The damage is stored before anything is cut, so that no later start takes part (x2).
            await self._store_damage(gid, key, row, str(reason))
            return None
        if raft_log.term_at(applied[0]) != applied[1]:
            # A base was installed, and the node crashed before the log was reset to it (x15,
            # x2.10). The log may also hold an entry of another term there, which never committed.
            raft_log.reset(*applied)
        raft_log.set_commit(applied[0])
        return raft_log

    def _retire_unknown(self) -> None:
        """Retire logs whose generation has no row in meta, left by a crash before the WAL's record.

        Such logs would keep WAL files for ever. A log that was created and never begun stays: it is
        empty, and begins when the metadata says so.
        """
        known = {
            *(_gid_of(key) for key, _ in self.meta.items(meta_keys.REPLICA)),
            *(GroupId(CONTROLLER_RANGE, int(key[len(meta_keys.CONTROLLER) :]))
              for key, _ in self.meta.items(meta_keys.CONTROLLER)),
        }  # fmt: skip
        for gid in self._wal.groups.keys() - known:
            if gid.generation <= self.marks.get(gid.range_id, 0):
                self._wal.retire_group(gid)

    async def _bad_files(self, base: Base) -> dict[str, str]:
        """Return what is wrong with each damaged file of the base.

        After a stop that was not orderly, files that were never hashed since they were built are
        hashed (x28): data that the kernel had not written when the machine died is not always zero
        bytes.
        """
        bad = {}
        for info in base.manifest:
            path = self.store.path(info.content_id)
            if not path.exists() or path.stat().st_size != info.size:
                bad[info.content_id] = f"segment {info.content_id} is missing or cut"
            elif self._hash_files and not (
                info.content_id in self._hashed or info.content_id in self.sound
            ):
                try:
                    # In a thread, and before the file is opened.
                    await asyncio.to_thread(self.store.verify, info.content_id, from_disk=True)
                except CorruptData as error:
                    bad[info.content_id] = error.message
                else:
                    self._hashed.add(info.content_id)
        return bad

    # Damage.

    def damage(self, replica: Replica, error: CorruptData) -> None:
        """Stop a replica whose own data is damaged. It never serves or votes again in this
        generation, not even after a restart (S12, x2). The other replicas continue."""
        gid = replica.gid
        replica.stop()
        if self.groups.get(gid) is not replica:
            return
        del self.groups[gid]
        if isinstance(replica, RangeReplica):
            self.store.doubt(info.content_id for info in replica.state.durable_base.manifest)
        if self._serving.get(gid.range_id) is replica:
            del self._serving[gid.range_id]
        if self.controller is replica:
            self.controller = None
        self._damage_row(gid, error)

    def _damage_row(self, gid: GroupId, error: CorruptData) -> None:
        controller = gid.range_id == CONTROLLER_RANGE
        key = meta_keys.controller_key(gid.generation) if controller else meta_keys.replica_key(gid)
        row = self.meta.get(key)
        if row is not None:
            task = self._store_damage(gid, key, row, error.message)
            self._marking.add(task)
            task.add_done_callback(self._marking.discard)
        self._on_change()

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
            "replica stops at a command of a newer program; upgrade this node",
            extra={"fields": {"range": gid.range_id, "generation": gid.generation,
                              "reason": str(error)}},
        )  # fmt: skip
        self._on_change()

    def set_aside(self, replica: RangeReplica, error: CorruptData) -> None:
        """Stop a replica that needs a damaged file and whose log is whole. It takes no part until
        `bring_back`, or for good after `give_up`."""
        gid = replica.gid
        replica.stop()
        if self.groups.get(gid) is not replica:
            return
        del self.groups[gid]
        if self._serving.get(gid.range_id) is replica:
            del self._serving[gid.range_id]
        files = _files((*replica.state.durable_base.manifest, *replica.state.manifest))
        bad = {error.fields["segment"]: error.message}
        self._put_aside(gid, Aside(replica.descriptor, files, bad))
        self._on_change()

    def _put_aside(self, gid: GroupId, aside: Aside) -> None:
        self.aside[gid] = aside
        log.warning(
            "replica waits for a damaged file",
            extra={"fields": {"range": gid.range_id, "generation": gid.generation,
                              "reason": "; ".join(aside.bad.values())}},
        )  # fmt: skip

    async def bring_back(self, gid: GroupId) -> None:
        """Restart a replica that was set aside and whose files are sound again. It continues from
        its last durable base and its log, as after a start."""
        await self._rounds.durable()
        await self._sync.run(lambda: None)  # earlier writes about the replica
        aside, raft_log = self.aside.get(gid), self._wal.groups.get(gid)
        row = self.meta.get(meta_keys.replica_key(gid))
        if aside is None or raft_log is None or row is None or gid in self.damaged:
            return
        del self.aside[gid]
        base = Base.from_wire(row["base"])
        self._begin_range(aside.descriptor, raft_log, base, campaign=False)
        log.info(
            "replica goes on",
            extra={"fields": {"range": gid.range_id, "generation": gid.generation}},
        )
        self._on_change()

    def give_up(self, gid: GroupId, error: CorruptData) -> None:
        """Give up a replica whose damaged file cannot be fetched: see `damage`."""
        replica = self.groups.get(gid)
        if replica is not None:
            self.damage(replica, error)
        elif self.aside.pop(gid, None) is not None:
            self._damage_row(gid, error)

    def holders(self, content_id: str) -> dict[GroupId, tuple[Descriptor, SegmentInfo]]:
        """Return the replicas that need the file."""
        found = {
            replica.gid: (replica.descriptor, info)
            for replica in self.ranges()
            for info in (*replica.state.durable_base.manifest, *replica.state.manifest)
            if info.content_id == content_id
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

    def _store_damage(
        self, gid: GroupId, key: str, row: dict[str, Any], reason: str
    ) -> "asyncio.Future[None]":
        """Note the damage at once; it is durable when the future is done."""
        self._note_damage(gid, reason)
        puts = {key: {**row, "damaged": reason}}
        return self._sync.run(lambda: self.meta.commit(puts))

    def _note_damage(self, gid: GroupId, reason: str) -> None:
        self.damaged[gid] = reason
        log.error(
            "replica is damaged and takes no part; its peers go on without it",
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
        if gid in self.groups or self.marks.get(gid.range_id, 0) >= gid.generation:
            return None
        applied = (base.applied_index, base.applied_term)
        producers = await _producers(base)
        raft_log, reason = await self._durable_log(gid, applied)
        row = meta_keys.replica_row(descriptor, base, damaged=reason)
        self._rows.add(gid)
        await self._puts.put(meta_keys.begun(gid, {meta_keys.replica_key(gid): row}))
        self.marks[gid.range_id] = gid.generation
        if raft_log is None:
            self._note_damage(gid, str(reason))
            return None
        log.info(
            "replica started",
            extra={"fields": {"range": gid.range_id, "generation": gid.generation,
                              "members": descriptor.members}},
        )  # fmt: skip
        return self._begin_range(descriptor, raft_log, base, producers, campaign=campaign)

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
        if gid in self.groups or self.marks.get(CONTROLLER_RANGE, 0) >= gid.generation:
            return None
        raft_log, reason = await self._durable_log(gid, applied)
        stored = await self._controllers.whole(
            descriptor, metadata, applied, damaged=reason, begins=True
        )
        self.marks[CONTROLLER_RANGE] = gid.generation
        if raft_log is None:
            self._note_damage(gid, str(reason))
            return None
        return self._begin_controller(
            descriptor, raft_log, metadata, applied, stored, campaign=campaign
        )

    async def checkpoint_controller(self, replica: ControllerReplica) -> None:
        """Store the metadata as applied now and cut the log behind it."""
        index = await self._controllers.checkpoint(replica)
        if index is None:
            return
        replica.checkpointed_index = index
        if not replica.stopped:
            replica.raft_log.cut_front(index)
            self._rounds.kick()

    async def reinstall_range(self, replica: RangeReplica, base: Base) -> RangeReplica:
        """Continue from a later base of the same generation: the leader's log was cut too far.

        Meta is written before the log: a start in between finds the base and resets the log to it
        (x2.10). Term and vote stay. Raises Unavailable when the replica has ended.
        """
        self._end_to_go_on(replica)
        producers = await _producers(base)
        row = {**meta_keys.replica_row(replica.descriptor, base), "installed": True}
        key = meta_keys.replica_key(replica.gid)
        await self._sync.run(lambda: self.meta.commit({key: row}))
        self._check_not_retired(replica)
        replica.raft_log.reset(base.applied_index, base.applied_term)
        await self._rounds.durable()
        begun = self._begin_range(
            replica.descriptor, replica.raft_log, base, producers, campaign=False
        )
        await self.collect_garbage()  # the files of its earlier base
        return begun

    async def reinstall_controller(
        self, replica: ControllerReplica, metadata: Metadata, applied: tuple[int, int]
    ) -> ControllerReplica:
        """Do the same as `reinstall_range`, for the controller."""
        self._end_to_go_on(replica)
        stored = await self._controllers.whole(
            replica.descriptor, metadata, applied, installed=True
        )
        self._check_not_retired(replica)
        replica.raft_log.reset(*applied)
        await self._rounds.durable()
        return self._begin_controller(
            replica.descriptor, replica.raft_log, metadata, applied, stored, campaign=False
        )

    async def go_on_alone(self, replica: RangeReplica) -> None:
        """Let the replica continue as the only member of its generation (unsafe recovery).

        The replica keeps its log and base, leads at once in order to seal, and serves no client.
        Its row is written first: from then on it shares no descriptor with the other members, so
        that neither side takes messages of the other side, not even after a restart (x2.24).
        Nothing is committed alone before that. Raises Unavailable when the replica has ended.
        """
        gid, key, raft_log = replica.gid, meta_keys.replica_key(replica.gid), replica.raft_log
        async with replica.base_turn:  # a base being stored now names the former members
            self._end_to_go_on(replica)
            members = (self._services.node_id,)
            descriptor = replace(replica.descriptor, members=members, state="SEALING")
            row = self.meta.get(key)
            if row is None:
                raise Unavailable(f"{gid} was retired meanwhile")
            row["descriptor"] = descriptor.to_wire()
            await self._sync.run(lambda: self.meta.commit({key: row}))
            self._check_not_retired(replica)
            log.warning(
                "replica goes on alone to end its generation: its range is recovered from it",
                extra={"fields": {"range": gid.range_id, "generation": gid.generation,
                                  "last_index": raft_log.last_index,
                                  "last_term": raft_log.last_term}},
            )  # fmt: skip
            base = Base.from_wire(row["base"])
            self._begin_range(descriptor, raft_log, base, campaign=True)

    def _end_to_go_on(self, replica: Replica) -> None:
        """Stop the replica and forget it. Raises Unavailable when it has ended meanwhile."""
        if self.groups.get(replica.gid) is not replica:
            raise Unavailable(f"the replica of {replica.gid} has ended meanwhile")
        replica.stop()
        del self.groups[replica.gid]

    def _check_not_retired(self, replica: Replica) -> None:
        """Raise Unavailable for a retired group: a new row would bring the group back."""
        gone = self._wal.groups.get(replica.gid) is not replica.raft_log
        if gone or replica.gid in self._retiring:
            raise Unavailable(f"{replica.gid} was retired meanwhile")

    async def retire(self, gids: Iterable[GroupId]) -> None:
        """Free the logs, rows and files of generations that are over for good.

        The rows go first: a row without a log would be damage at the next start, while a log
        without a row is retired there.
        """
        over = list(gids)
        self._retiring.update(over)
        keys, prefixes = [], []
        for gid in over:
            replica = self.groups.pop(gid, None)
            if replica is not None:
                replica.stop()
            self.damaged.pop(gid, None)
            self.aside.pop(gid, None)
            self.halted.pop(gid, None)
            if self._serving.get(gid.range_id) is replica:
                self._serving.pop(gid.range_id, None)
            if gid.range_id == CONTROLLER_RANGE:
                keys.append(meta_keys.controller_key(gid.generation))
                prefixes.append(meta_keys.controller_buckets(gid.generation))
            else:
                keys.append(meta_keys.replica_key(gid))
        if keys:
            await self._sync.run(lambda: self.meta.commit({}, keys, prefixes))
            self._rows.difference_update(over)
            for gid in over:
                self._wal.retire_group(gid)
                self._retiring.discard(gid)
            self._rounds.kick()
            await self.collect_garbage()

    async def collect_garbage(self) -> None:
        """Remove the segment files that nothing names.

        For a running replica the state in memory names its files, without decoding its row:
        decoding a thousand rows took 20 ms of the loop.
        """
        named: set[str] = set()
        for replica in self.ranges():
            state = replica.state
            named.update(map(_CONTENT_ID, state.durable_base.manifest))
            named.update(map(_CONTENT_ID, state.manifest))
        others = [
            self.meta.get(meta_keys.replica_key(gid)) for gid in self._rows - self.groups.keys()
        ]
        others += [row for _, row in self.meta.items(meta_keys.PREPARED)]
        for row in others:
            if row is not None:
                named.update(str(info[0]) for info in row["base"]["manifest"])
        named.update(self.pinned.content_ids())
        removed = self.store.forget_except(named)
        await self.sound.forget([each.content_id for each in removed])
        await asyncio.shield(self._remove(removed))  # all of it, even if the caller is cancelled

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

    async def _durable_log(
        self, gid: GroupId, applied: tuple[int, int]
    ) -> tuple[GroupLog | None, str | None]:
        """Return the log of a generation that begins here, or None and why it is damaged."""
        try:
            raft_log = self._fresh_log(gid, applied)
        except CorruptData as error:
            return None, error.message
        await self._rounds.durable()
        return raft_log, None

    def _fresh_log(self, gid: GroupId, applied: tuple[int, int]) -> GroupLog:
        left = self._wal.groups.get(gid)
        if left is not None:
            # The node crashed between the WAL's record and meta's: the member promised nothing.
            if left.last_index != left.base_index or left.term > max(left.base_term, applied[1]):
                raise CorruptData(
                    f"the WAL holds a log of range {gid.range_id} generation {gid.generation} "
                    "that meta does not know: meta is older than the WAL"
                )
            if left.base_index > applied[0]:
                raise Unavailable(f"{gid} was about to begin here from a later base: send that")
            left.reset(*applied)  # the log may have been about to begin from an earlier base
            return left
        return self._wal.create_group(gid, index=applied[0], term=applied[1])

    def _begin_range(
        self, descriptor: Descriptor, raft_log: GroupLog, base: Base,
        producers: Producers | None = None, *, campaign: bool,
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

    def _begin_controller(
        self,
        descriptor: Descriptor,
        raft_log: GroupLog,
        metadata: Metadata,
        applied: tuple[int, int],
        stored: ImageRows,
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
        self.halted.pop(replica.gid, None)  # meeting the command again halts it again
        for peer, epoch in self._links_up().items():
            replica.connected(peer, epoch)
        for peer in {*self._links_full(), *self._full_peers}:
            replica.pause(peer)
        replica.start(campaign=campaign)


async def _producers(base: Base) -> Producers:
    """Build the table of producers of a base, in slices of the loop's time."""
    return await stepped(Producers.from_wire_steps(base.tables.get("producers", {})))


def _files(manifest: Iterable[SegmentInfo]) -> dict[str, SegmentInfo]:
    return {info.content_id: info for info in manifest}


def _gid_of(key: str) -> GroupId:
    """Return the group that a replica's row is about."""
    range_id, generation = key[len(meta_keys.REPLICA) :].split("/")
    return GroupId(int(range_id), int(generation))
