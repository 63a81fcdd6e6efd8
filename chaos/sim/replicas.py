"""The replicas of a simulated node: recovered, begun, retired, and none of them twice.

The order of steps is the node's. The WAL's record of a new group is durable before meta names the
group. `mark` never lets a generation begin at or below one that began here (x3). Damage is stored
before anything is cut (x2). A base is in meta before its log is reset to it (x2.10).
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from ...node.directory import meta_keys
from ...partitions.metadata import Metadata
from ...partitions.model import CONTROLLER_RANGE, Descriptor
from ...raft.group_log import GroupLog
from ...raft.types import GroupId
from ...statemachine.range_state import Base
from .controller import ControllerReplica, controller_row
from .member import Member
from .replica import RangeReplica, meet
from .rounds import Rounds
from .violation import Violation

if TYPE_CHECKING:
    from .host import Host


class Replicas:
    """All members of one life of a process."""

    def __init__(self, host: "Host", rounds: Rounds) -> None:
        self._host = host
        self._rounds = rounds
        self._wal = rounds.wal
        self.groups: dict[GroupId, Member] = {}
        self.damaged: dict[GroupId, str] = {}
        self.marks: dict[int, int] = {}
        self.pinned: dict[object, list[str]] = {}
        """Segment files in use that no row names yet."""
        self._beginning: set[GroupId] = set()

    # Looking up.

    @property
    def controller(self) -> ControllerReplica | None:
        """Return the newest controller replica."""
        found = [r for r in self.groups.values() if isinstance(r, ControllerReplica)]
        return max(found, key=lambda replica: replica.gid, default=None)

    def ranges(self) -> list[RangeReplica]:
        """Return every range replica."""
        return [r for r in self.groups.values() if isinstance(r, RangeReplica)]

    def range_(self, gid: GroupId) -> RangeReplica | None:
        """Return the replica of exactly this generation."""
        found = self.groups.get(gid)
        return found if isinstance(found, RangeReplica) else None

    def serving(self, key: bytes) -> RangeReplica | None:
        """Return the newest replica of a key's range."""
        found = [replica for replica in self.ranges() if key in replica.descriptor.span]
        return max(found, key=lambda replica: replica.gid.generation, default=None)

    # Recovery.

    def recover(self) -> None:
        """Recover the replicas that meta and the WAL have whole; `start` is still to be called."""
        meta = self._host.durable.meta
        for key, value in meta.items(meta_keys.MARK):
            self.marks[int(key[len(meta_keys.MARK) :])] = value
        self._host.world.generations.recovered(self._host.node_id, self.marks)
        for key, row in meta.items(meta_keys.CONTROLLER):
            descriptor = Descriptor.from_wire(row["descriptor"])
            log = self._sound_log(key, row, descriptor)
            if log is not None:
                applied = (row["applied"][0], row["applied"][1])
                if log.term_at(applied[0]) != applied[1]:
                    log.reset(*applied)
                metadata = Metadata.from_image(row["image"])
                self._adopt(ControllerReplica(self._host, descriptor, log, metadata, applied))
        for key, row in meta.items(meta_keys.REPLICA):
            descriptor = Descriptor.from_wire(row["descriptor"])
            log = self._sound_log(key, row, descriptor)
            if log is not None:
                base = Base.from_wire(row["base"])
                meet(log, base)
                self._adopt(RangeReplica(self._host, descriptor, log, base))
        self._retire_unknown()
        self._host.durable.remove_orphans()

    def start(self) -> None:
        """Let all recovered replicas take part."""
        for replica in list(self.groups.values()):
            self._start(replica, campaign=False)

    def _sound_log(self, key: str, row: dict[str, Any], descriptor: Descriptor) -> GroupLog | None:
        gid = GroupId(descriptor.range_id, descriptor.generation)
        reason = row["damaged"] or self._wal.recovery.damaged.get(gid)
        log = self._wal.groups.get(gid)
        if reason is None and log is None:
            reason = "its log is not in the WAL"
        if reason is None:
            return log
        if not self._host.rotten and not row["damaged"]:
            raise Violation("L2", "recovery takes what a crash left for damage",
                            node=self._host.node_id, gid=gid, reason=reason)  # fmt: skip
        self._damaged(key, row, descriptor, reason)
        return None

    def _damaged(self, key: str, row: dict[str, Any], descriptor: Descriptor, reason: str) -> None:
        gid = GroupId(descriptor.range_id, descriptor.generation)
        if not row["damaged"]:
            self._host.durable.commit({key: {**row, "damaged": reason}})
        self._host.world.generations.checker(descriptor).damaged(self._host.node_id)
        self._host.world.trace(self._host.name, "damaged", f"{gid.range_id}/{gid.generation}")
        self.damaged[gid] = reason

    def damage(self, gid: GroupId, reason: str) -> None:
        """Stop the replica of a range in its generation, because it is damaged."""
        replica = self.range_(gid)
        if replica is not None:
            key = meta_keys.replica_key(gid)
            self._damaged(key, self._host.durable.row(key), replica.descriptor, reason)
            replica.stop()
            del self.groups[gid]
            self._host.look_soon()

    def go_on_alone(self, replica: RangeReplica) -> None:
        """Go on as the only member of the generation, to end it, in an unsafe recovery.

        The row is written first: from then on the replica shares no descriptor with the other
        members, even after a restart.
        """
        key, node = meta_keys.replica_key(replica.gid), self._host.node_id
        descriptor = replace(replica.descriptor, members=(node,), state="SEALING")
        row = self._host.durable.row(key)
        self._host.durable.commit({key: {**row, "descriptor": descriptor.to_wire()}})
        replica.stop()
        base = Base.from_wire(row["base"])
        self._host.world.generations.alone(node, descriptor, base.applied_index)
        self._host.world.trace(self._host.name, "alone", replica.name)
        alone = RangeReplica(self._host, descriptor, replica.log, base)
        self._adopt(alone)
        alone.take_part(campaign=True)

    def _retire_unknown(self) -> None:
        """Retire logs that meta has dropped: the crash came before the WAL's record of it."""
        meta = self._host.durable.meta
        known = {row_gid(row) for _, row in meta.items(meta_keys.REPLICA)}
        known |= {row_gid(row) for _, row in meta.items(meta_keys.CONTROLLER)}
        for gid in sorted(self._wal.groups.keys() - known):
            if gid.generation <= self.marks.get(gid.range_id, 0):
                self._wal.retire_group(gid)

    # Beginning a generation.

    def begin_range(self, descriptor: Descriptor, base: Base, *, campaign: bool) -> None:
        """Begin a generation from a base whose files are here, unless it has begun before."""
        key = meta_keys.replica_key(GroupId(descriptor.range_id, descriptor.generation))
        row = meta_keys.replica_row(descriptor, base)

        def made(log: GroupLog) -> Member:
            return RangeReplica(self._host, descriptor, log, base)

        self._begin(descriptor, (base.applied_index, base.applied_term), key, row, made, campaign)

    def begin_controller(
        self,
        descriptor: Descriptor,
        metadata: Metadata,
        applied: tuple[int, int],
        *,
        campaign: bool,
    ) -> None:
        """Begin a generation of the controller, likewise."""
        key = meta_keys.controller_key(descriptor.generation)
        row = controller_row(descriptor, metadata, applied)

        def made(log: GroupLog) -> Member:
            return ControllerReplica(self._host, descriptor, log, metadata, applied)

        self._begin(descriptor, applied, key, row, made, campaign)

    def _begin(
        self,
        descriptor: Descriptor,
        applied: tuple[int, int],
        key: str,
        row: dict[str, Any],
        made: Callable[[GroupLog], Member],
        campaign: bool,
    ) -> None:
        gid = GroupId(descriptor.range_id, descriptor.generation)
        known = gid in self.groups or gid in self._beginning
        if known or self.marks.get(gid.range_id, 0) >= gid.generation:
            return
        log = self._fresh_log(gid, applied)
        if log is None:
            return
        self._beginning.add(gid)
        self._rounds.when_durable(partial(self._begun, gid, key, row, log, made, campaign))

    def _fresh_log(self, gid: GroupId, applied: tuple[int, int]) -> GroupLog | None:
        left = self._wal.groups.get(gid)
        if left is None:
            return self._wal.create_group(gid, index=applied[0], term=applied[1])
        # A crash came between the WAL's record and meta's: this replica has sent nothing yet.
        if left.last_index != left.base_index:
            raise Violation("x2", "entries in a log that was never begun", gid=gid)
        if left.base_index > applied[0]:
            return None  # it was about to begin from a later base, which will be sent again
        left.reset(*applied)
        return left

    def _begun(
        self,
        gid: GroupId,
        key: str,
        row: dict[str, Any],
        log: GroupLog,
        made: Callable[[GroupLog], Member],
        campaign: bool,
    ) -> None:
        """Write meta's record, and send the first message: the WAL's record is durable."""
        self._host.durable.commit(meta_keys.begun(gid, {key: row}))
        self._beginning.discard(gid)
        self.marks[gid.range_id] = gid.generation
        replica = made(log)
        state_hash, next_seq = _state_of(replica)
        world = self._host.world
        world.generations.begun(
            self._host.node_id, replica.descriptor, log.base_index, state_hash, next_seq
        )
        world.trace(self._host.name, "begin", replica.name)
        self._adopt(replica)
        self._start(replica, campaign=campaign)
        self._host.look_soon()
        self._host.pump()

    def _adopt(self, replica: Member) -> None:
        self.groups[replica.gid] = replica

    def _start(self, replica: Member, *, campaign: bool) -> None:
        replica.start(_state_of(replica)[0], campaign=campaign)

    # Retiring.

    def retire(self, gids: Iterable[GroupId]) -> None:
        """Remove logs, rows and files of these generations, which are over for good."""
        keys = []
        for gid in gids:
            replica = self.groups.pop(gid, None)
            if replica is not None:
                replica.stop()
            self.damaged.pop(gid, None)
            self._wal.retire_group(gid)
            controller = gid.range_id == CONTROLLER_RANGE
            keys.append(
                meta_keys.controller_key(gid.generation)
                if controller
                else meta_keys.replica_key(gid)
            )
            self._host.world.trace(self._host.name, "retire", f"{gid.range_id}/{gid.generation}")
        open_ = self._host.view.metadata.operations
        prepared = self._host.durable.meta.items(meta_keys.PREPARED)
        keys += [key for key, _ in prepared if meta_keys.prepared_operation(key) not in open_]
        self._host.durable.commit({}, keys)
        self.collect_garbage()

    def collect_garbage(self) -> None:
        """Remove the segment files that no row names."""
        named = [id_ for pinned in self.pinned.values() for id_ in pinned]
        named += [info.content_id for r in self.ranges() for info in r.store.state.manifest]
        self._host.durable.remove_orphans(named)


def _state_of(replica: Member) -> tuple[bytes, int]:
    """Return the hash of the applied state, and the next seq of a range."""
    if isinstance(replica, RangeReplica):
        state = replica.store.state
        return state.state_hash, state.next_seq
    if isinstance(replica, ControllerReplica):
        return replica.state_hash(), 0
    raise TypeError(f"{replica.name} has no state")


def row_gid(row: dict[str, Any]) -> GroupId:
    """Return the group of a replica's row."""
    return GroupId(row["descriptor"]["id"], row["descriptor"]["generation"])
