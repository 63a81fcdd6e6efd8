"""What is visible of a key, against a model that forgets entries one by one.

The model deletes what each command removes from a plain list, and copies the list for each lease.
The state machine's rules say the same of a replica that has dropped nothing and of one that has
merged its files at any time, in any order, by the rules of any earlier base (x13).
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import msgpack
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from lognode.client.protocol.types import Entry
from lognode.statemachine import commands, removal_commands
from lognode.statemachine.floors import Compaction
from lognode.statemachine.leases import Lease
from lognode.statemachine.reads import Reads
from lognode.statemachine.removal import Removal
from lognode.statemachine.visibility import Rules, kept_of_key

KEY = b"k"
DELETE_RETENTION_MS = 2


class Replica(Reads):
    """A replica whose files are lists, one a segment."""

    def __init__(self, removal: Removal) -> None:
        self.removal = removal
        self.start, self.end = b"", None
        self.segments: list[list[Entry]] = []

    def backwards(self, key: bytes, start: int, end: int | None) -> Iterator[Entry]:
        for segment in reversed(self.segments):
            for entry in reversed(segment):
                if entry.seq >= start and (end is None or entry.seq < end):
                    yield entry

    def last_held(self, key: bytes) -> int:
        return next((entry.seq for entry in self.backwards(key, 1, None)), 0)

    def shown(self, as_of: str | None) -> list[Entry]:
        view = self.view(KEY, KEY + b"\0", as_of)
        found = list(self.backwards(KEY, self.first_visible(KEY, view), view.ending(None)))
        return found[::-1]

    def merge(self, rules: Rules, begin: int, end: int) -> None:
        entries = [entry for segment in self.segments[begin:end] for entry in segment]
        kept = kept_of_key(
            rules, KEY,
            [entry.seq for entry in entries],
            [entry.timestamp_ms for entry in entries],
            [entry.value is None for entry in entries],
            [entry.snapshot for entry in entries],
            oldest=begin == 0,
        )  # fmt: skip
        self.segments[begin:end] = [[entries[at] for at in kept]]


@dataclass
class Model:
    """What readers see, as plainly as can be said."""

    visible: list[Entry] = field(default_factory=list)
    leases: dict[str, tuple[int, int, list[Entry]]] = field(default_factory=dict)

    def compact(self, before: int, now_ms: int) -> None:
        last = max((e.seq for e in self.visible if e.seq < before), default=0)
        self.visible = [
            e for e in self.visible
            if e.seq >= before
            or (e.seq == last and (e.value is not None
                                   or e.timestamp_ms >= now_ms - DELETE_RETENTION_MS))
        ]  # fmt: skip

    def pass_snapshots(self, before: int) -> None:
        newest = max((e.seq for e in self.visible if e.snapshot and e.seq < before), default=0)
        self.visible = [e for e in self.visible if e.seq >= newest]


class Machine(RuleBasedStateMachine):
    """Two replicas, one of which merges, and the model."""

    def __init__(self) -> None:
        super().__init__()
        self.removal = Removal()
        self.keeps, self.merges = Replica(self.removal), Replica(self.removal)
        self.model = Model()
        self.next_seq, self.ms, self.compacted = 1, 10, 0
        self.drops_by, self.durable = Rules.of({}), 0

    def do(self, kind: int, payload: Sequence[object]) -> str | None:
        command = commands.decode(commands.encode(kind, self.ms, payload))
        assert command is not None
        error = removal_commands.apply(
            self.removal, command, start=b"", end=None, next_seq=self.next_seq, log_ms=self.ms
        )
        return None if error is None else error.code

    @rule(
        values=st.lists(
            st.tuples(st.sampled_from([None, b"v"]), st.booleans(), st.integers(0, 1)),
            min_size=1, max_size=4,
        )
    )  # fmt: skip
    def append_segment(self, values: list[tuple[bytes | None, bool, int]]) -> None:
        segment = []
        for value, snapshot, gap in values:
            self.next_seq += gap  # of other keys
            self.wait(gap)
            segment.append(Entry(KEY, self.next_seq, self.ms, None, value, snapshot))
            self.next_seq += 1
        for replica in (self.keeps, self.merges):
            replica.segments.append(list(segment))
        self.model.visible += segment

    @rule(ms=st.integers(1, 4))
    def time_passes(self, ms: int) -> None:
        self.wait(ms)

    def wait(self, ms: int) -> None:
        self.ms += ms
        for lease_id, (_, until, _) in list(self.model.leases.items()):
            if until <= self.ms:
                del self.model.leases[lease_id]

    @rule(before=st.integers(0, 60), delete=st.booleans())
    def trim_key(self, before: int, delete: bool) -> None:
        kind = commands.DELETE_KEYS if delete else commands.TRIM_KEYS
        before = self.next_seq if delete else before
        assert self.do(kind, [[KEY, before]]) is None
        self.model.visible = [e for e in self.model.visible if e.seq >= before]

    @rule(before=st.integers(0, 60), start=st.sampled_from([b"", b"j", b"k", b"l"]))
    def trim_span(self, before: int, start: bytes) -> None:
        assert self.do(commands.TRIM_SPANS, [[start, None, before]]) is None
        if start <= KEY:
            self.model.visible = [e for e in self.model.visible if e.seq >= before]

    @rule(back=st.integers(0, 12))
    def compact(self, back: int) -> None:
        self.compacted = max(self.compacted, self.next_seq - back)
        payload = [b"", None, self.compacted, commands.COMPACT, DELETE_RETENTION_MS]
        assert self.do(commands.COMPACT_TO, payload) is None
        self.model.compact(self.compacted, self.ms)

    @rule(before=st.integers(0, 60))
    def pass_snapshots(self, before: int) -> None:
        assert self.do(commands.COMPACT_TO, [b"", None, before, commands.SNAPSHOT, 0]) is None
        self.model.pass_snapshots(min(before, self.next_seq))

    @rule(lease_id=st.sampled_from("xyz"), back=st.integers(1, 12), ms=st.integers(1, 12))
    def lease(self, lease_id: str, back: int, ms: int) -> None:
        through = max(0, self.next_seq - back)
        code = self.do(commands.TAKE_LEASE, [lease_id, b"", None, through, self.ms + ms])
        if lease_id in self.model.leases:
            held_through, until_ms, held = self.model.leases[lease_id]
            assert code == (None if held_through == through else "CONFLICT")
            if code is None:  # renewed
                later = max(until_ms, self.ms + ms)
                self.model.leases[lease_id] = (through, later, held)
            return
        assert code is None
        held = [e for e in self.model.visible if e.seq <= through]
        self.model.leases[lease_id] = (through, self.ms + ms, held)

    @precondition(lambda self: self.model.leases)
    @rule(lease_id=st.sampled_from("xyz"))
    def release(self, lease_id: str) -> None:
        assert self.do(commands.RELEASE_LEASE, [lease_id]) is None
        self.model.leases.pop(lease_id, None)

    @rule()
    def make_durable(self) -> None:
        tables = {"removal": self.removal.to_wire(self.ms), "last_timestamp_ms": self.ms}
        stored = msgpack.unpackb(msgpack.packb(tables), strict_map_key=False)
        self.drops_by, self.durable = Rules.of(stored), len(self.keeps.segments)

    @rule(data=st.data(), fresh=st.booleans())
    def merge(self, data: st.DataObject, fresh: bool) -> None:
        if fresh:
            self.make_durable()
        # Of the files that the base names: entries after it are in no file yet.
        count = len(self.merges.segments) - (len(self.keeps.segments) - self.durable)
        if count > 0:
            begin = data.draw(st.integers(0, count - 1))
            end = data.draw(st.integers(begin + 1, count))
            self.merges.merge(self.drops_by, begin, end)

    @rule()
    def restart(self) -> None:
        """State from its own tables: the order of rows and all they mean survive."""
        stored = msgpack.packb(self.removal.to_wire(self.ms))
        self.removal = Removal.from_wire(msgpack.unpackb(stored, strict_map_key=False), b"", None)
        assert msgpack.packb(self.removal.to_wire(self.ms)) == stored
        self.keeps.removal = self.merges.removal = self.removal

    @invariant()
    def both_show_what_the_model_has(self) -> None:
        views: list[tuple[str | None, list[Entry]]] = [(None, self.model.visible)]
        views += [(name, held) for name, (_, _, held) in self.model.leases.items()]
        for replica in (self.keeps, self.merges):
            replica.last_timestamp_ms = self.ms
            for as_of, expected in views:
                assert replica.shown(as_of) == expected, as_of
            last = self.model.visible[-1].seq if self.model.visible else 0
            assert replica.last_seq(KEY) == last


def _rules(removal: Removal) -> Rules:
    return Rules.of({"removal": removal.to_wire(50), "last_timestamp_ms": 50})


def test_x13_an_expired_tombstone_stays_while_older_files_hold_what_it_hides() -> None:
    removal = Removal()
    assert removal.compact(b"", None, Compaction(before=10, cutoff_ms=100)) is None
    tombstone = ([5], [1], [True], [False])
    assert kept_of_key(_rules(removal), KEY, *tombstone) == [0]
    assert kept_of_key(_rules(removal), KEY, *tombstone, oldest=True) == []


def test_x13_x14_an_expired_tombstone_stays_with_what_a_lease_keeps_below_it() -> None:
    removal = Removal()
    assert removal.take_lease(Lease("a", b"", None, 4, 99, removal.marks), 50) is None
    assert removal.compact(b"", None, Compaction(before=10, cutoff_ms=100)) is None
    columns = ([3, 5], [1, 1], [False, True], [False, False])
    assert kept_of_key(_rules(removal), KEY, *columns, oldest=True) == [0, 1]
    removal.release_lease("a")
    assert kept_of_key(_rules(removal), KEY, *columns, oldest=True) == []


def test_x13_the_entry_that_decides_where_a_lease_begins_stays() -> None:
    removal = Removal()
    assert removal.compact(b"", None, Compaction(before=10)) is None
    assert removal.take_lease(Lease("a", b"", None, 4, 99, removal.marks), 50) is None
    assert removal.raise_floors({KEY: 20}) is None
    columns = ([8, 12], [1, 1], [False, False], [False, False])
    assert kept_of_key(_rules(removal), KEY, *columns) == [0]


def test_x13_a_snapshot_that_decides_where_a_lease_begins_stays_as_the_first_of_its_file() -> None:
    """The lease sees nothing. Once the snapshot was merged away, the lease saw what is older."""
    removal = Removal()
    assert removal.pass_snapshots(b"", None, 3) is None
    assert removal.take_lease(Lease("x", b"", None, 1, 99, removal.marks), 50) is None
    assert removal.raise_floors({KEY: 3}) is None
    columns = ([2, 3], [1, 1], [True, True], [True, False])
    assert kept_of_key(_rules(removal), KEY, *columns) == [0, 1]


def test_x14_a_lease_remembers_a_floor_that_retention_passes() -> None:
    removal = Removal()
    assert removal.raise_floors({KEY: 5}) is None
    assert removal.take_lease(Lease("a", b"", None, 9, 99, removal.marks), 50) is None
    assert removal.trim_spans([(b"", None, 8)]) is None
    assert removal.floors == {}
    assert removal.leased("a", 50, KEY, None).floor(KEY) == 5
    assert removal.view.floor(KEY) == 8


def test_x13_the_cutoff_for_tombstones_never_falls() -> None:
    removal = Removal()
    assert removal.compact(b"", None, Compaction(before=5, cutoff_ms=100)) is None
    assert removal.compact(b"", None, Compaction(before=9, cutoff_ms=30)) is None
    assert removal.marks.compactions.at(KEY) == Compaction(before=9, cutoff_ms=100)


TestVisibility = Machine.TestCase
TestVisibility.settings = settings(
    max_examples=int(os.environ.get("LOGNODE_MODEL_EXAMPLES", "60")),
    stateful_step_count=int(os.environ.get("LOGNODE_MODEL_STEPS", "30")),
    deadline=None, print_blob=True, suppress_health_check=list(HealthCheck),
)  # fmt: skip
