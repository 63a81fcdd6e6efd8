"""A replica: one member's copy of one generation, between its Raft group and the event loop.

`Group` is sans-I/O. This class moves what it produces (messages, committed entries, answered
reads, deadlines) to those who wait, in `pump`, which runs once per turn of the loop in which
something happened. Subclasses say what a committed entry means.
"""

import asyncio
import logging
import random
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

from ...client.protocol.errors import (
    CorruptData,
    LognodeError,
    NotLeader,
    RemoteProtocolError,
    Sealed,
    Unavailable,
)
from ...partitions.model import Descriptor
from ...raft.group import Group
from ...raft.group_log import GroupLog
from ...raft.liveness import Liveness
from ...raft.read_rounds import Asker
from ...raft.readindex import ReadQuestion
from ...raft.types import GroupId, LogEntry, Message, NotLeaderError, RaftOptions
from ...statemachine.unknown import UnknownCommandError
from ..directory.disk_room import DiskRoom
from ..metadata.leaders import NOBODY
from ..metrics import Metrics
from ..runtime.turn_ends import TurnEnds
from ..runtime.waiters import Waiters
from .brought import Brought
from .rounds import Rounds

_TAKE_BYTES = 1 << 20
_APPLY_S = 0.0025
"""No entry is begun in a turn of the loop after so long, which keeps turns around 5 ms."""

log = logging.getLogger("lognode.replica")


class Links(Protocol):
    """Where a replica's Raft messages go."""

    def send(self, peer: int, gid: GroupId, fingerprint: bytes, message: Message) -> None: ...


class Confirms(Protocol):
    """Where a replica's rounds of reads are confirmed."""

    def ask(self, asker: Asker) -> None: ...


@dataclass(slots=True)
class Memory:
    """What the memtables of a node hold together."""

    scarce: bool = False
    """Segments are not built as fast as entries come: they are not to wait for anything else."""
    full: bool = False
    """The bound of the node is reached: appends are refused until segments are built."""
    brim: bool = False
    """So is the room that is kept for principals that append little: nobody's are taken."""
    brought: Brought = field(default_factory=lambda: Brought(time.monotonic))


@dataclass(slots=True)
class Services:
    """What the node gives to each of its replicas."""

    node_id: int
    links: Links
    confirmations: Confirms
    rounds: Rounds
    turn_ends: TurnEnds
    options: RaftOptions
    rng: random.Random
    metrics: Metrics
    memory: Memory
    stamp_ms: Callable[[], int]
    """The timestamp for what a leader proposes now."""
    liveness: Liveness | None
    """What lets groups rest; None: they never do."""
    on_appended: Callable[[int, int, int], None]
    """An entry of a range that was proposed here was applied: its new records, and its bytes."""
    on_leader: Callable[[GroupId, int, int], None]
    """A group's leader of a term is known, or, as NOBODY, has stepped down here."""
    on_broken: Callable[[BaseException], None]
    """A broken invariant: the node stops."""
    on_stuck: Callable[["Replica", CorruptData | UnknownCommandError], None]
    """The replica cannot go on: its own data is not what it was (S12), or the next entry of its
    log is a command of a newer program."""
    room: DiskRoom
    """Whether appends are taken."""


@dataclass(slots=True)
class Proposal:
    """One Raft entry on its way: who waits for it, and what it weighs."""

    term: int
    waiting: Sequence["asyncio.Future[Any]"]
    size: int
    records: int


class Replica:
    """Common part of range and controller replicas."""

    def __init__(
        self,
        *,
        descriptor: Descriptor,
        raft_log: GroupLog,
        applied_index: int,
        services: Services,
    ) -> None:
        self.descriptor = descriptor
        self.gid = GroupId(descriptor.range_id, descriptor.generation)
        self.members = descriptor.members
        self.fingerprint = descriptor.fingerprint()
        self.raft_log = raft_log
        self.services = services
        self.applied_index = applied_index
        self._refusals: set[tuple[int, str]] = set()
        """Members and reasons of refused messages that were logged."""
        self.group = self._new_group(applied_index)
        self._taken: deque[LogEntry] = deque()
        """Committed, and not applied yet."""
        self.proposals: dict[int, Proposal] = {}
        self.proposed_bytes = 0
        self._loop = asyncio.get_running_loop()
        self._reads: dict[int, asyncio.Future[int]] = {}
        self._applied_waiters = Waiters(services.on_broken)
        """Waiters for indexes."""
        self._timer: asyncio.TimerHandle | None = None
        self._pumping = False
        self._was_leader = False
        self._leader_told = (0, NOBODY)
        """(term, leader) as last passed on."""
        self.stopped = False
        self._resignation: object | None = None
        """The hand-over of this member's lead that is under way."""
        self._settled = asyncio.Event()
        self._settled.set()

    def _new_group(self, applied_index: int) -> Group:
        return Group(
            log=self.raft_log,
            node_id=self.services.node_id,
            members=self.members,
            applied_index=applied_index,
            clock=time.monotonic,
            rng=self.services.rng,
            options=self.services.options,
            gid=self.gid,
            liveness=self.services.liveness,
            on_refused=self._refused,
            accepts=self.has_room(),
        )

    def _refused(self, sender: int, reason: str) -> None:
        """A member's message that no sound member sends: dropped, counted, and told of once."""
        self.services.metrics.raft_dropped.labels(reason).inc()
        if (sender, reason) not in self._refusals:
            self._refusals.add((sender, reason))
            log.error(
                "a message of a member cannot be true and is dropped",
                extra={"fields": {"peer": sender, "range": self.gid.range_id,
                                  "generation": self.gid.generation, "reason": reason}},
            )  # fmt: skip

    # What the node calls.

    def start(self, *, campaign: bool = False) -> None:
        """Take part from now on. `campaign`: stand for election at once."""
        self.group.start(campaign=campaign)
        self.wake()

    def stop(self) -> None:
        """Take no further part. Whoever waits gets an error of outcome unknown."""
        if self.stopped:
            return
        self.stopped = True
        self._settled.set()
        self._tell_leader(self.group.term, None)
        self.group.stop()
        if self._timer is not None:
            self._timer.cancel()
        self._fail_waiting(Unavailable("this replica has stopped", outcome="unknown"))
        self._applied_waiters.release()

    def receive(self, sender: int, message: Message) -> None:
        """A Raft message from a member. Raises RemoteProtocolError for what is none."""
        if sender in self.members:
            self._tell_group(self.group.receive, sender, message)

    def connected(self, peer: int, epoch: int) -> None:
        """Our link to the peer is up."""
        if peer in self.members:
            self._tell_group(self.group.connected, peer, epoch)

    def disconnected(self, peer: int) -> None:
        """Our link to the peer is down."""
        if peer in self.members:
            self._tell_group(self.group.disconnected, peer)

    def pause(self, peer: int) -> None:
        """Our link to the peer is full."""
        if peer in self.members:
            self._tell_group(self.group.pause, peer)

    def resume(self, peer: int) -> None:
        """Our link to the peer has room again."""
        if peer in self.members:
            self._tell_group(self.group.resume, peer)

    def synced(self) -> None:
        """A WAL round that touched this group is durable."""
        self._tell_group(self.group.synced)

    def disturb(self, peer: int, *, campaign: bool) -> None:
        """The group must no longer rest; see `Group.disturb`."""
        self._tell_group(partial(self.group.disturb, campaign=campaign), peer)

    @property
    def resigning(self) -> bool:
        """Whether this member hands its lead over: what is to be proposed is kept meanwhile."""
        return self._resignation is not None

    def resign(self) -> object:
        """Propose nothing, so that a follower can catch up and take the lead, until
        `end_resigning` gets what this returns.

        Once another member is known to lead it ends by itself.
        """
        self._resignation = object()
        self._settled.clear()
        return self._resignation

    def end_resigning(self, resignation: object) -> None:
        """Propose what was kept, or refuse it with the name of who leads now.

        Nothing happens when that hand-over has ended by itself, and another may be under way.
        """
        if self._resignation is resignation:
            self._resignation = None
            self._settled.set()
            self.resigned()
            self.wake()

    async def lead_settled(self) -> None:
        """Return when no hand-over of this member's lead is under way."""
        await self._settled.wait()

    def take_over(self) -> None:
        """Stand for election at once: the leader is about to stop."""
        self._tell_group(self.group.take_over)

    # Asker, of `raft.read_rounds`.

    def read_peers(self) -> list[int]:
        """Peers that a round of reads is to be asked of."""
        return [] if self.stopped else self.group.read_peers()

    def read_question(self) -> ReadQuestion | None:
        """What they are asked; None when there is nothing to ask any more."""
        return None if self.stopped else self.group.read_question()

    def read_answered(self, sender: int, question: ReadQuestion, index: int) -> None:
        """A peer said yes."""
        self._tell_group(self.group.read_answered, sender, question, index)

    def _tell_group(self, call: Callable[..., None], *arguments: Any) -> None:
        if self.stopped:
            return
        try:
            call(*arguments)
        except RemoteProtocolError:
            raise
        except Exception as error:
            self._broke(error)
            return
        self.wake()

    def _broke(self, error: Exception) -> None:
        """Damage, or a command that this program does not know, ends this replica; anything else
        ends the node: going on is not safe."""
        if isinstance(error, CorruptData | UnknownCommandError):
            self.services.on_stuck(self, error)
        else:
            log.error("replica %s broke", self.gid, exc_info=error)
            self.services.on_broken(error)

    def wake(self) -> None:
        """Pump at the end of this turn of the loop."""
        if not self._pumping and not self.stopped:
            self._pumping = True
            self.services.turn_ends.wake(self)

    @property
    def leads(self) -> bool:
        """Whether this member believes that it leads."""
        return not self.stopped and self.group.role == "leader"

    @property
    def leader(self) -> int | None:
        """The leader's node id as far as this member knows."""
        return None if self.stopped else self.group.leader

    @property
    def is_settled(self) -> bool:
        """A member is known to lead. As leader: all members whose nodes are up follow this one."""
        if not self.leads:
            return self.leader is not None
        awaited = set(self.members) - self.group.followers - {self.services.node_id}
        liveness = self.services.liveness
        return not awaited or (liveness is not None and all(map(liveness.missing, awaited)))

    @property
    def leader_hint(self) -> int | None:
        """The leader as told to clients: none whose node is missing (x2.27)."""
        leader, liveness = self.leader, self.services.liveness
        if leader is None or leader == self.services.node_id:
            return None
        return None if liveness is not None and liveness.missing(leader) else leader

    def not_leader(self) -> NotLeader:
        """The refusal, with the hint where there is one."""
        hint = self.leader_hint
        known = "" if hint is not None else " and knows no live leader"
        return NotLeader(f"node {self.services.node_id} does not lead {self.gid}{known}", hint=hint)

    # Proposals and reads.

    def propose(
        self, command: bytes, waiting: Sequence["asyncio.Future[Any]"], *, records: int = 0
    ) -> int:
        """Append to the group's log; the waiting futures resolve when it is applied.

        `records` of it are counted as acknowledged then.

        Returns the index. Raises NotLeader, after which nothing was appended.
        """
        if self.resigning:
            raise self.not_leader()
        try:
            index, term = self.group.propose(command)
        except NotLeaderError:
            raise self.not_leader() from None
        except CorruptData as error:
            self._broke(error)
            raise Unavailable("this replica is damaged", outcome="unknown") from None
        self.proposals[index] = Proposal(term, waiting, len(command), records)
        self.proposed_bytes += len(command)
        self.wake()
        return index

    async def read_barrier(self) -> None:
        """Return when this replica has applied all that was acknowledged before the call (S7).

        Also as a follower: the index then comes from the leader. Raises NotLeader when none is
        known or it is lost meanwhile, or Sealed when the generation has ended.
        """
        if self.stopped:
            raise Unavailable("this replica has stopped")
        try:
            ticket = self.group.request_read()
        except NotLeaderError:
            raise self.not_leader() from None
        future: asyncio.Future[int] = self._loop.create_future()
        self._reads[ticket] = future
        self.wake()
        index = await future
        await self.wait_applied(index)
        if self.is_sealed:
            raise Sealed(f"generation {self.gid.generation} of range {self.gid.range_id} ended")

    async def wait_applied(self, index: int) -> None:
        """Return when the entry at `index` is applied here. Raises Unavailable when the replica
        stops."""
        while self.applied_index < index:
            if self.stopped:
                raise Unavailable("this replica has stopped", outcome="unknown")
            await self._applied_waiters.wait(index)

    # What subclasses define.

    def has_room(self) -> Callable[[], bool]:
        """What tells whether this node has room for entries of the group."""
        return _always

    @property
    def is_sealed(self) -> bool:
        """Whether the generation's last entry is applied here."""
        raise TypeError("a replica without a state machine")

    @property
    def waits(self) -> bool:
        """Whether the next entry can only be applied after something that calls `wake`."""
        return False

    def may_apply(self, entry: LogEntry) -> bool:
        """Whether the entry can be applied without holding the loop; False: in a later turn."""
        return True

    def apply(self, entry: LogEntry) -> Sequence[Any] | None:
        """Apply one committed entry; the results go to those who wait, in their order."""
        raise TypeError("a replica without a state machine")

    def role_changed(self, *, leads: bool) -> None:
        """Called when this member begins or ceases to lead."""

    def resigned(self) -> None:
        """Called when a hand-over is settled, whoever leads then."""

    def pumped(self) -> None:
        """Called at the end of each pump."""

    # The pump.

    def pump(self) -> None:
        """Move what the group has produced to those who wait for it."""
        self._pumping = False
        if self.stopped:
            return
        try:
            self._pump()
        except Exception as error:
            self._broke(error)

    def _pump(self) -> None:
        group = self.group
        for peer, message in group.take_messages():
            self.services.links.send(peer, self.gid, self.fingerprint, message)
        if group.take_read_begun():
            self.services.confirmations.ask(self)
        for ticket, index in group.take_reads():
            future = self._reads.pop(ticket, None)
            if future is not None and not future.done():
                if index is None:
                    future.set_exception(self.not_leader())
                else:
                    future.set_result(index)
        self._apply_slice()
        self._tell_leader(group.term, group.leader)
        leads = self.leads
        if leads != self._was_leader:
            self._was_leader = leads
            if not leads:
                # They may still commit, under another leader: nobody knows yet (S11).
                self._fail_waiting(Unavailable("the leader changed", outcome="unknown"))
            self.role_changed(leads=leads)
        if self._resignation is not None and not leads and self.leader_hint is not None:
            self.end_resigning(self._resignation)
        self.pumped()
        self._set_timer()

    def _tell_leader(self, term: int, leader: int | None) -> None:
        if (term, leader) == self._leader_told:
            return
        told_term, told = self._leader_told
        me = self.services.node_id
        if told == me:
            self._leader_told = (told_term, NOBODY)
            self.services.on_leader(self.gid, told_term, NOBODY)
        if leader is not None:
            self._leader_told = (term, leader)
            self.services.on_leader(self.gid, term, leader)

    def _apply_slice(self) -> None:
        if not self._taken:
            self._taken.extend(self.group.take_committed(_TAKE_BYTES))
        until = time.perf_counter() + _APPLY_S
        while self._taken and time.perf_counter() < until and self.may_apply(self._taken[0]):
            entry = self._taken.popleft()
            results = self.apply(entry)
            self.applied_index = entry.index
            proposal = self.proposals.pop(entry.index, None)
            if proposal is not None:
                self._settle(proposal, entry, results)
        self._applied_waiters.reach(self.applied_index)
        if not self.waits and (
            self._taken
            or self.applied_index < min(self.group.commit_index, self.raft_log.durable_index)
        ):
            self.wake()

    def _settle(self, proposal: Proposal, entry: LogEntry, results: Sequence[Any] | None) -> None:
        self.proposed_bytes -= proposal.size
        if not proposal.waiting:
            return
        if proposal.term != entry.term or results is None:
            # Another entry was committed at this index, so ours never can be.
            error = Unavailable("the leader changed; the append was discarded")
            for waiter in proposal.waiting:
                _fail(waiter, error)
            return
        self.services.metrics.appended_records.inc(proposal.records)
        for waiter, result in zip(proposal.waiting, results, strict=True):
            if not waiter.done():
                waiter.set_result(result)

    def _fail_waiting(self, error: LognodeError) -> None:
        for proposal in self.proposals.values():
            for waiter in proposal.waiting:
                _fail(waiter, error)
        self.proposals.clear()
        self.proposed_bytes = 0
        for future in self._reads.values():
            _fail(future, Unavailable("the leader changed"))
        self._reads.clear()

    def _set_timer(self) -> None:
        if self.stopped:
            return
        deadline = self.group.next_deadline()
        if self._timer is not None:
            if not self._timer.cancelled() and self._timer.when() <= deadline:
                return  # it fires early, looks again, and costs nothing per message
            self._timer.cancel()
        self._timer = self._loop.call_at(deadline, self._tick)

    def _tick(self) -> None:
        self._timer = None
        if self.stopped:
            return
        if self.group.next_deadline() <= self._loop.time():
            self._tell_group(self.group.tick)
        else:
            self._set_timer()


def _always() -> bool:
    return True


def _fail(waiter: "asyncio.Future[Any]", error: LognodeError) -> None:
    if not waiter.done():
        waiter.set_exception(error)
        waiter.exception()  # whoever waited may have gone: that is no unhandled error
