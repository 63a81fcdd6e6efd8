"""A consumer group over ranges that split and merge, beside a plain model: which entries are done.

The model has the leader of each range: leases, and claims about floors that wait to be applied.
Every delivery is compared with the model, so that an entry is never done twice, passed by without a
record, or delivered out of order.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgpack
from lineages import KEYS, Lineages

from lognode.client.protocol import limits
from lognode.client.protocol.records import encode_batch
from lognode.client.protocol.types import Entry
from lognode.statemachine import commands
from lognode.statemachine.groups import forms
from lognode.statemachine.groups.claim import claim
from lognode.statemachine.groups.group import Group
from lognode.statemachine.groups.lag import lag
from lognode.statemachine.groups.undone import Search
from lognode.statemachine.range_state import Base, RangeState
from lognode.statemachine.received_base import received
from lognode.statemachine.spans import has

GROUP = 7
DELIVERIES_MAX = 2


@dataclass
class Lease:
    """A key with a consumer: the entries that it was given, and the token of its leader."""

    key: bytes
    fence: int
    expected: int
    through: int
    seqs: list[int]


class GroupModel:
    """One group, on all ranges of one log."""

    def __init__(self, root: Path) -> None:
        self.log = Lineages(root)
        self.done: dict[bytes, set[int]] = {key: set() for key in KEYS}
        """The seqs that are acknowledged, skipped or lost, by key."""
        self.begun: set[bytes] = set()
        self.parked: set[bytes] = set()
        self.leases: dict[bytes, Lease] = {}
        """What the present leaders have leased."""
        self.stale: list[Lease] = []
        """What consumers still hold of earlier leaders, and of leases that are over."""
        self.letters: dict[bytes, tuple[int, int, int]] = {}
        """Producer, number and seq of the dead letters of parked keys."""
        self.numbers = 0
        self.claims: list[tuple[RangeState, list[Any]]] = []
        self.sent: list[tuple[bytes, list[Any]]] = []
        """Applied batches with acknowledgements, by the key of their record."""
        self.producers = 0
        for state in self.log.ranges:
            self.log.do(state, commands.LEVEL, 4)

    def do(self, state: RangeState, kind: int, payload: Any) -> dict[str, Any]:
        entry = commands.proposal(kind, 1, payload)
        (reply,) = state.apply(state.applied_index + 1, 1, entry).replies or ()
        return dict(reply)

    def group(self, state: RangeState) -> Group | None:
        return state.groups.by_id.get(GROUP)

    def undone(self, key: bytes) -> list[Entry]:
        return [e for e in self.log.shown[key].entries if e.seq not in self.done[key]]

    # Leaders and consumers.

    def open(self, state: RangeState, begin: int, waits: bool) -> None:
        """A new leader, which knows no lease."""
        before = 0 if (group := self.group(state)) is None else group.fence
        reply = self.do(state, commands.GROUP_OPEN, [GROUP, begin, waits])
        assert reply["status"] == "ok", reply
        assert reply["fence"] > before
        self._drop_leases(state)
        for key in self.log.own(state):
            if key not in self.begun:
                self.begun.add(key)
                begins = max(1, min(begin, state.next_seq))
                self.done[key] = {e.seq for e in self.log.shown[key].entries if e.seq < begins}

    def lease(self, state: RangeState, key: bytes, count: int) -> None:
        group = self.group(state)
        if group is None or key not in self.begun or key in self.leases or key in self.parked:
            return
        expected = group.position(key)
        page = state.scan(key, expected, limit=count, bytes_max=1 << 20)
        assert page.entries() == self.undone(key)[:count], "G2, G3: other entries"
        if page.seqs:
            through = page.seqs[-1] + 1
            self.leases[key] = Lease(key, group.fence, expected, through, page.seqs)

    def ack(self, state: RangeState, key: bytes) -> None:
        lease = self.leases.pop(key, None)
        if lease is None:
            return
        self._follow_floor(state, lease)
        reply = self._ack(state, lease)
        assert reply == {"status": "ok"}, reply
        self.done[key].update(lease.seqs)
        self.stale.append(lease)

    def ack_stale(self, state: RangeState, at: int) -> None:
        """An acknowledgement that must change nothing, since the key may be another's by now."""
        group = self.group(state)
        if group is None:
            return
        # After a split or a merge no leader acknowledges anything before it has raised the fence.
        own = [
            lease for lease in self.stale
            if has((state.start, state.end), lease.key)
            and (lease.fence < group.fence or lease.through <= group.position(lease.key))
        ]  # fmt: skip
        if not own:
            return
        before = msgpack.packb(group.to_wire())
        reply = self._ack(state, own[at % len(own)])
        assert reply["status"] == "error" or reply["refused"] == [0], "G1: an old lease counts"
        assert msgpack.packb(group.to_wire()) == before

    def ack_with(self, state: RangeState, key: bytes, out: bytes) -> None:
        """An acknowledgement that comes with a record of another key."""
        lease = self.leases.pop(key, None)
        if lease is None:
            return
        self._follow_floor(state, lease)
        payload, seq = self._with_batch(lease, out), state.next_seq
        reply = self.do(state, commands.GROUP_APPEND, payload)
        assert (reply["status"], reply.get("first_seq")) == ("ok", seq), reply
        entry = Entry(out, seq, state.last_timestamp_ms, None, b"v", False)
        self.log.shown[out].entries.append(entry)
        self.done[key].update(lease.seqs)
        self.stale.append(lease)
        self.sent.append((out, payload))

    def ack_with_stale(self, state: RangeState, at: int, out: bytes) -> None:
        """A record with an acknowledgement that must not count: neither is applied."""
        group = self.group(state)
        own = [lease for lease in self.stale if has((state.start, state.end), lease.key)]
        if group is None or not own:
            return
        lease = own[at % len(own)]
        if lease.fence >= group.fence and lease.expected == group.position(lease.key):
            return
        before = msgpack.packb([group.to_wire(), state.next_seq])
        reply = self.do(state, commands.GROUP_APPEND, self._with_batch(lease, out))
        assert reply["status"] == "error", "G1, S10: an old lease counts"
        assert msgpack.packb([group.to_wire(), state.next_seq]) == before

    def repeat(self, state: RangeState, at: int) -> None:
        """A request whose answer was lost comes again: it is answered, and changes nothing (S8)."""
        group = self.group(state)
        own = [payload for out, payload in self.sent if has((state.start, state.end), out)]
        if group is None or not own:
            return
        before = msgpack.packb([group.to_wire(), state.next_seq])
        reply = self.do(state, commands.GROUP_APPEND, own[at % len(own)])
        assert (reply["status"], reply.get("duplicates")) == ("ok", [0]), reply
        assert msgpack.packb([group.to_wire(), state.next_seq]) == before

    def _with_batch(self, lease: Lease, out: bytes) -> list[Any]:
        self.producers += 1
        data = encode_batch(
            [out], [b"v"], producer=self.producers, epoch=1, low=1, numbers=1, atomic=True
        )
        return [GROUP, lease.fence, [[lease.key, lease.expected, lease.through]], data]

    def release(self, key: bytes) -> None:
        lease = self.leases.pop(key, None)
        if lease is not None and lease.fence:
            self.stale.append(Lease(key, lease.fence - 1, lease.expected, lease.through, []))

    def fail(self, state: RangeState, key: bytes, reject: bool) -> None:
        lease, group = self.leases.pop(key, None), self.group(state)
        if lease is None or group is None:
            return
        self._follow_floor(state, lease)
        row = group.rows.get(key)
        deliveries = 1 + (row.deliveries if row else 0)
        parked = forms.REJECT if reject else forms.PARK * (deliveries >= DELIVERIES_MAX)
        note = [key, lease.expected, deliveries, parked, "broken"]
        reply = self.do(state, commands.GROUP_NOTE, [GROUP, lease.fence, [note], "consumer"])
        assert reply == {"status": "ok"}, reply
        if parked:
            self.parked.add(key)
            self.letters.pop(key, None)
            assert group.decisions[-1].what == parked
        assert group.rows[key].deliveries == deliveries

    # Dead letters.

    def letter(self, state: RangeState, key: bytes) -> None:
        """The next entry of a parked key gets a number, unless it has one."""
        group = self.group(state)
        if group is None or key not in self.begun or not self.undone(key):
            return
        self.numbers += 1
        seq, expected = self.undone(key)[0].seq, group.position(key)
        payload = [GROUP, group.fence, 9, [[key, expected, seq, self.numbers]]]
        reply = self.do(state, commands.GROUP_LETTER, payload)
        assert ("refused" in reply) == (key not in self.parked or key in self.letters), reply
        if "refused" not in reply:
            self.letters[key] = 9, self.numbers, seq

    def copied(self, state: RangeState, key: bytes) -> None:
        """A parked key passes the entry of its letter, which is gone or copied, and no other."""
        group = self.group(state)
        if group is None or not group.position(key):
            return
        _, _, seq = self.letters.get(key, (0, 0, group.position(key)))
        payload = [GROUP, group.fence, [[key, seq]], forms.DEAD_LETTER]
        reply = self.do(state, commands.GROUP_COPIED, payload)
        assert ("refused" in reply) == (key not in self.letters), reply
        if "refused" not in reply:
            assert group.decisions[-1][1:3] == (forms.DEAD_LETTER, ""), "G2: no record"
            self.done[key].add(seq)
            self.parked.discard(key)
            self.letters.pop(key)

    # Operators.

    def retry(self, state: RangeState, key: bytes) -> None:
        if self.group(state) is None:
            return
        reply = self.do(state, commands.GROUP_RETRY, [GROUP, [key], "ann"])
        assert ("refused" in reply) == (key not in self.parked), reply
        self.parked.discard(key)
        self.letters.pop(key, None)

    def skip(self, state: RangeState, key: bytes) -> None:
        group = self.group(state)
        if group is None or key not in self.begun or not self.undone(key):
            return
        first = self.undone(key)[0].seq
        skips = [[key, group.position(key), first + 1]]
        reply = self.do(state, commands.GROUP_SKIP, [GROUP, skips, forms.SKIP, "ann", "bad"])
        assert reply == {"status": "ok"}, reply
        assert group.decisions[-1][1:3] == (forms.SKIP, "ann"), "G2: no record"
        self.done[key].add(first)
        self.parked.discard(key)
        self.letters.pop(key, None)
        lease = self.leases.pop(key, None)
        if lease is not None:
            self.stale.append(lease)

    def reset(self, state: RangeState, span: tuple[bytes, bytes | None], to: int) -> None:
        if self.group(state) is None:
            return
        own = self.log.own(state, span)
        reply = self.do(state, commands.GROUP_RESET, [GROUP, [[*span, to]], [], "ann"])
        assert reply == {"status": "ok"}, reply
        to = min(to, state.next_seq)
        for key in own:
            self.begun.add(key)
            self.parked.discard(key)
            self.letters.pop(key, None)
            self.done[key] = {e.seq for e in self.log.shown[key].entries if e.seq < to}
        self._drop_leases(state)

    # Floors.

    def claim(self, state: RangeState, rows_left: int, back: int) -> None:
        """The leader reads; its claim is applied later."""
        group = self.group(state)
        if group is None:
            return
        for start, end, floor in group.floors.within(state.start, state.end):
            search = Search(state, group, (start, end), max(floor, state.next_seq - back))
            while not search.done:
                search.step()
            found = claim(search, group, (start, end), rows_left=rows_left)
            if found is not None:
                self.claims.append((state, found.payload(GROUP, group.fence)))

    def apply_claim(self, at: int) -> None:
        if not self.claims:
            return
        state, payload = self.claims.pop(at % len(self.claims))
        if not any(state is other for other in self.log.ranges):
            return  # its generation has ended
        reply = self.do(state, commands.GROUP_FLOOR, payload)
        group = self.group(state)
        stale = group is None or payload[1] != group.fence
        assert (reply["status"] == "error") == stale, reply

    # What happens to ranges.

    def split(self, state: RangeState, key: bytes) -> None:
        self._drop_leases(state)
        self.log.split(state, key)

    def unite(self, at: int) -> None:
        for state in self.log.ranges[at : at + 2]:
            self._drop_leases(state)
        self.log.unite(at, 2)

    def install(self, state: RangeState) -> None:
        """Another member takes over from the base."""
        self.log.flush(state)
        body = msgpack.unpackb(
            msgpack.packb(state.durable_base.to_wire()), strict_map_key=False, use_list=True
        )
        base: Base = received(body)
        at = self.log.ranges.index(state)
        other = self.log._begun((state.start, state.end), base)
        assert other.groups.to_wire() == state.groups.to_wire()
        self.log.ranges[at] = other
        self.claims = [(other if s is state else s, payload) for s, payload in self.claims]

    def trim(self, state: RangeState, span: tuple[bytes, bytes | None], before: int) -> None:
        group = self.group(state)
        own = self.log.own(state, span)
        undone = {key: self.undone(key) for key in own}
        self.do(state, commands.TRIM_SPANS, [[*span, before]])
        for key in own:
            left = state.scan(key, limit=999, bytes_max=1 << 20).entries()
            gone = [entry for entry in undone[key] if entry not in left]
            assert not gone or group is None or not group.waits, "retention did not wait"
            if group is not None and not group.waits:
                self.log.shown[key].trim(min(before, state.next_seq))
                self._check_recorded(group, key, gone)
            assert left == [e for e in self.log.shown[key].entries if e in left]
            self.log.shown[key].entries = left
            self._note_removed(group, key)

    def trim_key(self, state: RangeState, key: bytes, before: int) -> None:
        self.log.trim_keys(state, [key], before)
        self._note_removed(self.group(state), key)

    def _note_removed(self, group: Group | None, key: bytes) -> None:
        """A key whose next entry was removed has another next entry: it is parked no longer."""
        if group is not None and key in self.parked and key not in {
            key for key, row in group.rows.items() if row.parked
        }:  # fmt: skip
            self.parked.discard(key)
            self.letters.pop(key, None)
        lease = self.leases.get(key)
        if lease is not None and group is not None and group.position(key) != lease.expected:
            self.stale.append(self.leases.pop(key))

    def _check_recorded(self, group: Group, key: bytes, gone: list[Entry]) -> None:
        for entry in gone:
            assert key not in self.begun or any(
                each.what == forms.LOST and has((each.start, each.end), key)
                and each.begin <= entry.seq < each.through
                for each in group.decisions
            ), "retention removed an undone entry, and nothing records that"  # fmt: skip

    # What must hold.

    def check(self) -> None:
        for state in self.log.ranges:
            group = self.group(state)
            if group is None:
                continue
            assert len(group.rows) <= limits.group_rows_max
            for key in self.log.own(state):
                position = group.position(key)
                assert (position > 0) == (key in self.begun)
                below = {e.seq for e in self.log.shown[key].entries if e.seq < position}
                shown = {e.seq for e in self.log.shown[key].entries}
                assert below == self.done[key] & shown, (key, position)
                row = group.rows.get(key)
                assert (row is not None and row.parked) == (key in self.parked)
                told = (0, 0) if row is None else (row.producer, row.number)
                assert told == self.letters.get(key, (0, 0))[:2], "a letter gets another number"
                assert row is None or not row.is_plain or row.done != group.floors.at(key)

    def check_lag(self, state: RangeState) -> None:
        group = self.group(state)
        if group is None:
            return
        begun = [key for key in self.log.own(state) if key in self.begun]
        undone = {key: found for key in begun if (found := self.undone(key))}
        told = lag(state, group, self.leases)
        entries = [entry for found in undone.values() for entry in found]
        own = {key for key in self.parked if key in begun}
        assert told.at_index == state.applied_index
        assert told.entries == len(entries)
        assert told.bytes == sum(len(e.key) + len(e.value or b"") for e in entries)
        assert told.oldest_ms == min((e.timestamp_ms for e in entries), default=None)
        assert told.parked == len(own)
        assert told.in_flight == len(undone.keys() & self.leases.keys() - own)
        assert told.waiting == len(undone.keys() - self.leases.keys() - own)
        assert told.begun == (len(begun) == len(self.log.own(state)))

    def quiet(self, state: RangeState) -> None:
        """When all is done, floors alone are left: idle keys cost nothing."""
        self.open(state, 1, False)
        group = self.group(state)
        assert group is not None
        for key in self.log.own(state):
            self.retry(state, key)
            self.lease(state, key, 999)
            self.ack(state, key)
        self.claims.clear()
        for _ in range(2):
            self.claim(state, limits.group_rows_max, 0)
            while self.claims:
                self.apply_claim(0)
        assert not group.rows, group.rows
        assert group.floors.values == [state.next_seq] or state.start or state.end is not None

    def _drop_leases(self, state: RangeState) -> None:
        """The leader's memory is gone; consumers do not know."""
        for key in self.log.own(state):
            if key in self.leases:
                self.stale.append(self.leases.pop(key))

    def _follow_floor(self, state: RangeState, lease: Lease) -> None:
        """The floor may have risen up to the lease's first entry."""
        group = self.group(state)
        if group is not None and lease.expected < group.position(lease.key) <= lease.seqs[0]:
            lease.expected = group.position(lease.key)

    def _ack(self, state: RangeState, lease: Lease) -> dict[str, Any]:
        columns = [[lease.key], [lease.expected], [lease.through]]
        return self.do(state, commands.GROUP_ACK, [GROUP, lease.fence, *columns])
