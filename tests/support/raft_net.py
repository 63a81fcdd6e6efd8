"""Groups over an in-memory network, log and clock, for tests: nothing happens unless asked.

`MemoryLog` is a group's log whose syncs are explicit; `Net` holds the members' messages in flight
until they are delivered, by hand or by `run`, which moves the virtual clock from event to event.
"""

import math
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from lognode.client.protocol.invariants import invariant
from lognode.raft.group import Group
from lognode.raft.guard import ALL_HOLES
from lognode.raft.liveness import Liveness, Ping
from lognode.raft.messages import Body, decode
from lognode.raft.read_rounds import ReadRounds
from lognode.raft.readindex import ReadQuestion
from lognode.raft.types import (
    SENTINEL_INDEX,
    SENTINEL_TERM,
    GroupId,
    LogEntry,
    Message,
    RaftOptions,
)


@dataclass
class _State:
    base_index: int = SENTINEL_INDEX
    base_term: int = SENTINEL_TERM
    term: int = 0
    vote: int | None = None
    commit: int = SENTINEL_INDEX
    entries: list[LogEntry] = field(default_factory=list)

    def copy(self) -> "_State":
        return replace(self, entries=list(self.entries))


GID = GroupId(7, 1)
"""What the group is called where its node speaks of it."""


class MemoryLog:
    """The interface of GroupLog over lists; `sync` is the WAL round, `crash` loses the rest."""

    def __init__(self) -> None:
        self._now = _State()
        self._disk = _State()
        self._entry_rounds: list[int] = []
        self._hard_state_round = 0
        self.open_round = 1
        self.synced_round = 0
        self._rounds: dict[int, _State] = {}
        self.dirty = False

    @property
    def base_index(self) -> int:
        return self._now.base_index

    @property
    def base_term(self) -> int:
        return self._now.base_term

    @property
    def last_index(self) -> int:
        return self._now.base_index + len(self._now.entries)

    @property
    def last_term(self) -> int:
        return self._now.entries[-1].term if self._now.entries else self._now.base_term

    @property
    def term(self) -> int:
        return self._now.term

    @property
    def vote(self) -> int | None:
        return self._now.vote

    @property
    def commit_index(self) -> int:
        return max(self.base_index, min(self._now.commit, self.last_index))

    @property
    def durable_index(self) -> int:
        synced = len(self._entry_rounds)
        while synced and self._waits(self._entry_rounds[synced - 1]):
            synced -= 1
        return self.base_index + synced

    def _waits(self, number: int) -> int:
        return number if number > self.synced_round else 0

    def term_at(self, index: int) -> int | None:
        if index == self.base_index:
            return self.base_term
        position = index - self.base_index - 1
        return self._now.entries[position].term if 0 <= position < len(self._now.entries) else None

    def entry(self, index: int) -> LogEntry:
        return self._now.entries[index - self.base_index - 1]

    def entries(self, first: int, last: int, bytes_max: int | None = None) -> list[LogEntry]:
        found: list[LogEntry] = []
        size = 0
        for index in range(first, last + 1):
            entry = self.entry(index)
            size += len(entry.command)
            if found and bytes_max is not None and size > bytes_max:
                break
            found.append(entry)
        return found

    def append(self, index: int, term: int, command: bytes) -> None:
        if index <= self.last_index:
            if self.term_at(index) == term:
                return
            invariant(index > self.commit_index, "truncates committed entries", index=index)
            del self._now.entries[index - self.base_index - 1 :]
            del self._entry_rounds[index - self.base_index - 1 :]
        invariant(index == self.last_index + 1, "gap", index=index)
        self.dirty = True
        self._now.entries.append(LogEntry(index, term, command))
        self._entry_rounds.append(self.open_round)

    def set_hard_state(self, term: int, vote: int | None) -> None:
        if (term, vote) != (self._now.term, self._now.vote):
            self._now.term, self._now.vote = term, vote
            self._hard_state_round = self.open_round
            self.dirty = True

    def set_commit(self, index: int) -> None:
        self.dirty = self.dirty or index > self._now.commit
        self._now.commit = max(self._now.commit, index)

    def cut_front(self, index: int) -> None:
        term = self.term_at(index)
        invariant(term is not None and index <= self.commit_index, "bad front", index=index)
        if term is not None and index > self.base_index:
            del self._now.entries[: index - self.base_index]
            del self._entry_rounds[: index - self.base_index]
            self._now.base_index, self._now.base_term = index, term

    def reset(self, index: int, term: int) -> None:
        if self.term_at(index) == term:
            self.set_commit(index)
            self.cut_front(index)
            return
        self._now.entries.clear()
        self._entry_rounds.clear()
        self._now.base_index, self._now.base_term = index, term
        self._now.commit = max(self._now.commit, index)

    def round_of(self, index: int) -> int:
        position = index - self.base_index - 1
        return self._waits(self._entry_rounds[position]) if position >= 0 else 0

    def message_round(self, index: int) -> int:
        return max(self.round_of(index), self._waits(self._hard_state_round))

    # The WAL's side.

    def collect(self) -> int:
        """What was queued goes to the disk as a round; its number."""
        number, self.open_round = self.open_round, self.open_round + 1
        self._rounds[number] = self._now.copy()
        self.dirty = False
        return number

    def complete(self, number: int) -> None:
        """The round was synced."""
        self.synced_round = number
        self._disk = self._rounds.pop(number)

    def crash(self) -> None:
        """Power loss: what was not synced is gone."""
        self._now = self._disk.copy()
        self._entry_rounds = [0] * len(self._now.entries)
        self._hard_state_round = 0
        self._rounds.clear()


class Asking:
    """A group as its node's rounds of reads know it."""

    gid = GroupId(1, 1)
    fingerprint = b"same"

    def __init__(self, group: Group) -> None:
        self.group = group

    def read_peers(self, *, first: bool) -> list[int]:
        return self.group.read_peers(first=first)

    def read_question(self) -> ReadQuestion | None:
        return self.group.read_question()

    def read_answered(self, sender: int, question: ReadQuestion, index: int) -> None:
        self.group.read_answered(sender, question, index)


@dataclass
class Member:
    """One node with its log and what it has applied."""

    node_id: int
    log: MemoryLog
    group: Group
    rounds: ReadRounds
    applied: list[LogEntry] = field(default_factory=list)
    reads: dict[int, int | None] = field(default_factory=dict)
    down: bool = False
    slow_disk: bool = False
    liveness: Liveness | None = None
    incarnation: int = 1
    wakes: list[str] = field(default_factory=list)
    """Roles in which this node's group ceased to rest."""


@dataclass(order=True)
class Flight:
    """A message under way; an empty one is a ping of the node. `ping` goes with each."""

    due: float
    number: int
    source: int
    target: int
    message: Message = field(compare=False)
    kind: str = field(compare=False, default="group")
    """A message of the group, a round of "reads", "answers" to one, or a "ping" of the node."""
    ping: tuple[int, list[Any]] | None = field(default=None, compare=False)
    """What goes with each: the node's incarnation and what it says of itself."""

    @property
    def body(self) -> Body | None:
        """The group's message."""
        return decode(self.message) if self.kind == "group" else None


def _all_are_sound(member: int, sender: int, reason: str) -> None:
    invariant(False, "a member refuses a message", member=member, sender=sender, reason=reason)


class Net:
    """Members 1..n of one group. Each message takes `delay_s`; disks sync at once unless slow.

    With `idle` their nodes ping each other, and the group may rest.
    """

    def __init__(
        self,
        members: int = 3,
        *,
        seed: int = 0,
        closed: frozenset[int] = ALL_HOLES,
        options: RaftOptions | None = None,
        delay_s: float = 0.002,
        new_log: Callable[[int], Any] = lambda node_id: MemoryLog(),
        idle: bool = False,
        accepts: Callable[[int], bool] = lambda node_id: True,
    ) -> None:
        self.accepts = accepts
        """Whether a node has room for entries."""
        self.now = 100.0
        self.seed = seed
        self.closed = closed
        self.options = options or RaftOptions()
        self.delay_s = delay_s
        self.idle = idle
        self.flights: list[Flight] = []
        self.cuts: set[tuple[int, int]] = set()
        self.lost: Callable[[int, int, Message], bool] = lambda source, target, message: False
        self.on_refused: Callable[[int, int, str], None] = _all_are_sound
        """Told of each message that a member refuses: the member, the sender, and why."""
        self._numbers = 0
        self._epochs = 0
        self.ids = tuple(range(1, members + 1))
        self.members = {i: self._member(i, new_log(i), []) for i in self.ids}
        for source in self.ids:
            for target in self.ids:
                if source != target:
                    self.connect(source, target)

    def _member(
        self, node_id: int, log: MemoryLog, applied: list[LogEntry], incarnation: int = 1
    ) -> Member:
        wakes: list[str] = []
        liveness = None
        if self.idle:
            liveness = Liveness(
                incarnation=incarnation,
                clock=lambda: self.now,
                rng=random.Random(f"{self.seed}/{node_id}/{incarnation}"),
                options=self.options,
                on_wake=wakes.append,
            )
        group = Group(
            log=log,
            node_id=node_id,
            members=self.ids,
            applied_index=max([log.base_index, *(entry.index for entry in applied)]),
            clock=lambda: self.now,
            rng=random.Random(f"{self.seed}/{node_id}"),
            options=self.options,
            closed=self.closed,
            gid=GID,
            liveness=liveness,
            on_refused=lambda sender, reason: self.on_refused(node_id, sender, reason),
            accepts=lambda: self.accepts(node_id),
        )
        rounds = ReadRounds(
            clock=lambda: self.now,
            retry_s=self.options.heartbeat_s,
            answerer=lambda gid, fingerprint, sender, term: group.answer_read(sender, term),
        )
        return Member(
            node_id, log, group, rounds, applied, liveness=liveness, incarnation=incarnation,
            wakes=wakes,
        )  # fmt: skip

    def group(self, node_id: int) -> Group:
        return self.members[node_id].group

    def liveness(self, node_id: int) -> Liveness:
        found = self.members[node_id].liveness
        assert found is not None
        return found

    def log(self, node_id: int) -> MemoryLog:
        return self.members[node_id].log

    # Links and life.

    def connect(self, source: int, target: int) -> None:
        """A new link from source to target."""
        self._epochs += 1
        self.cuts.discard((source, target))
        self.group(source).connected(target, self._epochs)
        self.members[source].rounds.connected(target, self._epochs)

    def cut(self, source: int, target: int, *, noticed: bool = True) -> None:
        """Nothing passes from source to target; unnoticed: source goes on sending."""
        self.cuts.add((source, target))
        if noticed:
            self._disconnect(source, target)

    def _disconnect(self, source: int, target: int) -> None:
        self.group(source).disconnected(target)
        self.members[source].rounds.disconnected(target)

    def isolate(self, node_id: int, *, noticed: bool = True) -> None:
        for other in self.ids:
            if other != node_id:
                self.cut(node_id, other, noticed=noticed)
                self.cut(other, node_id, noticed=noticed)

    def heal(self) -> None:
        for source, target in sorted(self.cuts):
            self.connect(source, target)

    def start(self, *node_ids: int, campaign: int | None = None) -> None:
        for node_id in node_ids or self.ids:
            self.group(node_id).start(campaign=node_id == campaign)

    def crash(self, node_id: int) -> None:
        """Power loss of one node: its group and what was not synced are gone."""
        member = self.members[node_id]
        member.down = True
        member.group.stop()
        member.log.crash()
        for other in self.ids:
            if other != node_id and not self.members[other].down:
                self._disconnect(other, node_id)

    def restart(self, node_id: int) -> None:
        old = self.members[node_id]
        survived = [e for e in old.applied if e.index <= old.log.commit_index]
        again = self._member(node_id, old.log, survived, old.incarnation + 1)
        self.members[node_id] = again
        self.group(node_id).start()
        for other in self.ids:
            if other != node_id and not self.members[other].down:
                self.connect(node_id, other)
                self.connect(other, node_id)

    # Steps.

    def pump(self) -> None:
        """Take what the members have to give, sync the disks that are not slow."""
        again = True
        while again:
            again = False
            for member in self.members.values():
                if member.down:
                    continue
                if member.log.dirty and not member.slow_disk:
                    self.sync(member.node_id)
                member.reads.update(member.group.take_reads())
                while entries := member.group.take_committed(1 << 20):
                    member.applied.extend(entries)
                for target, message in member.group.take_messages():
                    again = True
                    self._send(member.node_id, target, message)
                if member.group.take_read_begun():
                    member.rounds.ask(Asking(member.group))
                for target, message in member.rounds.take():
                    again = True
                    self._send(member.node_id, target, message, "reads")

    def _send(self, source: int, target: int, message: Message, kind: str = "group") -> None:
        if (source, target) in self.cuts or self.lost(source, target, message):
            return
        self._numbers += 1
        sender = self.members[source]
        ping = None
        if sender.liveness is not None:
            ping = (sender.incarnation, list(sender.liveness.ping(target)))
        due = self.now + self.delay_s
        flight = Flight(due, self._numbers, source, target, message, kind, ping)
        self.flights.append(flight)

    def sync(self, node_id: int) -> None:
        """One WAL round of this node."""
        log = self.log(node_id)
        log.complete(log.collect())
        self.group(node_id).synced()

    def deliver(self, flight: Flight) -> None:
        """One message arrives."""
        self.flights.remove(flight)
        member = self.members[flight.target]
        if member.down or (flight.source, flight.target) in self.cuts:
            return
        if member.liveness is not None and flight.ping is not None:
            member.liveness.heard(flight.source, flight.ping[0], Ping.from_wire(flight.ping[1]))
            self._disturb(member)
        if flight.kind == "group":
            member.group.receive(flight.source, flight.message)
        elif flight.kind == "reads":
            answer = member.rounds.answer(flight.source, flight.message)
            self._send(flight.target, flight.source, answer, "answers")
        elif flight.kind == "answers":
            member.rounds.answered(flight.source, flight.message)

    def _disturb(self, member: Member) -> None:
        if member.liveness is not None:
            for wake in member.liveness.take_wakes():
                member.group.disturb(wake.peer, campaign=wake.campaign)

    def _deadline(self, member: Member) -> float:
        pings = math.inf if member.liveness is None else member.liveness.next_deadline()
        return min(pings, member.group.next_deadline(), member.rounds.next_deadline())

    def run(self, until: Callable[[], bool] | float, limit_s: float = 60.0) -> None:
        """Move from event to event until a condition holds, or for some seconds."""
        end = self.now + (until if isinstance(until, int | float) else limit_s)
        done = until if callable(until) else lambda: False
        self.pump()
        while not done():
            live = [m for m in self.members.values() if not m.down]
            tick_at = min(map(self._deadline, live), default=end)
            flight = min(self.flights, default=None)
            due = min(tick_at, flight.due if flight else end)
            if due >= end:
                assert not callable(until), f"seed {self.seed}: not within {limit_s} s"
                self.now = max(self.now, end)
                return
            self.now = max(self.now, due)
            if flight and flight.due <= self.now:
                self.deliver(flight)
            for member in live:
                self.tick(member)
            self.pump()

    def tick(self, member: Member) -> None:
        """Whatever is due at one member."""
        if member.liveness is not None:
            if member.liveness.tick():
                for other in self.ids:
                    if other != member.node_id:
                        self._send(member.node_id, other, [], "ping")
            self._disturb(member)
        member.group.tick()
        for target, message in member.rounds.tick():
            self._send(member.node_id, target, message, "reads")

    # Looking.

    def leader(self) -> int | None:
        """The leader of the highest term, if there is one."""
        leaders = [m for m in self.members.values() if not m.down and m.group.role == "leader"]
        return max(leaders, key=lambda m: m.group.term).node_id if leaders else None

    def elect(self, node_id: int = 1) -> Group:
        """Start all, let this one campaign, wait until it is ready."""
        self.start(campaign=node_id)
        self.run(lambda: self.group(node_id).ready_to_lead)
        return self.group(node_id)

    def propose(self, node_id: int, *texts: str) -> list[int]:
        return [self.group(node_id).propose(b"\x00" + text.encode())[0] for text in texts]

    def applied(self, node_id: int) -> list[str]:
        """The regular commands that this member applied."""
        entries = self.members[node_id].applied
        return [e.command[1:].decode() for e in entries if e.command[:1] == b"\x00"]

    def settled(self, ids: Iterable[int] = ()) -> Callable[[], bool]:
        """All of these have applied the same, and all that the leader has in its log."""

        def check() -> bool:
            leader = self.leader()
            if leader is None:
                return False
            last = self.group(leader).last_index
            return all(
                self.members[i].applied and self.members[i].applied[-1].index == last
                for i in ids or self.ids
            )

        return check

    def sent(
        self, kind: type, source: int | None = None, target: int | None = None
    ) -> list[Flight]:
        """Messages of a kind that are under way."""
        return [
            flight
            for flight in sorted(self.flights)
            if isinstance(flight.body, kind)
            and source in (None, flight.source)
            and target in (None, flight.target)
        ]
