"""The replicas of a simulated node: carries out the rules of `node.rules`, as the node's host does.

The rules say which steps follow each other. Here they change the simulated disk, and the checkers
are told about each begin, base and damage.
"""

from collections.abc import Callable, Iterable
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Protocol

from ...client.protocol.errors import Unavailable
from ...client.protocol.invariants import invariant
from ...node.directory import meta_keys
from ...node.rules import ending, recovering, reinstalling, repairing
from ...node.rules.base_fetches import Pin
from ...node.rules.beginning import begin, may_begin
from ...node.rules.durable_steps import (
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
from ...node.rules.recovering import Stored
from ...partitions.metadata import Metadata
from ...partitions.model import Descriptor
from ...raft.group_log import GroupLog
from ...raft.types import GroupId
from ...statemachine.range_state import Base
from .controller import ControllerReplica, controller_row
from .member import Member
from .replica import RangeReplica
from .rounds import Rounds
from .violation import Violation

if TYPE_CHECKING:
    from .host import Host


class Begins(Protocol):
    """Makes a replica from its log, and lets the replica take part."""

    def __call__(self, log: GroupLog, *, campaign: bool) -> None: ...


class Replicas:
    """All members of one life of a process."""

    def __init__(self, host: "Host", rounds: Rounds) -> None:
        self._host = host
        self._rounds = rounds
        self._wal = rounds.wal
        self.groups: dict[GroupId, Member] = {}
        self.damaged: dict[GroupId, str] = {}
        self.aside: dict[GroupId, SetAside] = {}
        """Replicas that take no part until their damaged files are repaired."""
        self.marks: dict[int, int] = {}
        self.pinned: dict[Pin, list[str]] = {}
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

    def holders(self, content_id: str) -> list[Descriptor]:
        """Return the generations whose replicas here need the file."""
        running = [
            replica.descriptor
            for replica in self.ranges()
            if ending.need(replica.store.state, content_id) is not None
        ]
        waiting = [aside.descriptor for aside in self.aside.values() if content_id in aside.files]
        return running + waiting

    def rows_of(self, gids: Iterable[GroupId]) -> dict[GroupId, Any]:
        """Return the rows of those replicas that take part here, or wait for a file."""
        present = [gid for gid in gids if gid in self.groups or gid in self.aside]
        return {gid: self._host.durable.meta.get(meta_keys.replica_key(gid)) for gid in present}

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
        rows = [*meta.items(meta_keys.CONTROLLER), *meta.items(meta_keys.REPLICA)]
        for key, row in rows:
            self._recover(key, row)
        known = [recovering.row_gid(key) for key, _ in rows]
        self._carry_out(recovering.unknown_logs(self._wal.groups, known, self.marks))
        self._host.durable.remove_orphans()

    def _recover(self, key: str, row: dict[str, Any]) -> None:
        descriptor = Descriptor.from_wire(row["descriptor"])
        controller = key.startswith(meta_keys.CONTROLLER)
        index, term = row["applied"] if controller else row["base"]["applied"]
        stored = Stored(key, row, descriptor, (index, term))

        def made(log: GroupLog, *, campaign: bool) -> None:
            self._adopt(
                ControllerReplica.stored(self._host, descriptor, log, row)
                if controller
                else RangeReplica(self._host, descriptor, log, Base.from_wire(row["base"]))
            )

        gid = stored.gid
        steps = recovering.recover(
            stored, self._wal.groups.get(gid), self._wal.recovery.damaged.get(gid)
        )
        if isinstance(steps[-1], CheckFiles):
            bad = self._host.durable.bad_files(Base.from_wire(row["base"]))
            steps = (*steps[:-1], *recovering.files_checked(stored, bad))
        self._carry_out(steps, made)

    def start(self) -> None:
        """Let all recovered replicas take part."""
        for replica in list(self.groups.values()):
            self._start(replica, campaign=False)

    def damage(self, gid: GroupId, reason: str) -> None:
        """Stop the replica of a range in its generation: it is lost for good."""
        row = self._host.durable.meta.get(meta_keys.row_key(gid))
        self._carry_out(ending.damage(gid, row, reason), wrecked=True)
        self._host.look_soon()

    def go_on_alone(self, replica: RangeReplica) -> None:
        """Go on as the only member of the generation, to end it, in an unsafe recovery."""
        key, node = meta_keys.replica_key(replica.gid), self._host.node_id
        row = self._host.durable.row(key)

        def made(log: GroupLog, *, campaign: bool) -> None:
            descriptor = reinstalling.alone(replica.descriptor, node)
            base = Base.from_wire(row["base"])
            self._host.world.generations.alone(node, descriptor, base.applied_index)
            self._host.world.trace(self._host.name, "alone", replica.name)
            alone = RangeReplica(self._host, descriptor, log, base)
            self._adopt(alone)
            alone.take_part(campaign=campaign)

        self._carry_out(reinstalling.go_alone(replica.gid, key, row, node), made)

    def carry_out(self, steps: Steps) -> None:
        """Carry out steps by which replicas wait for a file, or are given up."""
        self._carry_out(steps)

    def bring_back(self, gid: GroupId) -> None:
        """Let a replica continue whose damaged files were repaired."""

        def made(log: GroupLog, *, campaign: bool) -> None:
            row = self._host.durable.row(meta_keys.replica_key(gid))
            del self.aside[gid]
            descriptor, base = Descriptor.from_wire(row["descriptor"]), Base.from_wire(row["base"])
            replica = RangeReplica(self._host, descriptor, log, base)
            self._host.world.trace(self._host.name, "continue", replica.name)
            self._adopt(replica)
            self._start(replica, campaign=campaign)
            self._host.look_soon()
            self._host.pump()

        self._carry_out(repairing.bring_back(gid), made)

    # Later bases of the same generation.

    def reinstall_range(self, replica: RangeReplica, base: Base, done: Callable[[], None]) -> None:
        """Go on from a later base, whose files are here; `done` is called once it takes part."""
        rows = Rows.of_range(replica.descriptor, base)

        def made(log: GroupLog) -> Member:
            return RangeReplica(self._host, replica.descriptor, log, base)

        self._reinstall(replica, rows, (base.applied_index, base.applied_term), made, done)

    def reinstall_controller(
        self,
        replica: ControllerReplica,
        metadata: Metadata,
        applied: tuple[int, int],
        done: Callable[[], None],
    ) -> None:
        """Go on from a later image of the controller's metadata, likewise."""
        descriptor = replica.descriptor
        row = controller_row(descriptor, metadata, applied)
        key = meta_keys.controller_key(descriptor.generation)
        rows = Rows(key, row, level=metadata.feature_level)

        def made(log: GroupLog) -> Member:
            return ControllerReplica(self._host, descriptor, log, metadata, applied)

        self._reinstall(replica, rows, applied, made, done)

    def _reinstall(
        self,
        replica: Member,
        rows: Rows,
        base: tuple[int, int],
        made: Callable[[GroupLog], Member],
        done: Callable[[], None],
    ) -> None:
        host = self._host

        def begin(log: GroupLog, *, campaign: bool) -> None:
            again = made(log)
            again.safety.same_state(host.node_id, base[0], _state_of(again)[0])
            host.world.bases += 1
            host.world.trace(host.name, "base", f"{again.name} index={base[0]}")
            self._adopt(again)
            again.take_part(campaign=campaign)
            done()
            host.pump()

        self._carry_out(
            reinstalling.reinstall(replica.gid, rows, base, replica.applied_index), begin
        )

    # Beginning a generation.

    def begin_range(self, descriptor: Descriptor, base: Base, *, campaign: bool) -> None:
        """Begin a generation from a base whose files are here, unless it has begun before."""
        rows = Rows.of_range(descriptor, base)

        def made(log: GroupLog) -> Member:
            return RangeReplica(self._host, descriptor, log, base)

        self._begin(descriptor, (base.applied_index, base.applied_term), rows, made, campaign)

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
        rows = Rows(key, row, level=metadata.feature_level)

        def made(log: GroupLog) -> Member:
            return ControllerReplica(self._host, descriptor, log, metadata, applied)

        self._begin(descriptor, applied, rows, made, campaign)

    def _begin(
        self,
        descriptor: Descriptor,
        applied: tuple[int, int],
        rows: Rows,
        made: Callable[[GroupLog], Member],
        campaign: bool,
    ) -> None:
        gid = GroupId(descriptor.range_id, descriptor.generation)
        if not may_begin(gid, {*self.groups, *self._beginning}, self.marks):
            return
        try:
            steps = begin(gid, rows, applied, self._wal.groups.get(gid), campaign=campaign)
        except Unavailable:
            return
        self._beginning.add(gid)
        self._carry_out(steps, partial(self._begun, made))

    def _begun(self, made: Callable[[GroupLog], Member], log: GroupLog, *, campaign: bool) -> None:
        """Send the first message of a new generation here."""
        replica = made(log)
        self._beginning.discard(replica.gid)
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
        over = list(gids)
        for gid in over:
            self._host.world.trace(self._host.name, "retire", f"{gid.range_id}/{gid.generation}")
        self._carry_out(ending.retire(over))

    def collect_garbage(self) -> None:
        """Remove the segment files that nothing names."""
        states = (replica.store.state for replica in self.ranges())
        self._host.durable.remove_orphans(states, chain.from_iterable(self.pinned.values()))

    # Steps.

    def _carry_out(
        self, steps: Steps, begin: Begins | None = None, *, wrecked: bool = False
    ) -> None:
        """Carry out the steps; those behind a `SyncLogs` when the WAL's round is on the disk.

        `wrecked`: a fault of the run damages the replica, not its disk.
        """
        for number, step in enumerate(steps):
            match step:
                case SyncLogs():
                    rest = steps[number + 1 :]
                    self._rounds.when_durable(partial(self._carry_out, rest, begin))
                    return
                case CheckPresent(gid):
                    if gid not in self._wal.groups or gid in self.damaged:
                        return
                case CheckAside(gid):
                    if gid not in self.aside:
                        return
                case Damaged(gid, reason):
                    self._note_damage(gid, reason, wrecked=wrecked)
                case Begin(gid, campaign) if begin is not None:
                    begin(self._wal.groups[gid], campaign=campaign)
                case _:
                    self._carry_out_one(step)

    def _carry_out_one(self, step: Step) -> None:
        match step:
            case Commit(puts, deletes):
                self._host.durable.commit(puts, deletes, level=step.level)
            case CreateLog(gid, (index, term)):
                self._wal.create_group(gid, index=index, term=term)
            case ResetLog(gid, base):
                self._wal.groups[gid].reset(*base)
                member = self.groups.get(gid)
                if member is not None:
                    member.safety.installed(self._host.node_id, member.log, base[0])
            case RaiseCommit(gid, commit):
                self._wal.groups[gid].set_commit(commit)
            case RetireLogs(gids):
                for gid in gids:
                    self._wal.retire_group(gid)
                    self.groups.pop(gid, None)
            case Stop(gids):
                for gid in gids:
                    self.damaged.pop(gid, None)
                    self.aside.pop(gid, None)
                    if gid in self.groups:
                        self.groups[gid].stop()
            case Mark(gid):
                self.marks[gid.range_id] = gid.generation
            case SetAside(gid):
                self._host.world.trace(self._host.name, "aside", f"{gid.range_id}/{gid.generation}")
                self.groups.pop(gid, None)
                self.aside[gid] = step
            case SettleRows():
                pass  # a transaction of the simulated meta is one step
            case CollectFiles():
                self.collect_garbage()
            case _:
                invariant(False, "a step that the simulator does not know", step=step)

    def _note_damage(self, gid: GroupId, reason: str, *, wrecked: bool) -> None:
        row = self._host.durable.row(meta_keys.row_key(gid))
        if not (self._host.rotten or wrecked or row["damaged"]):
            raise Violation("L2", "recovery takes what a crash left for damage",
                            node=self._host.node_id, gid=gid, reason=reason)  # fmt: skip
        descriptor = Descriptor.from_wire(row["descriptor"])
        self._host.world.generations.checker(descriptor).damaged(self._host.node_id)
        self._host.world.trace(self._host.name, "damaged", f"{gid.range_id}/{gid.generation}")
        self.damaged[gid] = reason
        self.groups.pop(gid, None)
        self._beginning.discard(gid)


def _state_of(replica: Member) -> tuple[bytes, int]:
    """Return the hash of the applied state, and the next seq of a range."""
    if isinstance(replica, RangeReplica):
        state = replica.store.state
        return state.state_hash, state.next_seq
    if isinstance(replica, ControllerReplica):
        return replica.state_hash(), 0
    raise TypeError(f"{replica.name} has no state")
