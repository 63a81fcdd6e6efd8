"""Leaders that hand out the keys of a group, and consumers that come, go, stop, and are late.

The leaders are the real dispatchers over real ranges. Commands that they propose wait in the log of
their range, and are applied later, or never where the leader changes. The model beside them knows
which entries each token was given for, and which entries are done.
"""

import random
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from group_model import GROUP, GroupModel
from lineages import KEYS

from lognode.client.protocol import limits
from lognode.client.protocol.records import decode_batch, encode_batch
from lognode.client.protocol.types import Entry
from lognode.node.dispatch.commands import AckFrom, Appending, Proposal, Settling
from lognode.node.dispatch.dispatcher import Dispatcher, Options
from lognode.node.dispatch.supply import KeyRead
from lognode.statemachine import commands
from lognode.statemachine.groups import forms
from lognode.statemachine.groups.selection import Selection
from lognode.statemachine.range_state import RangeState
from lognode.statemachine.spans import has

LEASE_MS = 1_000
DELIVERIES = 3
OPTIONS = Options(LEASE_MS, DELIVERIES, Selection())
CONSUMERS = (11, 12, 13)


@dataclass
class Leader:
    """The leader of a range."""

    state: RangeState
    dispatcher: Dispatcher
    removals: int
    log: deque[tuple[int, Any, Proposal | None]] = field(default_factory=deque)
    """Commands that are proposed and not applied."""
    is_over: bool = False
    """The group was reset: commands of the leader are refused."""


@dataclass
class Given:
    """A batch that a consumer has been given."""

    key: bytes
    token: int
    consumer: int
    seqs: list[int]
    through: int


class DispatchModel(GroupModel):
    """One group, its leaders and consumers."""

    def __init__(self, root: Path, seed: int, options: Options = OPTIONS) -> None:
        super().__init__(root)
        self.rng = random.Random(seed)
        self.options = options
        self.now = 0
        self.leaders: list[Leader] = []
        self.given: dict[tuple[bytes, int], Given] = {}
        """All batches ever given, by key and token."""
        self.held: dict[int, dict[bytes, Given]] = {consumer: {} for consumer in CONSUMERS}
        self.past: list[tuple[Any, ...]] = []
        """Requests of consumers, which may be repeated at any time."""

    # Leaders.

    def leader_of(self, state: RangeState) -> Leader | None:
        return next((each for each in self.leaders if each.state is state), None)

    def lead(self, state: RangeState, begin: int = 1, waits: bool = False) -> Leader:
        """Another leader: some of the commands of the leader before are never applied."""
        before = self.leader_of(state)
        if before is not None:
            for _ in range(self.rng.randint(0, len(before.log))):
                self._apply(before)
            self.leaders.remove(before)
        group = self.group(state)
        reclaims = group is not None and group.fence > 0
        self.open(state, begin, waits)
        group = self.group(state)
        assert group is not None
        dispatcher = Dispatcher(
            GROUP, group, (state.start, state.end), self.options, now_ms=self.now,
            reclaims=reclaims,
        )  # fmt: skip
        leader = Leader(state, dispatcher, state.removal.changes)
        self.leaders.append(leader)
        return leader

    def read(self, leader: Leader, steps: int) -> int:
        """Let a leader read; return how many steps there were to do."""
        state = leader.state
        for done in range(steps):
            read = leader.dispatcher.next_read(state.next_seq)
            if read is None:
                return done
            if isinstance(read, KeyRead):
                page = state.scan(
                    read.key, read.from_seq, read.end_seq, limit=min(read.limit, 2),
                    bytes_max=read.bytes_max,
                )  # fmt: skip
            else:
                page = state.read_span(
                    read.start, read.end, read.from_seq, read.end_seq, limit=min(read.limit, 3),
                    bytes_max=read.bytes_max,
                )  # fmt: skip
            leader.dispatcher.take_page(read, page, self.now)
        return steps

    def tick(self, leader: Leader) -> None:
        leader.dispatcher.tick(self.now)
        self.propose(leader)

    def propose(self, leader: Leader) -> None:
        for proposal in leader.dispatcher.proposals(leader.state.next_seq, self.now):
            commands.proposal(proposal.kind, 1, proposal.payload)
            leader.log.append((proposal.kind, proposal.payload, proposal))

    def apply_one(self, leader: Leader) -> bool:
        """Apply the next command of the log. After a reset the leader begins anew."""
        if not leader.log:
            return False
        self._apply(leader)
        if leader.is_over:
            leader.log.clear()
            self.leaders.remove(leader)
            self.lead(leader.state)
        return True

    def _apply(self, leader: Leader) -> None:
        kind, payload, proposal = leader.log.popleft()
        state, group = leader.state, self.group(leader.state)
        assert group is not None
        before = {key: group.position(key) for key in self.log.own(state)}
        reply = self.do(state, kind, payload)
        refused = dict(zip(reply.get("refused", ()), reply.get("actual", ()), strict=True))
        if kind == commands.GROUP_ACK and reply["status"] == "ok":
            assert proposal is not None
            for at, (lease, to) in enumerate(zip(proposal.leases, payload[4], strict=True)):
                if at not in refused:
                    self._acked(lease.key, lease.token, before[lease.key], to)
        elif kind == commands.GROUP_APPEND and reply["status"] == "ok":
            assert proposal is not None
            self._produced(proposal, before, reply["first_seq"], state)
        elif kind == commands.GROUP_SKIP and reply["status"] == "ok":
            for at, (key, _, through) in enumerate(payload[1]):
                if at not in refused:
                    shown = self.log.shown[key].entries
                    self.done[key].update(e.seq for e in shown if e.seq < through)
        elif kind == commands.GROUP_COPIED and reply["status"] == "ok" and not refused:
            ((key, seq),) = payload[2]
            assert self.undone(key)[0].seq == seq, "G2: another entry is passed"
            self.done[key].add(seq)
        self.parked = {key for s in self.log.ranges if (g := self.group(s))
                       for key, row in g.rows.items() if row.parked}  # fmt: skip
        self.letters = {key: (row.producer, row.number, row.done) for s in self.log.ranges
                        if (g := self.group(s)) for key, row in g.rows.items()
                        if row.number}  # fmt: skip
        if kind == commands.GROUP_RESET:
            self._reset(state, payload)
            leader.is_over = True
        if leader.is_over:
            return
        if proposal is None:
            leader.dispatcher.decided()
        elif proposal.appending is not None:
            leader.dispatcher.append_applied(proposal, reply, self.now)
        else:
            assert reply["status"] == "ok", (reply, payload)
            leader.dispatcher.applied(proposal, list(refused), list(refused.values()), self.now)
        self._look(leader)

    def _acked(self, key: bytes, token: int, begin: int, through: int) -> None:
        given = self.given[key, token]
        fresh = {e.seq for e in self.log.shown[key].entries if begin <= e.seq < through}
        assert fresh <= set(given.seqs), f"G2: {key!r} acked {fresh} of {given}"
        assert not fresh & self.done[key], "G3: acked twice"
        self.done[key] |= fresh

    def _produced(
        self, proposal: Proposal, before: dict[bytes, int], seq: int, state: RangeState
    ) -> None:
        """The record of a batch stands for exactly the entries that are acknowledged with it."""
        assert proposal.appending is not None
        (ack,) = proposal.appending.acks
        (out,) = decode_batch(proposal.appending.data).keys
        entry = Entry(out, seq, state.last_timestamp_ms, None, b"v", False)
        given, shown = self.given[ack.key, ack.token], self.log.shown[ack.key].entries
        made = {s for s in given.seqs if ack.first <= s < ack.through} & {e.seq for e in shown}
        fresh = {e.seq for e in shown if before[ack.key] <= e.seq < ack.through}
        assert made == fresh, f"{ack.key!r}: the record is of {made}, acknowledged are {fresh}"
        self._acked(ack.key, ack.token, before[ack.key], ack.through)
        self.log.shown[out].entries.append(entry)

    def _reset(self, state: RangeState, payload: Any) -> None:
        for start, end, to in payload[1]:
            for key in self.log.own(state, (start, end)):
                to = min(to, state.next_seq)
                self.done[key] = {e.seq for e in self.log.shown[key].entries if e.seq < to}

    def _look(self, leader: Leader) -> None:
        if leader.removals != leader.state.removal.changes:
            leader.removals = leader.state.removal.changes
            leader.dispatcher.removed()

    # Consumers.

    def take(self, leader: Leader, consumer: int, count: int, room: int, claims: str = "") -> int:
        """A consumer asks for batches; it may claim what it holds, or forget to."""
        self._look(leader)
        assert leader.dispatcher.join(consumer, self.now)
        own = [each for each in self.held[consumer].values() if self._owns(leader, each.key)]
        if claims == "all":
            holds = [(each.key, each.token) for each in own]
            leader.dispatcher.keep_only(consumer, {key for key, _ in holds}, self.now)
            refused = leader.dispatcher.claim(consumer, holds, leader.state.next_seq, self.now)
            for key in refused:
                del self.held[consumer][key]
        found = leader.dispatcher.take(consumer, count, room, self.now)
        at = 0
        for key, token, entries in zip(found.keys, found.tokens, found.counts, strict=True):
            seqs = found.seqs[at : at + entries]
            at += entries
            expected = [e.seq for e in self.undone(key)][:entries]
            assert seqs == expected, f"G2, G3: {key!r} is given {seqs}, undone are {expected}"
            assert key not in self.parked
            assert (key, token) not in self.given
            given = Given(key, token, consumer, seqs, seqs[-1] + 1)
            self.given[key, token] = self.held[consumer][key] = given
        assert at == len(found.seqs) == len(found.values) == len(found.timestamps)
        return len(found.keys)

    def _owns(self, leader: Leader, key: bytes) -> bool:
        return has((leader.state.start, leader.state.end), key)

    def settle(self, leader: Leader, consumer: int, how: str, key: bytes, part: bool) -> None:
        """A consumer settles a batch that it has, or had."""
        given = self.held[consumer].get(key)
        if given is None or not self._owns(leader, key):
            return
        through = given.seqs[0] + 1 if part else given.through
        request: tuple[Any, ...] = (consumer, how, key, given.token, through)
        if how == "append":
            self.producers += 1
            request = (consumer, how, key, given.token, given.through, given.seqs[0],
                       self.producers)  # fmt: skip
        if not part and how != "extend":
            del self.held[consumer][key]
        self.past.append(request)
        self.send(leader, request)

    def send_append(self, leader: Leader, request: tuple[Any, ...]) -> Appending | None:
        """Ask to append a record with an acknowledgement. None: the request is a repetition."""
        consumer, _, key, token, through, first, producer = request
        acks = [AckFrom(key, token, first, through)]
        data = encode_batch(
            [key], [b"v"], producer=producer, epoch=1, low=1, numbers=1, atomic=True
        )
        if leader.state.repeated(decode_batch(data)) is not None:
            leader.dispatcher.repeated(consumer, acks, self.now)
            self.propose(leader)
            return None
        appending = Appending(acks, data, 1, lambda: None)
        leader.dispatcher.append(consumer, appending, self.now)
        self.propose(leader)
        return appending

    def send(self, leader: Leader, request: tuple[Any, ...]) -> None:
        if request[1] == "append":
            if self._owns(leader, request[2]):
                self.send_append(leader, request)
            return
        consumer, how, key, token, through = request
        if not self._owns(leader, key):
            return
        settling = Settling(lambda: None)
        leader.dispatcher.settle(
            consumer,
            [(key, token, through)] if how == "ack" else [],
            [(key, token, 200 * (token % 3), "bad" if how == "fail" else "")]
            if how in ("fail", "release") else [],
            [(key, token, "never")] if how == "reject" else [],
            [(key, token)] if how == "extend" else [],
            settling, now_ms=self.now, leaves=how == "leave",
            patient=self.rng.random() < 0.5,
        )  # fmt: skip
        self.propose(leader)

    # What else happens.

    def retry_key(self, leader: Leader, key: bytes) -> None:
        if self._owns(leader, key):
            leader.log.append((commands.GROUP_RETRY, [GROUP, [key], "ann"], None))

    def skip_key(self, leader: Leader, key: bytes) -> None:
        group = self.group(leader.state)
        if not self._owns(leader, key) or group is None or not self.undone(key):
            return
        position = group.position(key)
        skip = [[key, position, self.undone(key)[0].seq + 1]]
        payload = [GROUP, skip, forms.SKIP, "ann", "bad"]
        leader.log.append((commands.GROUP_SKIP, payload, None))

    def letter_key(self, leader: Leader, key: bytes) -> None:
        """Give the entry of a parked key a number, and let the key pass the entry."""
        group = self.group(leader.state)
        if not self._owns(leader, key) or group is None or not self.undone(key):
            return
        seq, fence = self.undone(key)[0].seq, leader.dispatcher.fence
        letter = [GROUP, fence, 9, [[key, group.position(key), seq, 1]]]
        leader.log.append((commands.GROUP_LETTER, letter, None))
        copied = [GROUP, fence, [[key, seq]], forms.DEAD_LETTER]
        leader.log.append((commands.GROUP_COPIED, copied, None))

    def reset_span(self, leader: Leader, span: tuple[bytes, bytes | None], to: int) -> None:
        leader.log.append((commands.GROUP_RESET, [GROUP, [[*span, to]], [], "ann"], None))

    def drop_leaders(self) -> None:
        """The generation ends: what is not applied never is."""
        for leader in list(self.leaders):
            for _ in range(self.rng.randint(0, len(leader.log))):
                self._apply(leader)
        self.leaders = []

    def lead_all(self) -> None:
        for state in self.log.ranges:
            if self.leader_of(state) is None:
                self.lead(state)

    # The end.

    def finish(self, *, slow: bytes | None = None) -> None:
        """All consumers are gone but one, who does everything: all entries get done (G4)."""
        self.lead_all()
        for _ in range(3):
            self.now += limits.group_wait_ms_max + 2 * LEASE_MS
            for state in list(self.log.ranges):
                self.settle_all(state, slow)
        for key in KEYS:
            assert not self.undone(key) or key == slow, f"G4, G5: {key!r} is never done"
        for state in self.log.ranges:
            group = self.group(state)
            assert group is not None
            rows = {key for key in group.rows if key != slow}
            assert not rows, f"idle keys cost rows: {rows}"
            assert min(group.floors.values) == state.next_seq or len(group.floors.values) > 1

    def settle_all(self, state: RangeState, slow: bytes | None) -> None:
        leader, idle = self.leader_of(state), 0
        assert leader is not None
        while idle < 6:
            for key in list(leader.dispatcher._supply.parked):
                self.retry_key(leader, key)
            while self.apply_one(leader):
                pass
            leader = self.leader_of(state)
            assert leader is not None
            self.tick(leader)
            self.read(leader, 999)
            self.now += 300
            got = self.take(leader, 99, 10, 1 << 20)
            held = self.held[99]
            for key in list(held):
                if key != slow:
                    self.send(leader, (99, "ack", key, held[key].token, held[key].through))
                    del held[key]
                else:
                    self.send(leader, (99, "extend", key, held[key].token, held[key].through))
            idle = 0 if got or leader.log else idle + 1
