"""The members of one consumer group and their generations, without I/O.

    EMPTY       no member; the group may have committed offsets
    PREPARING   members join; those that do not join in time are removed
    COMPLETING  all have joined a new generation; its leader computes the assignment
    STABLE      every member may have its assignment
    DEAD        this node no longer coordinates the group; every request gets NOT_COORDINATOR

A generation begins when all members have joined: EMPTY or STABLE or COMPLETING, then PREPARING,
then COMPLETING, then STABLE. A member that joins, leaves or falls silent begins the next one. The
door knows nothing of assignments: the leader of a generation sends them as bytes.

A request that waits has a ticket, a number that the caller gives. `replies` has the answers to
tickets, and the caller takes them after each call. The clock is that of the caller, in seconds, and
never goes back. The caller calls `tick` several times a second. So a wait never lasts for ever:

- A member that neither sends heartbeats nor waits for an answer is removed after its session.
- Joins end when every member has joined, and after the longest rebalance timeout at the latest.
- A member that has joined and does not ask for its assignment is removed after the same time. So is
  a leader that sends heartbeats and no assignment.
- The first members of an empty group wait `FIRST_JOINS_S` for others, which saves generations
  when many members start, or have lost their coordinator, at the same time.

Answers may be lost. A member whose answer to a join was lost joins again, with the same protocols:
it gets the same generation as long as that is the newest. A member that never got the number of its
membership cannot come back, so it is removed when its connection ends.
"""

import enum
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from ...client.protocol import limits
from . import codes

MEMBERS_MAX: Final = 1_000
BYTES_MAX: Final = 4 * limits.MIB
"""Bytes of the metadata of all members of a group: its leader gets them in one answer."""
SESSION_MS: Final = (6_000, 1_800_000)
"""The least and the greatest timeout of a session, as with Kafka."""
REBALANCE_S_MAX: Final = 1_800.0
FIRST_JOINS_S: Final = 1.0
NO_GENERATION: Final = -1
_GENERATIONS_END: Final = (1 << 31) - 1
_KIND_CHARS_MAX: Final = 255
_MEMBER_BYTES: Final = 1_000
"""What a member costs besides its metadata and its assignment."""


class State(enum.Enum):
    """The state of a group, with the name that Kafka gives it."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class Wish(NamedTuple):
    """A request to join. `member` is empty for a new member."""

    group: str
    member: str
    session_ms: int
    rebalance_ms: int
    kind: str
    """The type of the protocol: `consumer`, `connect`."""
    protocols: Sequence[tuple[str, bytes]]
    """Assignors by name with the member's metadata for each, the preferred first."""


class Joined(NamedTuple):
    """The answer to a join. Only the leader gets `members`, with their metadata."""

    error: int
    member: str = ""
    generation: int = NO_GENERATION
    protocol: str = ""
    leader: str = ""
    members: Sequence[tuple[str, bytes]] = ()


class Synced(NamedTuple):
    """The answer to a member that asks for its assignment."""

    error: int
    assignment: bytes = b""


class Reply(NamedTuple):
    """The answer to the request that waits with a ticket."""

    ticket: int
    answer: Joined | Synced


def _bytes_of(protocols: Sequence[tuple[str, bytes]]) -> int:
    return sum(len(name) + len(metadata) for name, metadata in protocols)


class Member:
    """A member of a group."""

    def __init__(self, name: str, client: str, host: str) -> None:
        self.name = name
        self.client = client
        self.host = host
        self.session_s = 0.0
        self.rebalance_s = 0.0
        self.protocols: Sequence[tuple[str, bytes]] = ()
        self.assignment = b""
        self.expires_at = 0.0
        self.join_ticket: int | None = None
        self.sync_ticket: int | None = None
        self.has_joined = False
        """Whether the member has got an answer to a join."""

    @property
    def waits(self) -> bool:
        """Whether a request of the member waits for its answer."""
        return self.join_ticket is not None or self.sync_ticket is not None

    @property
    def size(self) -> int:
        """The bytes of the member in memory, roughly."""
        return _MEMBER_BYTES + _bytes_of(self.protocols) + len(self.assignment)

    def metadata(self, protocol: str) -> bytes:
        """Return the metadata for a protocol, which are empty for another protocol."""
        return dict(self.protocols).get(protocol, b"")


class Group:
    """A group. `generation` is at least the last one that an earlier coordinator has noted.
    `on_size` is told of the bytes that members of a host have more, or less."""

    def __init__(
        self, generation: int = 0, on_size: Callable[[str, int], None] = lambda _, __: None
    ) -> None:
        self._on_size = on_size
        self.state = State.EMPTY
        self.generation = generation if 0 <= generation < _GENERATIONS_END else 0
        self.kind = ""
        self.protocol = ""
        self.leader = ""
        self.members: dict[str, Member] = {}
        """The members by name, in the order of their first joins."""
        self.size = 0
        """The bytes of the members in memory, roughly."""
        self._replies: list[Reply] = []
        self._joins_began = 0.0
        self._until = 0.0
        """When the joins, or the requests for assignments, end at the latest."""
        self._not_before = 0.0
        """When the joins end at the earliest."""
        self._quiet_until = 0.0
        """Before this time, `tick` has nothing to do."""

    def replies(self) -> list[Reply]:
        """Return the answers since the last call."""
        found, self._replies = self._replies, []
        return found

    def growth(self, wish: Wish) -> int:
        """Return how many bytes more the group would have after a join."""
        own = self.members.get(wish.member)
        before = -_MEMBER_BYTES if own is None else _bytes_of(own.protocols)
        return _bytes_of(wish.protocols) - before

    # Requests.

    def join(
        self, wish: Wish, ticket: int, now: float, *, name: str, client: str = "", host: str = ""
    ) -> None:
        """Take a request to join. `name`: what a new member is to be called."""
        self._quiet_until = 0.0
        error = self._refusal(wish)
        if error:
            self._tell(ticket, Joined(error, wish.member))
            return
        member = self.members.get(wish.member)
        if member is not None and self._goes_on(member, wish):
            self._take_wish(member, wish, now)
            self._tell(ticket, self._joined(member))
            return
        if member is None:
            member = self.members[name] = Member(name, client, host)
            self._grow(member, member.size)
        elif member.join_ticket is not None:  # a second connection has taken the place of the first
            self._tell(member.join_ticket, Joined(codes.REBALANCE_IN_PROGRESS, member.name))
        self._take_wish(member, wish, now)
        self.kind = wish.kind
        member.join_ticket = ticket
        if self.state is not State.PREPARING:
            self._prepare(now)
        self._until = max(self._until, self._joins_began + member.rebalance_s)
        self._complete_joins(now)

    def _refusal(self, wish: Wish) -> int:
        """Return why the request is refused, or 0."""
        least, most = SESSION_MS
        own = self.members.get(wish.member)
        if self.state is State.DEAD:
            return codes.NOT_COORDINATOR
        if not least <= wish.session_ms <= most:
            return codes.INVALID_SESSION_TIMEOUT
        if wish.member and own is None:
            return codes.UNKNOWN_MEMBER_ID
        if not 0 < len(wish.kind) <= _KIND_CHARS_MAX or not wish.protocols:
            return codes.INCONSISTENT_GROUP_PROTOCOL
        others = [each for each in self.members.values() if each is not own]
        if others:
            known = self._common(others)
            if wish.kind != self.kind or not any(name in known for name, _ in wish.protocols):
                return codes.INCONSISTENT_GROUP_PROTOCOL
        given = self.size + _MEMBER_BYTES + _bytes_of(wish.protocols)
        given -= own.size if own is not None else 0
        if given > BYTES_MAX + MEMBERS_MAX * _MEMBER_BYTES:
            return codes.GROUP_MAX_SIZE_REACHED
        return codes.GROUP_MAX_SIZE_REACHED if len(others) >= MEMBERS_MAX else codes.NONE

    def _goes_on(self, member: Member, wish: Wish) -> bool:
        """Return whether the member only missed an answer: nothing changes."""
        if list(member.protocols) != list(wish.protocols):
            return False
        if self.state is State.COMPLETING:
            return True
        return self.state is State.STABLE and member.name != self.leader

    def _take_wish(self, member: Member, wish: Wish, now: float) -> None:
        before = member.size
        member.protocols = tuple(wish.protocols)
        self._grow(member, member.size - before)
        member.session_s = wish.session_ms / 1000
        rebalance_ms = wish.rebalance_ms if wish.rebalance_ms > 0 else wish.session_ms
        member.rebalance_s = min(rebalance_ms / 1000, REBALANCE_S_MAX)
        self._refresh(member, now)

    def sync(
        self, name: str, generation: int, assignments: Mapping[str, bytes], ticket: int, now: float
    ) -> None:
        """Take a member's request for its assignment, which has all assignments if the member is
        the leader."""
        self._quiet_until = 0.0
        error = self._stranger(name, generation)
        if not error and self.state is State.PREPARING:
            error = codes.REBALANCE_IN_PROGRESS
        if error:
            self._tell(ticket, Synced(error))
            return
        member = self.members[name]
        self._refresh(member, now)
        if self.state is State.STABLE:
            self._tell(ticket, Synced(codes.NONE, member.assignment))
            return
        if member.sync_ticket is not None:
            self._tell(member.sync_ticket, Synced(codes.REBALANCE_IN_PROGRESS))
        member.sync_ticket = ticket
        if name != self.leader:
            return
        self.state = State.STABLE
        for each in self.members.values():
            before = each.size
            each.assignment = assignments.get(each.name, b"")
            self._grow(each, each.size - before)
            self._end_sync(each, codes.NONE, now)

    def heartbeat(self, name: str, generation: int, now: float) -> int:
        """Return the error for a heartbeat, or 0."""
        error = self._stranger(name, generation)
        if error:
            return error
        self._refresh(self.members[name], now)
        return codes.REBALANCE_IN_PROGRESS if self.state is State.PREPARING else codes.NONE

    def leave(self, name: str, now: float) -> int:
        """Remove a member; return the error, or 0."""
        self._quiet_until = 0.0
        if self.state is State.DEAD:
            return codes.NOT_COORDINATOR
        if name not in self.members:
            return codes.UNKNOWN_MEMBER_ID
        self._remove(self.members[name], now)
        return codes.NONE

    def commit(self, name: str, generation: int, now: float) -> int:
        """Return why a commit of offsets is refused, or 0. A client without a membership commits
        only while the group is empty."""
        if generation < 0 and not name and self.state is State.EMPTY:
            return codes.NONE
        error = self._stranger(name, generation)
        if error:
            return error
        self._refresh(self.members[name], now)
        # The members of a new generation do not have their partitions yet.
        return codes.REBALANCE_IN_PROGRESS if self.state is State.COMPLETING else codes.NONE

    def gone(self, ticket: int, now: float) -> None:
        """Forget a request: its connection has ended."""
        self._quiet_until = 0.0
        for member in self.members.values():
            if member.sync_ticket == ticket:
                member.sync_ticket = None
                return
            if member.join_ticket == ticket:
                member.join_ticket = None
                if not member.has_joined:
                    self._remove(member, now)
                return

    def end(self) -> None:
        """This node no longer coordinates the group: tell all who wait."""
        for member in self.members.values():
            if member.join_ticket is not None:
                self._tell(member.join_ticket, Joined(codes.NOT_COORDINATOR, member.name))
            if member.sync_ticket is not None:
                self._tell(member.sync_ticket, Synced(codes.NOT_COORDINATOR))
            self._grow(member, -member.size)
        self.state, self.members = State.DEAD, {}

    def tick(self, now: float) -> None:
        """Remove members whose time is over, and end joins."""
        if now < self._quiet_until:
            return
        for member in list(self.members.values()):
            if member.expires_at <= now and not member.waits:
                self._remove(member, now)
        if self.state is State.PREPARING:
            if now >= self._until:
                for member in [each for each in self.members.values() if not each.waits]:
                    self._drop(member)
            self._complete_joins(now)
        elif self.state is State.COMPLETING and now >= self._until:
            late = [each for each in self.members.values() if each.sync_ticket is None]
            for member in late:
                self._drop(member)
            self._prepare(now)
        self._quiet_until = self._next_time(now)

    def _next_time(self, now: float) -> float:
        """Return a time before which nothing happens by itself."""
        times = [each.expires_at for each in self.members.values() if not each.waits]
        if self.state is State.PREPARING:
            is_early = now < min(self._not_before, self._until)
            times.append(self._not_before if is_early else self._until)
        elif self.state is State.COMPLETING:
            times.append(self._until)
        return min(times, default=math.inf)

    # States.

    def _prepare(self, now: float) -> None:
        """Begin to take joins for the next generation."""
        was_empty = self.state is State.EMPTY
        for member in self.members.values():
            self._end_sync(member, codes.REBALANCE_IN_PROGRESS, now)
        if not self.members:
            self._be_empty()
            return
        self.state = State.PREPARING
        self._joins_began = now
        self._not_before = now + FIRST_JOINS_S if was_empty else now
        self._until = now + max(each.rebalance_s for each in self.members.values())

    def _complete_joins(self, now: float) -> None:
        """Begin the next generation if every member has joined."""
        if not self.members:
            self._be_empty()
            return
        if now < min(self._not_before, self._until):
            return
        if any(each.join_ticket is None for each in self.members.values()):
            return
        self._count_generation()
        self.protocol = self._chosen()
        if self.leader not in self.members:
            self.leader = next(iter(self.members))
        self.state = State.COMPLETING
        self._until = now + max(each.rebalance_s for each in self.members.values())
        for member in self.members.values():
            ticket, member.join_ticket = member.join_ticket, None
            member.has_joined = True
            self._refresh(member, now)
            if ticket is not None:
                self._tell(ticket, self._joined(member))

    def _joined(self, member: Member) -> Joined:
        told: Sequence[tuple[str, bytes]] = ()
        if member.name == self.leader:
            told = [(each.name, each.metadata(self.protocol)) for each in self.members.values()]
        return Joined(codes.NONE, member.name, self.generation, self.protocol, self.leader, told)

    def _be_empty(self) -> None:
        if self.state is not State.EMPTY:
            self._count_generation()
        self.state = State.EMPTY
        self.kind = self.protocol = self.leader = ""

    def _count_generation(self) -> None:
        self.generation = self.generation + 1 if self.generation < _GENERATIONS_END else 1

    def _remove(self, member: Member, now: float) -> None:
        """Remove a member, and have the others join again."""
        self._drop(member)
        if self.state is State.PREPARING:
            self._complete_joins(now)
        else:
            self._prepare(now)

    def _drop(self, member: Member) -> None:
        if member.join_ticket is not None:
            self._tell(member.join_ticket, Joined(codes.UNKNOWN_MEMBER_ID, member.name))
        if member.sync_ticket is not None:
            self._tell(member.sync_ticket, Synced(codes.UNKNOWN_MEMBER_ID))
        del self.members[member.name]
        self._grow(member, -member.size)

    def _end_sync(self, member: Member, error: int, now: float) -> None:
        ticket, member.sync_ticket = member.sync_ticket, None
        if ticket is not None:
            self._refresh(member, now)
            self._tell(ticket, Synced(error, b"" if error else member.assignment))

    # Members.

    def _grow(self, member: Member, by: int) -> None:
        self.size += by
        self._on_size(member.host, by)

    def _stranger(self, name: str, generation: int) -> int:
        """Return the error for a request that is not from a member of this generation, or 0."""
        if self.state is State.DEAD:
            return codes.NOT_COORDINATOR
        if name not in self.members:
            return codes.UNKNOWN_MEMBER_ID
        return codes.ILLEGAL_GENERATION if generation != self.generation else codes.NONE

    def _chosen(self) -> str:
        """Return the protocol that most members prefer among those that all members know."""
        members = list(self.members.values())
        known = self._common(members)
        votes = Counter(next(name for name, _ in each.protocols if name in known) for each in
                        members)  # fmt: skip
        return votes.most_common(1)[0][0]

    def _common(self, members: Sequence[Member]) -> set[str]:
        """Return the names of the protocols that all these members know."""
        return set.intersection(*({name for name, _ in each.protocols} for each in members))

    def _refresh(self, member: Member, now: float) -> None:
        member.expires_at = now + member.session_s

    def _tell(self, ticket: int, answer: Joined | Synced) -> None:
        self._replies.append(Reply(ticket, answer))
