"""The common part of all simulated replicas: a member of a Raft group, driven as on a node.

It shows the group to the checkers after every call, before any other code can see the effects;
takes the output of the group; and knows its own proposals by index and term. Subclasses define the
meaning of a committed entry.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from ...client.protocol.errors import CorruptData
from ...client.protocol.invariants import invariant
from ...partitions.model import Descriptor
from ...raft.group import Group
from ...raft.group_log import GroupLog
from ...raft.guard import ALL_HOLES
from ...raft.messages import KINDS, Vote, VoteRequest
from ...raft.readindex import ReadQuestion
from ...raft.types import GroupId, LogEntry, RaftOptions

if TYPE_CHECKING:
    from .host import Host

(
    RAFT, READS, ANSWERS, BASE_WANTED, BASE, BASE_INSTALLED, HEARTBEAT, NEWS, REPORT, CONTROLLER,
    PING, FILE_WANTED, FILE,
) = range(13)  # fmt: skip
"""First element of messages between hosts: `[kind, group, body, ping]`."""

_VOTE: Final = next(number for number, kind in KINDS.items() if kind is Vote)
_VOTE_REQUEST: Final = next(number for number, kind in KINDS.items() if kind is VoteRequest)
_PROMISES: Final = frozenset(
    number
    for number, kind in KINDS.items()
    if kind.__name__ in ("Append", "Ack", "Reject", "VoteRequest", "Vote")
)
"""Messages whose term their sender must never forget."""

Settled = Callable[[Sequence[Any] | None], None]
"""Called with the answers of apply, or with None when the entry can never be applied."""


class Member:
    """One member of one generation, for one life of its process."""

    def __init__(self, host: "Host", descriptor: Descriptor, log: GroupLog, applied: int) -> None:
        self.host = host
        self.descriptor = descriptor
        self.gid = GroupId(descriptor.range_id, descriptor.generation)
        self.name = f"{self.gid.range_id}/{self.gid.generation}"
        self.fingerprint = descriptor.fingerprint()
        self.log = log
        self.safety = host.world.generations.checker(descriptor)
        self.stopped = False
        self._proposed: dict[int, tuple[int, Settled]] = {}
        self._reads_asked: dict[int, Callable[[int | None], None]] = {}
        self._seen: tuple[int, ...] = ()
        self.group = self._new_group(applied)

    def _new_group(self, applied: int) -> Group:
        return Group(
            log=self.log,
            node_id=self.host.node_id,
            members=self.descriptor.members,
            applied_index=applied,
            clock=self.host.world.clock,
            rng=self.host.rng,
            options=RaftOptions(),
            closed=ALL_HOLES - self.host.options.opened,
            gid=self.gid,
            liveness=None if self.host.pings is None else self.host.pings.liveness,
            on_refused=self._refused,
        )

    def _refused(self, sender: int, reason: str) -> None:
        """Report a refused message: a node would drop it, but here every member is sound."""
        invariant(False, "a member refuses a message of another", sender=sender, reason=reason)

    # For subclasses to define.

    @property
    def applied_index(self) -> int:
        """The index of the last applied entry."""
        raise NotImplementedError

    @property
    def is_sealed(self) -> bool:
        """Whether the generation's last entry is applied here."""
        raise NotImplementedError

    def apply(self, entry: LogEntry) -> tuple[bytes, Sequence[Any]]:
        """Apply a committed entry; return the hash of the new state, and the answers.

        Raises CorruptData when a damaged file is needed.
        """
        raise NotImplementedError

    def drained(self) -> None:
        """Called after all output of the group was taken."""

    def stuck(self, error: CorruptData) -> None:
        """Stop: an entry cannot be applied without a damaged file."""
        raise error

    # Life.

    def start(self, state_hash: bytes | None, *, campaign: bool) -> None:
        """Take part; `state_hash` is the hash of the applied state."""
        node = self.host.node_id
        self.safety.started(
            node,
            self.log,
            term=self.group.term,
            commit=self.group.commit_index,
            applied=self.applied_index,
            vote=self.log.vote,
        )
        if state_hash is not None:
            self.safety.same_state(node, self.applied_index, state_hash)
        self.take_part(campaign=campaign)

    def take_part(self, *, campaign: bool) -> None:
        """Take part from now on, with a group that was just made."""
        for peer, epoch in self.host.links.items():
            self.connected(peer, epoch)
        self.group.start(campaign=campaign)
        self.host.touch(self)

    def stop(self) -> None:
        """Stop taking part, in this life."""
        self.stopped = True
        self.group.stop()
        self._settle_reads()

    def connected(self, peer: int, epoch: int) -> None:
        """Note that the host's link to a peer is up."""
        if peer in self.descriptor.members:
            self.group.connected(peer, epoch)
            self.host.touch(self)

    def disconnected(self, peer: int) -> None:
        """Note that the host's link to a peer is gone."""
        if peer in self.descriptor.members:
            self.group.disconnected(peer)
            self.host.touch(self)

    @property
    def members(self) -> tuple[int, ...]:
        """The members of the generation."""
        return self.descriptor.members

    @property
    def leader(self) -> int | None:
        """The leader as far as this member knows."""
        return None if self.stopped else self.group.leader

    @property
    def leads(self) -> bool:
        """Whether this member believes that it leads."""
        return not self.stopped and self.group.role == "leader"

    def describe(self) -> str:
        """Describe the state of this member, for a report."""
        group = self.group
        return (
            f"{self.name} {group.role} term={group.term} "
            f"log={self.log.base_index}..{group.last_index} commit={group.commit_index} "
            f"durable={self.log.durable_index} applied={self.applied_index} leader={group.leader} "
            f"base={'wanted' if group.base_wanted else sorted(group.needs_base)}"
            f"{' sealed' if self.is_sealed else ''}{' idle' if group.idle else ''}"
        )

    # Proposals and reads.

    def propose(self, command: bytes, settled: Settled) -> None:
        """Append a command, as leader; `settled` is called when its fate is known here."""
        index, term = self.group.propose(command)
        self._proposed[index] = (term, settled)
        self.host.touch(self)
        self.host.world.trace(self.host.name, "propose", f"{self.name} index={index} term={term}")

    def ask_read(self, settled: Callable[[int | None], None]) -> None:
        """Begin a linearizable read: `settled` gets the index that must be applied first, or None.

        Raises NotLeaderError when no leader is known to ask.
        """
        self._reads_asked[self.group.request_read()] = settled
        self.host.touch(self)

    def read_peers(self, *, first: bool) -> list[int]:
        """Return the peers, for `ReadRounds`."""
        return self.group.read_peers(first=first)

    def read_question(self) -> ReadQuestion | None:
        """Return the question, for `ReadRounds`."""
        return self.group.read_question()

    def read_answered(self, sender: int, question: ReadQuestion, index: int) -> None:
        """Pass an answer to `ReadRounds`."""
        self.group.read_answered(sender, question, index)
        self.host.touch(self)

    # After every call.

    def drain(self) -> None:
        """Show the member to the checkers, then take the output of the group."""
        if self.stopped:
            return
        self._observe()
        group = self.group
        while entries := group.take_committed(1 << 16):
            for entry in entries:
                if not self._apply(entry):
                    return
        if group.take_read_begun():
            self.host.reads.ask(self)
        self._settle_reads()
        node = self.host.node_id
        for peer, message in group.take_messages():
            if message[0] in _PROMISES:
                self.safety.showed(node, message[1])
                if message[0] == _VOTE:
                    self.safety.voted(node, message[1], peer)
                elif message[0] == _VOTE_REQUEST:  # a candidate votes for itself
                    self.safety.voted(node, message[1], node)
            self.host.send(peer, RAFT, self.gid, [self.fingerprint, message])
        self.drained()

    def _apply(self, entry: LogEntry) -> bool:
        """Apply a committed entry; return False when the member has stopped instead."""
        try:
            state_hash, answers = self.apply(entry)
        except CorruptData as error:
            self.stuck(error)
            return False
        self.safety.applied(self.host.node_id, entry.index, entry.term, state_hash)
        proposed = self._proposed.pop(entry.index, None)
        if proposed is not None:
            term, settled = proposed
            # Another entry is at the index: the proposed entry can never be applied.
            settled(answers if term == entry.term else None)
        return True

    def _settle_reads(self) -> None:
        for ticket, index in self.group.take_reads():
            self._reads_asked.pop(ticket)(index)

    def _observe(self) -> None:
        group, log = self.group, self.log
        leads, commit = group.role == "leader", log.commit_index
        seen = (group.term, leads, commit, log.last_index, log.last_term, log.base_index)
        if seen == self._seen:
            return
        world, name = self.host.world, self.host.name
        if self._seen[:1] != seen[:1]:
            world.trace(name, "term", f"{self.name} {seen[0]}")
        self._seen = seen
        elected = self.safety.observe(
            self.host.node_id, log, term=seen[0], commit=commit, leads=leads
        )
        if elected:
            world.elections += 1
            world.trace(name, "lead", f"{self.name} term={seen[0]} last={log.last_index}")

    def collected(self, round_number: int) -> None:
        """Note that the WAL took everything queued."""
        self.safety.collected(self.host.node_id, round_number)

    def synced(self, round_number: int) -> None:
        """Note that the disk finished a round."""
        self.safety.synced(self.host.node_id, round_number)
