"""A replica: one member's copy of one generation, between its Raft group and the event loop.

`Group` is sans-I/O. In `pump`, this class passes on what the group produces (messages, committed
entries, answered reads, deadlines). `pump` runs once per turn of the loop in which something
happened. Subclasses define what a committed entry means.
"""

import asyncio
import logging
import math
import random
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

from ...client.protocol import limits
from ...client.protocol.errors import (
    CorruptData,
    LognodeError,
    NotLeader,
    RemoteProtocolError,
    Sealed,
    Unavailable,
)
from ...client.timer import Timer
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
from .traces import Traces

_TAKE_BYTES = 1 << 20
_APPLY_S = 0.0025
"""After this time no further entry is begun in a turn of the loop, so that turns take about 5 ms.
"""

log = logging.getLogger("lognode.replica")


class Links(Protocol):
    """Where a replica's Raft messages go."""

    def send(self, peer: int, gid: GroupId, fingerprint: bytes, message: Message) -> None: ...


class Confirms(Protocol):
    """Where a replica's rounds of reads get their confirmations."""

    def ask(self, asker: Asker) -> None: ...


@dataclass(slots=True)
class Memory:
    """The state of the memory that all memtables of a node share."""

    scarce: bool = False
    """Segments are built more slowly than entries come: building must wait for nothing else."""
    full: bool = False
    """The node's limit is reached: appends are refused until segments are built."""
    brim: bool = False
    """The room kept for principals that append little is full as well: all appends are refused."""
    brought: Brought = field(default_factory=lambda: Brought(time.monotonic))

    def measured(self, held: int, frozen_most: int) -> None:
        """Take the bytes of all memtables, and the most frozen bytes of one replica."""
        self.scarce = frozen_most > limits.frozen_scarce_bytes or held > limits.memtables_bytes_max
        self.full = held > limits.memtables_hard_bytes_max
        self.brim = held > brim(limits.memtables_hard_bytes_max)


@dataclass(slots=True)
class Services:
    """The services that the node gives to each of its replicas."""

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
    """Returns the timestamp for what a leader proposes now."""
    liveness: Liveness | None
    """Lets groups rest; None: groups never rest."""
    on_appended: Callable[[int, int, int], None]
    """An entry of a range that was proposed here was applied: range id, new records, bytes."""
    on_leader: Callable[[GroupId, int, int], None]
    """The leader of a group's term is known; NOBODY: the leader here has stepped down."""
    on_broken: Callable[[BaseException], None]
    """An invariant is broken: the node stops."""
    on_stuck: Callable[["Replica", CorruptData | UnknownCommandError], None]
    """The replica cannot continue: its own data is damaged (S12), or the next entry of its log is a
    command of a newer program."""
    room: DiskRoom
    """Whether the disk has room for appends."""
    traces: Traces | None = None
    """The traces of appends; None: there are none."""


@dataclass(slots=True)
class Proposal:
    """A Raft entry that was proposed and is not applied yet: who waits for it, and its size."""

    term: int
    waiting: Sequence["asyncio.Future[Any]"]
    size: int
    records: int
    proposed_s: float


class Replica:
    """The common part of range and controller replicas."""

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
        """Member and reason of each kind of refused message that was logged."""
        self.group = self._new_group(applied_index)
        self._taken: deque[LogEntry] = deque()
        """Entries that are committed and not applied yet."""
        self.proposals: dict[int, Proposal] = {}
        self.proposed_bytes = 0
        self._confirmed = 0, -math.inf
        """The term of the last own entry that was committed, and when it was proposed."""
        self._loop = asyncio.get_running_loop()
        self._reads: dict[int, asyncio.Future[int]] = {}
        self._applied_waiters = Waiters(services.on_broken)
        """Waiters for an applied index."""
        self._timer: Timer | None = None
        self._pumping = False
        self._was_leader = False
        self._leader_told = (0, NOBODY)
        """(term, leader) as last reported."""
        self.stopped = False
        self._resignation: object | None = None
        """The hand-over of this member's leadership that is under way."""
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
        """Count a dropped message that no sound member sends, and log it once."""
        self.services.metrics.raft_dropped.labels(reason).inc()
        if (sender, reason) not in self._refusals:
            self._refusals.add((sender, reason))
            log.error(
                "the node drops a message of a member that cannot be true",
                extra={"fields": {"peer": sender, "range": self.gid.range_id,
                                  "generation": self.gid.generation, "reason": reason}},
            )  # fmt: skip

    # Called by the node.

    def start(self, *, campaign: bool = False) -> None:
        """Take part from now on. `campaign`: stand for election at once."""
        self.group.start(campaign=campaign)
        self.wake()

    def stop(self) -> None:
        """Take no further part. Waiting callers get an error with outcome unknown."""
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
        """Take a Raft message from a member.

        Raises RemoteProtocolError for an invalid message.
        """
        if sender in self.members:
            self._tell_group(self.group.receive, sender, message)

    def connected(self, peer: int, epoch: int) -> None:
        """Tell the group that our link to the peer is up."""
        if peer in self.members:
            self._tell_group(self.group.connected, peer, epoch)

    def disconnected(self, peer: int) -> None:
        """Tell the group that our link to the peer is down."""
        if peer in self.members:
            self._tell_group(self.group.disconnected, peer)

    def pause(self, peer: int) -> None:
        """Tell the group that our link to the peer is full."""
        if peer in self.members:
            self._tell_group(self.group.pause, peer)

    def resume(self, peer: int) -> None:
        """Tell the group that our link to the peer has room again."""
        if peer in self.members:
            self._tell_group(self.group.resume, peer)

    def synced(self) -> None:
        """Tell the group that a WAL round that touched it is durable."""
        self._tell_group(self.group.synced)

    def disturb(self, peer: int, *, campaign: bool) -> None:
        """Wake the group from its rest; see `Group.disturb`."""
        self._tell_group(partial(self.group.disturb, campaign=campaign), peer)

    @property
    def resigning(self) -> bool:
        """Whether this member hands over its leadership; proposals are kept meanwhile."""
        return self._resignation is not None

    def resign(self) -> object:
        """Propose nothing, so that a follower can catch up and become leader.

        This lasts until `end_resigning` gets the returned object, or until another member is known
        to be the leader.
        """
        self._resignation = object()
        self._settled.clear()
        return self._resignation

    def end_resigning(self, resignation: object) -> None:
        """Propose the kept commands, or refuse them with the name of the leader.

        Do nothing when this hand-over has ended by itself; another may be under way.
        """
        if self._resignation is resignation:
            self._resignation = None
            self._settled.set()
            self.resigned()
            self.wake()

    async def lead_settled(self) -> None:
        """Return when no hand-over of this member's leadership is under way."""
        await self._settled.wait()

    def learn_commit(self, index: int, term: int) -> None:
        """Apply the entries up to this one, which the metadata say is committed, if it is here."""
        self._tell_group(self.raft_log.learn_commit, index, term)

    def take_over(self) -> None:
        """Stand for election at once: the leader is about to stop."""
        self._tell_group(self.group.take_over)

    # Asker, of `raft.read_rounds`.

    def read_peers(self, *, first: bool) -> list[int]:
        """Return the peers that a round of reads must ask."""
        return [] if self.stopped else self.group.read_peers(first=first)

    def read_question(self) -> ReadQuestion | None:
        """Return the question for these peers; None when there is nothing left to ask."""
        return None if self.stopped else self.group.read_question()

    def read_answered(self, sender: int, question: ReadQuestion, index: int) -> None:
        """Tell the group that a peer confirmed the question."""
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
        """End the replica after damage or an unknown command; end the node after another error."""
        if isinstance(error, CorruptData | UnknownCommandError):
            self.services.on_stuck(self, error)
        else:
            log.error("replica %s failed", self.gid, exc_info=error)
            self.services.on_broken(error)

    def wake(self) -> None:
        """Pump at the end of this turn of the loop."""
        if not self._pumping and not self.stopped:
            self._pumping = True
            self.services.turn_ends.wake(self)

    @property
    def leads(self) -> bool:
        """Whether this member believes that it is the leader."""
        return not self.stopped and self.group.role == "leader"

    @property
    def leader(self) -> int | None:
        """The leader's node id as far as this member knows, or None."""
        return None if self.stopped else self.group.leader

    @property
    def is_settled(self) -> bool:
        """Whether a leader is known and, on the leader, all members on live nodes follow it."""
        if not self.leads:
            return self.leader is not None
        awaited = set(self.members) - self.group.followers - {self.services.node_id}
        liveness = self.services.liveness
        return not awaited or (liveness is not None and all(map(liveness.missing, awaited)))

    @property
    def leader_hint(self) -> int | None:
        """The leader as told to clients; None while the leader's node is missing (x2.27)."""
        leader, liveness = self.leader, self.services.liveness
        if leader is None or leader == self.services.node_id:
            return None
        return None if liveness is not None and liveness.missing(leader) else leader

    def not_leader(self) -> NotLeader:
        """Return the refusal, with the leader's id or the members that are silent."""
        hint = self.leader_hint
        known = "" if hint is not None else f" and knows no live leader{self._silent()}"
        return NotLeader(f"node {self.services.node_id} does not lead {self.gid}{known}", hint=hint)

    def _silent(self) -> str:
        liveness = self.services.liveness
        others = sorted(set(self.members) - {self.services.node_id})
        silent = [node for node in others if liveness is not None and liveness.missing(node)]
        if not silent:
            return ""
        needed = len(self.members) // 2 + 1
        return (
            f": the node hears nothing from {_nodes(silent)}, and {needed} of "
            f"{_nodes(sorted(self.members))} must be up"
        )

    # Proposals and reads.

    def propose(
        self, command: bytes, waiting: Sequence["asyncio.Future[Any]"], *, records: int = 0
    ) -> int:
        """Append to the group's log; the waiting futures resolve when the entry is applied.

        `records`: how many records are then counted as acknowledged. Returns the index. Raises
        NotLeader, after which nothing was appended.
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
        self.proposals[index] = Proposal(term, waiting, len(command), records, time.monotonic())
        self.proposed_bytes += len(command)
        self.wake()
        return index

    async def read_barrier(self) -> None:
        """Return when this replica has applied all that was acknowledged before the call (S7).

        A follower gets the index from the leader. Raises NotLeader when no leader is known or the
        leader is lost meanwhile, Sealed when the generation has ended, or the errors of
        `wait_applied`.
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
        try:
            index = await future
        finally:
            del future  # the error of a future refers to this frame: break the cycle
        await self.wait_applied(index)
        if self.is_sealed:
            raise Sealed(f"generation {self.gid.generation} of range {self.gid.range_id} ended")

    def surely_led_since(self, since_s: float) -> bool:
        """Whether this member surely was the leader at some moment after `since_s`, and lately.

        An entry of its own that was proposed later and is committed shows that a majority was at
        its term when it accepted the entry: no leader of a later term had begun. `since_s` is a
        time of the monotonic clock. False is always allowed.
        """
        term, proposed_s = self._confirmed
        if term != self.group.term or not self.leads or proposed_s <= since_s:
            return False
        return time.monotonic() - proposed_s < self.services.options.election_timeout_min_s / 2

    async def wait_applied(self, index: int) -> None:
        """Return when the entry at `index` is applied here. Raises Unavailable when the replica
        stops, and while the next entry waits for a tier that is away."""
        while self.applied_index < index:
            if self.stopped:
                raise Unavailable("this replica has stopped", outcome="unknown")
            self.check_applies()
            await self._applied_waiters.wait(index)

    # Defined by subclasses.

    def has_room(self) -> Callable[[], bool]:
        """Return a function that tells whether this node has room for entries of the group."""
        return _always

    @property
    def is_sealed(self) -> bool:
        """Whether the generation's last entry is applied here."""
        raise TypeError("this replica has no state machine")

    @property
    def waits(self) -> bool:
        """Whether the next entry must wait until something calls `wake`."""
        return False

    def check_applies(self) -> None:
        """Raise Unavailable while the next entry waits for a store, nobody knows how long."""

    def may_apply(self, entry: LogEntry) -> bool:
        """Whether the entry can be applied without holding the loop; False: in a later turn."""
        return True

    def apply(self, entry: LogEntry) -> Sequence[Any] | None:
        """Apply one committed entry; return the results for the waiting futures, in their order."""
        raise TypeError("this replica has no state machine")

    def role_changed(self, *, leads: bool) -> None:
        """React to this member becoming leader or ceasing to be leader."""

    def resigned(self) -> None:
        """React to the end of a hand-over, with or without a new leader."""

    def pumped(self) -> None:
        """React to the end of a pump."""

    # The pump.

    def pump(self) -> None:
        """Pass on the group's messages, entries, answers and deadlines."""
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
        if self.services.traces is not None:
            self._look_at_traces(self.services.traces)
        self._apply_slice()
        self._tell_leader(group.term, group.leader)
        leads = self.leads
        if leads != self._was_leader:
            self._was_leader = leads
            if not leads:
                # Another leader may still commit these entries: the outcome is unknown (S11).
                self._fail_waiting(Unavailable("the leader changed", outcome="unknown"))
            self.role_changed(leads=leads)
        if self._resignation is not None and not leads and self.leader_hint is not None:
            self.end_resigning(self._resignation)
        self.pumped()
        if self.services.traces is not None:
            self._look_at_traces(self.services.traces)
        self._set_timer()

    def _look_at_traces(self, traces: Traces) -> None:
        traces.look(
            self.gid, leads=self.leads, durable=self.raft_log.durable_index,
            committed=self.group.commit_index, applied=self.applied_index,
        )  # fmt: skip

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
        if proposal.term == entry.term:
            self._confirmed = entry.term, proposal.proposed_s
        if not proposal.waiting:
            return
        if proposal.term != entry.term or results is None:
            # Another entry was committed at this index, so this proposal never can be.
            error = Unavailable("the leader changed, and the append was discarded")
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
            if self._timer.when <= deadline:
                return  # the timer fires early and looks again, at no cost per message
            self._timer.cancel()
        self._timer = Timer.at(self._loop, deadline, self._tick)

    def _tick(self) -> None:
        self._timer = None
        if self.stopped:
            return
        if self.group.next_deadline() <= self._loop.time():
            self._tell_group(self.group.tick)
        else:
            self._set_timer()


def brim(hard_bytes: int) -> int:
    """Return the limit at which all appends are refused, for a limit at which most are."""
    return hard_bytes + hard_bytes // 4


def _always() -> bool:
    return True


def _fail(waiter: "asyncio.Future[Any]", error: LognodeError) -> None:
    if not waiter.done():
        waiter.set_exception(error)
        waiter.exception()  # the waiting caller may be gone: this must not log an unhandled error


def _nodes(ids: Sequence[int]) -> str:
    return f"node {ids[0]}" if len(ids) == 1 else f"nodes {', '.join(map(str, ids))}"
