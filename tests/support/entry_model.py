"""A group without an order: leaders that hand out single entries, beside a plain set of those done.

The leaders are the real dispatchers over real ranges, which split and merge, also right behind a
key, where the units of the key's entries sort among other keys. Commands wait in the log of their
range, and are applied later, or never where the leader changes.
"""

import random
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgpack
from group_model import GROUP
from lineages import KEYS, Lineages

from lognode.node.dispatch.commands import Proposal
from lognode.node.dispatch.dispatcher import RECLAIM_MS, Dispatcher, Options
from lognode.node.dispatch.settling import Settling
from lognode.node.dispatch.supply import KeyRead
from lognode.statemachine import commands
from lognode.statemachine.groups import forms
from lognode.statemachine.groups.entry_group import EntryGroup
from lognode.statemachine.groups.lag import lag
from lognode.statemachine.groups.selection import Selection
from lognode.statemachine.groups.units import entry_unit, key_of, seq_of
from lognode.statemachine.range_state import RangeState
from lognode.statemachine.received_base import received
from lognode.statemachine.spans import has

LEASE_MS = 1_000
DELIVERIES = 3
CONSUMERS = (11, 12, 13)
HOW = ("ack", "ack", "ack", "fail", "release", "reject", "extend")


@dataclass
class Leader:
    state: RangeState
    dispatcher: Dispatcher
    removals: int
    log: deque[tuple[int, Any, Proposal | None]] = field(default_factory=deque)


class EntryModel:
    """See the module."""

    def __init__(self, root: Path, seed: int) -> None:
        self.rng = random.Random(seed)
        self.log = Lineages(root)
        self.now = 0
        self.done: set[bytes] = set()
        """The units that are acknowledged, skipped or dead letters."""
        self.leaders: list[Leader] = []
        self.given: set[tuple[bytes, int]] = set()
        """All units ever given, with their tokens."""
        self.newest: dict[bytes, int] = {}
        """The newest token of each unit."""
        self.held: dict[int, dict[bytes, int]] = {consumer: {} for consumer in CONSUMERS}
        self.since: dict[int, int] = {}
        """When each token was given or extended last."""
        self.past: list[tuple[int, str, bytes, int]] = []
        self.most_of_a_key = 0
        """The most entries of one key that were leased at one time."""
        for state in self.log.ranges:
            self.do(state, commands.LEVEL, 4)

    def do(self, state: RangeState, kind: int, payload: Any) -> dict[str, Any]:
        entry = commands.proposal(kind, 1, payload)
        (reply,) = state.apply(state.applied_index + 1, 1, entry).replies or ()
        return dict(reply)

    def group(self, state: RangeState) -> EntryGroup:
        group = state.groups.by_id[GROUP]
        assert isinstance(group, EntryGroup)
        return group

    def entries(self, state: RangeState) -> list[bytes]:
        """The units of all entries of a range."""
        return [entry_unit(key, entry.seq) for key in self.log.own(state)
                for entry in self.log.shown[key].entries]  # fmt: skip

    # Leaders.

    def lead(self, state: RangeState) -> Leader:
        for leader in [each for each in self.leaders if each.state is state]:
            for _ in range(self.rng.randint(0, len(leader.log))):
                self.apply_one(leader)
            self.leaders.remove(leader)
        reclaims = GROUP in state.groups.by_id
        reply = self.do(state, commands.GROUP_OPEN, [GROUP, 1, False, True])
        assert reply["status"] == "ok", reply
        dispatcher = Dispatcher(
            GROUP, self.group(state), (state.start, state.end),
            Options(LEASE_MS, DELIVERIES, Selection()), now_ms=self.now, reclaims=reclaims,
        )  # fmt: skip
        self.leaders.append(Leader(state, dispatcher, state.removal.changes))
        return self.leaders[-1]

    def lead_all(self) -> None:
        for state in self.log.ranges:
            if not any(each.state is state for each in self.leaders):
                self.lead(state)

    def end_leaders(self) -> None:
        """The generation ends: what is not applied never is."""
        for leader in self.leaders:
            for _ in range(self.rng.randint(0, len(leader.log))):
                self.apply_one(leader)
        self.leaders = []

    def read(self, leader: Leader, steps: int) -> None:
        state = leader.state
        if leader.removals != state.removal.changes:
            leader.removals = state.removal.changes
            leader.dispatcher.removed()
        for _ in range(steps):
            read = leader.dispatcher.next_read(state.next_seq)
            if read is None:
                return
            if isinstance(read, KeyRead):
                page = state.scan(read.key, read.from_seq, read.end_seq, limit=2, bytes_max=1 << 20)
            else:
                page = state.read_span(
                    read.start, read.end, read.from_seq, read.end_seq, limit=3, bytes_max=1 << 20
                )
            leader.dispatcher.take_page(read, page, self.now)

    def tick(self, leader: Leader) -> None:
        leader.dispatcher.tick(self.now)
        self.propose(leader)

    def propose(self, leader: Leader) -> None:
        for proposal in leader.dispatcher.proposals(leader.state.next_seq, self.now):
            leader.log.append((proposal.kind, proposal.payload, proposal))

    def apply_one(self, leader: Leader) -> bool:
        if not leader.log:
            return False
        kind, payload, proposal = leader.log.popleft()
        reply = self.do(leader.state, kind, payload)
        refused = dict(zip(reply.get("refused", ()), reply.get("actual", ()), strict=True))
        assert reply["status"] == "ok", (kind, payload, reply)
        if kind == commands.GROUP_ACK:
            assert proposal is not None
            for at, lease in enumerate(proposal.leases):
                if at not in refused:
                    assert (lease.key, lease.token) in self.given, "G1"
                    assert self.newest[lease.key] == lease.token, "G1: an old lease counts"
                    assert lease.key not in self.done, "G3: an entry is done twice"
                    self.done.add(lease.key)
        elif kind in (commands.GROUP_SKIP, commands.GROUP_COPIED):
            rows = payload[1] if kind == commands.GROUP_SKIP else payload[2]
            self.done.update(row[0] for at, row in enumerate(rows) if at not in refused)
        if proposal is None:
            leader.dispatcher.decided()
        else:
            places, actual = list(refused), list(refused.values())
            leader.dispatcher.applied(proposal, places, actual, self.now)
        return True

    # Consumers.

    def take(self, leader: Leader, consumer: int, count: int, *, claims: bool) -> int:
        self.read(leader, self.rng.randint(0, 9))
        assert leader.dispatcher.join(consumer, self.now)
        span = leader.state.start, leader.state.end
        if claims:
            held = self.held[consumer]
            own = [(u, t) for u, t in held.items() if has(span, key_of(u))]
            for unit, token in own:
                if self.now >= self.since[token] + 0.9 * LEASE_MS:
                    del held[unit]  # somebody else may have had the entry
            own = [(u, t) for u, t in own if u in held]
            leader.dispatcher.keep_only(consumer, {unit for unit, _ in own}, self.now)
            for unit in leader.dispatcher.claim(consumer, own, leader.state.next_seq, self.now):
                del self.held[consumer][unit]
        found = leader.dispatcher.take(consumer, count, 1 << 20, self.now)
        units = [entry_unit(k, s) for k, s in zip(found.keys, found.seqs, strict=True)]
        rows = self.group(leader.state).rows
        for lease, unit, token in zip(found.leases, units, found.tokens, strict=True):
            assert lease.key == unit
            assert leader.dispatcher.unit(token) == unit
            assert unit not in self.done, "G3: a done entry is given"
            assert unit in self.entries(leader.state), "an entry that is gone is given"
            assert unit not in rows or not rows[unit].parked, "a parked entry is given"
            self.given.add((unit, token))
            self.newest[unit] = token
            self.since[token] = self.now
            self.held[consumer][unit] = token
        flying = [key_of(unit) for unit in leader.dispatcher.in_flight]
        self.most_of_a_key = max([self.most_of_a_key, *map(flying.count, flying)])
        return len(units)

    def settle(self, leader: Leader, consumer: int, how: str) -> None:
        """A consumer settles an entry that it has, or repeats an earlier request."""
        span = leader.state.start, leader.state.end
        own = [unit for unit in self.held[consumer] if has(span, key_of(unit))]
        past = [each for each in self.past if has(span, key_of(each[2]))]
        if past and (not own or self.rng.random() < 0.2):
            self.send(leader, *self.rng.choice(past))
        elif own:
            unit = self.rng.choice(own)
            asked = consumer, how, unit, self.held[consumer][unit]
            if how != "extend":
                del self.held[consumer][unit]
            self.past = [*self.past[-30:], asked]
            self.send(leader, *asked)

    def send(self, leader: Leader, consumer: int, how: str, unit: bytes, token: int) -> None:
        settling = Settling(lambda: None)
        leader.dispatcher.settle(
            consumer,
            [(unit, token, seq_of(unit) + 1)] if how == "ack" else [],
            [(unit, token, 200 * (token % 3), "bad" if how == "fail" else "")]
            if how in ("fail", "release") else [],
            [(unit, token, "never")] if how == "reject" else [],
            [(unit, token)] if how == "extend" else [],
            settling, now_ms=self.now,
        )  # fmt: skip
        if how == "extend" and not settling.refused:
            self.since[token] = self.now
        self.propose(leader)

    # Operators.

    def decide(self, leader: Leader, *, copies: bool) -> None:
        """Retry, skip, or copy an entry: parked ones, or any that is to be skipped."""
        group, fence = self.group(leader.state), leader.dispatcher.fence
        parked = sorted(unit for unit, row in group.rows.items() if row.parked)
        undone = sorted(set(self.entries(leader.state)) - self.done)
        if copies and parked:
            unit = self.rng.choice(parked)
            letter = [GROUP, fence, 9, [[unit, seq_of(unit), seq_of(unit), 1]]]
            leader.log.append((commands.GROUP_LETTER, letter, None))
            copied = [GROUP, fence, [[unit, seq_of(unit)]], forms.DEAD_LETTER]
            leader.log.append((commands.GROUP_COPIED, copied, None))
        elif parked and self.rng.random() < 0.7:
            unit = self.rng.choice(parked)
            leader.log.append((commands.GROUP_RETRY, [GROUP, [unit], "ann"], None))
        elif undone:
            unit = self.rng.choice(undone)
            skips = [[unit, seq_of(unit), seq_of(unit) + 1]]
            payload = [GROUP, skips, forms.SKIP, "ann", "bad"]
            leader.log.append((commands.GROUP_SKIP, payload, None))

    # Ranges.

    def install(self, state: RangeState) -> None:
        """Another member takes over from the base."""
        self.end_leaders()
        self.log.flush(state)
        body = msgpack.unpackb(
            msgpack.packb(state.durable_base.to_wire()), strict_map_key=False, use_list=True
        )
        other = self.log._begun((state.start, state.end), received(body))
        assert other.groups.to_wire() == state.groups.to_wire()
        self.log.ranges[self.log.ranges.index(state)] = other

    # What must hold.

    def check(self) -> None:
        for state in self.log.ranges:
            if GROUP not in state.groups.by_id:
                continue
            group = self.group(state)
            entries = self.entries(state)
            done = {unit for unit in entries if group.position(unit) > seq_of(unit)}
            assert done == self.done & set(entries)
            for unit, row in group.rows.items():
                assert row.done >= seq_of(unit)
                assert has((state.start, state.end), key_of(unit))
            told = lag(state, group)
            parked = {unit for unit, row in group.rows.items() if row.parked}
            assert told.entries == len(entries) - len(done)
            assert told.waiting == told.entries - len(parked & set(entries))

    def finish(self) -> None:
        """One consumer does everything: all entries get done (G4), and cost no rows."""
        self.lead_all()
        self.now += 10 * LEASE_MS + RECLAIM_MS
        self.held[99] = {}
        for leader in list(self.leaders):
            idle = 0
            while idle < 8:
                for unit in list(leader.dispatcher.parked_keys):
                    leader.log.append((commands.GROUP_RETRY, [GROUP, [unit], "ann"], None))
                while self.apply_one(leader):
                    pass
                self.tick(leader)
                self.read(leader, 999)
                self.now += 300
                got = self.take(leader, 99, 10, claims=False)
                for unit, token in self.held[99].items():
                    self.send(leader, 99, "ack", unit, token)
                self.held[99].clear()
                idle = 0 if got or leader.log else idle + 1
            group = self.group(leader.state)
            assert set(self.entries(leader.state)) <= self.done, "G4: an entry is never done"
            assert not group.rows, f"entries that are done cost rows: {group.rows}"


def run(root: Path, seed: int, steps: int) -> EntryModel:
    """Do whatever happens, in whatever order, and check."""
    model = EntryModel(root, seed)
    rng = model.rng
    for _ in range(rng.randint(1, 4)):
        model.log.append(model.log.ranges[0], KEYS[: rng.randint(1, 8)])
    for _ in range(steps):
        model.lead_all()
        leader = rng.choice(model.leaders)
        state, draw = leader.state, rng.random()
        if draw < 0.12:
            if keys := model.log.own(state):
                model.log.append(state, [rng.choice(keys) for _ in range(rng.randint(1, 4))])
        elif draw < 0.32:
            consumer = rng.choice(CONSUMERS)
            model.take(leader, consumer, rng.randint(1, 5), claims=rng.random() < 0.3)
        elif draw < 0.55:
            model.settle(leader, rng.choice(CONSUMERS), rng.choice(HOW))
        elif draw < 0.8:
            for _ in range(rng.randint(1, 3)):
                model.apply_one(leader)
        elif draw < 0.88:
            model.now += rng.choice((50, 300, 1_100))
            model.tick(leader)
        elif draw < 0.92:
            model.decide(leader, copies=rng.random() < 0.5)
        elif draw < 0.945:
            model.lead(state)
        elif draw < 0.96:
            model.end_leaders()
            key = rng.choice(KEYS)
            model.log.split(state, rng.choice((key, key + b"\0", key + b"\0\0")))
        elif draw < 0.97:
            model.end_leaders()
            model.log.unite(rng.randrange(len(model.log.ranges)))
        elif draw < 0.98:
            model.install(state)
        elif draw < 0.99:
            model.log.trim_span(state, (b"", None), rng.randint(1, state.next_seq))
        elif keys := model.log.own(state):
            model.log.trim_keys(state, [rng.choice(keys)], rng.randint(1, state.next_seq))
        model.check()
    model.finish()
    model.check()
    model.log.close()
    return model
