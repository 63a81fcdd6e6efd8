"""Removal by command: what it hides, what it keeps, and what it costs in memory."""

import random
from pathlib import Path
from typing import Any

import msgpack
import pytest
from band_walk import walk

from lognode.client.protocol import limits
from lognode.client.protocol.errors import NotFound
from lognode.client.protocol.records import encode_batch
from lognode.statemachine import commands
from lognode.statemachine.floors import Marks
from lognode.statemachine.page import Page
from lognode.statemachine.range_state import Base, RangeState
from lognode.statemachine.removal import Removal
from lognode.statemachine.segment_writer import SegmentInfo, build
from lognode.statemachine.segments import SegmentStore
from lognode.statemachine.visibility import Rules

ABSENT = 0
HOUR_MS = 3_600_000


class Range:
    """A RangeState over a directory, from which it can begin again."""

    def __init__(self, directory: Path) -> None:
        (directory / "files").mkdir()
        self.directory = directory
        self.store = SegmentStore(directory / "files")
        self.state = RangeState(start=b"", end=None, store=self.store)
        self.log: list[bytes] = []

    def do(self, kind: int, payload: Any, ms: int = 1) -> dict[str, Any]:
        self.log.append(commands.encode(kind, ms, payload))
        (reply,) = self.state.apply(len(self.log) + 1, 1, self.log[-1]).replies or ()
        return dict(reply)

    def append(
        self, *keys: bytes, ms: int = 1, value: bytes | None = b"v", expect: int | None = None,
        snapshot: bool = False,
    ) -> dict[str, Any]:  # fmt: skip
        data = encode_batch(
            list(keys), [value] * len(keys), producer=0, epoch=1, low=1, numbers=1,
            expects=None if expect is None else [expect] * len(keys),
            snapshots=[0] if snapshot else [],
        )  # fmt: skip
        return self.do(commands.APPEND, [data], ms)

    def flush(self) -> None:
        self.state.freeze()
        while self.state.queue:
            frozen = self.state.queue[0]
            info: SegmentInfo | None = None
            if len(frozen.memtable):
                path = self.directory / "building"
                info = build(path, frozen.memtable.first_seq, frozen.sources())
                self.store.add(path, info.content_id)
            row = msgpack.packb(self.state.base_with(frozen, info).to_wire())
            self.state.flushed(Base.from_wire(msgpack.unpackb(row, strict_map_key=False)))

    def crash(self) -> None:
        base = self.state.durable_base
        self.store.close()
        self.store = SegmentStore(self.directory / "files")
        self.state = RangeState(start=b"", end=None, store=self.store, base=base)
        for index in range(base.applied_index + 1, len(self.log) + 2):
            self.state.apply(index, 1, self.log[index - 2])

    def seqs(self, key: bytes, as_of: str | None = None) -> list[int]:
        """Of a key, once all the ways of asking agree."""
        state = self.state
        found = state.scan(key, limit=100, bytes_max=1 << 20, as_of=as_of).seqs
        back = state.scan(key, limit=100, bytes_max=1 << 20, reverse=True, as_of=as_of).seqs
        assert back == found[::-1]
        assert state.count(key, as_of=as_of) == len(found)
        latest = state.latest(key, as_of=as_of)
        assert (latest.seq if latest else 0) == (found[-1] if found else 0)
        assert state.tail(key, 1, as_of=as_of) == (found[-1] if found else 1)
        assert (key in state.keys(key, limit=1, as_of=as_of)) == bool(found)
        in_bands = walk(state, key, key + b"\0", limit=2, as_of=as_of)
        assert [entry.seq for entry in in_bands] == found
        page = Page(more=True)
        by_seq: list[int] = []
        while page.more:
            page = state.read_span(
                key, key + b"\0", page.next, limit=100, bytes_max=1 << 20, as_of=as_of
            )
            by_seq += page.seqs
        assert by_seq == found
        if as_of is None:
            assert state.last_seq(key) == (found[-1] if found else 0)
        return found


@pytest.fixture
def range_(tmp_path: Path) -> Range:
    return Range(tmp_path)


@pytest.mark.parametrize("flushed", [False, True])
@pytest.mark.parametrize("kind", [commands.TRIM_KEYS, commands.DELETE_KEYS])
def test_S6_S9_a_removed_key_is_absent_and_comes_back_with_a_higher_seq(
    range_: Range, kind: int, flushed: bool
) -> None:
    range_.append(b"a", b"b", b"a")
    if flushed:
        range_.flush()
    assert range_.do(kind, [[b"a", 99]]) == {"status": "ok"}
    assert range_.seqs(b"a") == []
    assert range_.state.keys(limit=9) == [b"b"]
    old = range_.append(b"a", expect=3)
    assert (old["error"]["code"], old["error"]["fields"]["actual"]) == ("SEQUENCE_MISMATCH", ABSENT)
    assert range_.append(b"a", expect=ABSENT)["first_seq"] == 4
    assert range_.append(b"a", expect=4)["first_seq"] == 5
    range_.crash()
    range_.flush()
    assert range_.seqs(b"a") == [4, 5]
    assert range_.seqs(b"b") == [2]


def test_a_key_of_many_blocks_is_read_once_in_the_order_of_key(range_: Range) -> None:
    for _ in range(3):
        range_.append(b"k", value=bytes(40_000))
    range_.append(b"l")
    range_.flush()
    assert range_.seqs(b"k") == [1, 2, 3]
    for bytes_max in (1, 50_000, 1 << 20):
        found = walk(range_.state, b"", None, limit=9, bytes_max=bytes_max)
        assert [entry.seq for entry in found] == [1, 2, 3, 4]


def test_a_floor_never_falls_and_hides_nothing_that_comes_later(range_: Range) -> None:
    range_.append(*[b"k"] * 5)
    for before in (4, 2, 0):
        assert range_.do(commands.TRIM_KEYS, [[b"k", before]]) == {"status": "ok"}
        assert range_.seqs(b"k") == [4, 5]
    assert range_.do(commands.TRIM_SPANS, [[b"", None, 1 << 40]]) == {"status": "ok"}
    range_.append(b"k")
    assert range_.seqs(b"k") == [6]


def test_x12_retention_is_kept_per_lineage_span(range_: Range) -> None:
    range_.append(b"left", b"left", b"right", b"right")
    range_.flush()
    assert range_.do(commands.TRIM_SPANS, [[b"", b"m", 1000]]) == {"status": "ok"}
    assert (range_.seqs(b"left"), range_.seqs(b"right")) == ([], [3, 4])
    assert range_.do(commands.TRIM_SPANS, [[b"m", None, 4], [b"", b"m", 2]]) == {"status": "ok"}
    assert (range_.seqs(b"left"), range_.seqs(b"right")) == ([], [4])
    assert list(range_.state.removal.marks.trims.within(b"", None)) == [
        (b"", b"m", 5), (b"m", None, 4),
    ]  # fmt: skip


def test_S6_compaction_keeps_the_last_entry_of_each_key_below_its_seq(range_: Range) -> None:
    range_.append(b"a", b"b", b"a", b"b", b"a")
    range_.flush()
    range_.append(b"a")
    range_.do(commands.COMPACT_TO, [b"", None, 5, commands.COMPACT, HOUR_MS])
    assert (range_.seqs(b"a"), range_.seqs(b"b")) == ([3, 5, 6], [4])
    range_.crash()
    assert (range_.seqs(b"a"), range_.seqs(b"b")) == ([3, 5, 6], [4])


def test_S8_a_record_removed_by_compaction_is_still_a_duplicate(range_: Range) -> None:
    """Redpanda's #5355: a compaction took what its duplicates were known by."""

    def send(number: int) -> dict[str, Any]:
        data = encode_batch([b"a"], [b"%d" % number], producer=7, epoch=1, low=1, numbers=number)
        return range_.do(commands.APPEND, [data])

    for number in (1, 2, 3):
        send(number)
    range_.flush()
    range_.do(commands.COMPACT_TO, [b"", None, 4, commands.COMPACT, HOUR_MS])
    range_.flush()
    range_.crash()
    assert range_.seqs(b"a") == [3]
    assert [send(number)["seqs"] for number in (1, 2, 3)] == [[1], [2], [3]]
    assert range_.seqs(b"a") == [3]


def test_x13_x2_21_tombstones_go_by_log_time_for_expect_too(range_: Range) -> None:
    range_.append(b"k", ms=1_000)
    range_.append(b"k", ms=2_000, value=None)
    range_.append(b"other", ms=10_000)
    compact = [b"", None, 3, commands.COMPACT, 5_000]
    # The leader's clock went back: the log's did not.
    range_.do(commands.COMPACT_TO, compact, ms=5)
    assert range_.state.last_timestamp_ms == 10_000
    assert range_.seqs(b"k") == []
    assert range_.append(b"k", expect=2)["error"]["fields"]["actual"] == ABSENT
    assert range_.append(b"k", expect=ABSENT)["status"] == "ok"
    assert range_.seqs(b"k") == [4]


def test_S6_entries_before_a_logical_snapshot_are_removed(range_: Range) -> None:
    range_.append(b"k", b"k")
    range_.append(b"k", snapshot=True)
    range_.append(b"k")
    range_.append(b"k", snapshot=True)
    range_.flush()
    range_.do(commands.COMPACT_TO, [b"", None, 5, commands.SNAPSHOT, 0])
    assert range_.seqs(b"k") == [3, 4, 5]


def test_x14_entries_under_a_lease_stay_until_the_lease_ends(range_: Range) -> None:
    range_.append(b"k", b"j", b"k", b"k", b"j", ms=100)
    range_.flush()
    lease = ["job", b"", None, 3, 1_000]
    assert range_.do(commands.TAKE_LEASE, lease, ms=100) == {"status": "ok"}
    range_.do(commands.COMPACT_TO, [b"", None, 6, commands.COMPACT, 0], ms=200)
    range_.do(commands.DELETE_KEYS, [[b"j", 6]], ms=200)
    range_.do(commands.TRIM_SPANS, [[b"", None, 6]], ms=200)
    (info,) = range_.state.manifest
    for _ in range(2):
        assert (range_.seqs(b"k"), range_.seqs(b"j")) == ([], [])
        assert (range_.seqs(b"k", "job"), range_.seqs(b"j", "job")) == ([1, 3], [2])
        frozen = range_.state.freeze()
        assert frozen is not None
        assert not Rules.of(frozen.tables).unneeded(info)
        range_.crash()
    range_.append(b"z", ms=1_000)
    with pytest.raises(NotFound):
        range_.state.scan(b"k", limit=1, bytes_max=1, as_of="job")
    range_.flush()
    tables = range_.state.durable_base.tables
    assert tables["removal"]["leases"] == []
    assert Rules.of(tables).unneeded(info)


def test_x14_leases_are_renewed_released_and_refused_by_every_replica_alike(range_: Range) -> None:
    range_.append(b"k", b"k", ms=100)

    def take(lease_id: str, through: int, expires: int) -> str:
        payload = [lease_id, b"", None, through, expires]
        reply = range_.do(commands.TAKE_LEASE, payload, ms=100)
        return reply["error"]["code"] if reply["status"] == "error" else "ok"

    assert take("a", 1, 200) == "ok"
    assert take("a", 1, 150) == "ok"
    assert range_.state.removal.leases["a", b""].expires_ms == 200
    assert take("a", 2, 300) == "CONFLICT"
    assert take("b", 3, 200) == "INVALID_ARGUMENT"
    assert take("b", 2, 100) == "INVALID_ARGUMENT"
    assert take("b", 2, 1 << 50) == "ok"
    assert range_.state.removal.leases["b", b""].expires_ms == 100 + limits.lease_ms_max
    for _ in range(2):
        assert range_.do(commands.RELEASE_LEASE, ["a"], ms=100) == {"status": "ok"}
    for n in range(limits.leases_max - 1):
        assert take(f"more {n}", 1, 200) == "ok"
    assert take("one too many", 1, 200) == "OVERLOADED"


def test_x14_two_leases_of_one_seq_show_what_each_was_promised(range_: Range) -> None:
    range_.append(b"k", b"k", ms=100)
    range_.do(commands.TAKE_LEASE, ["older", b"", None, 2, 300], ms=100)
    range_.do(commands.TRIM_KEYS, [[b"k", 2]], ms=100)
    range_.do(commands.TAKE_LEASE, ["newer", b"", None, 2, 900], ms=100)
    assert (range_.seqs(b"k", "older"), range_.seqs(b"k", "newer")) == ([1, 2], [2])
    range_.append(b"z", ms=300)
    assert range_.seqs(b"k", "newer") == [2], "as before, without the other"


def test_x14_a_lease_that_has_ended_is_not_renewed(range_: Range) -> None:
    range_.append(b"k", b"k", ms=100)

    def renew(through: int, expires: int, ms: int) -> str:
        payload = ["a", b"", None, through, expires]
        reply = range_.do(commands.RENEW_LEASE, payload, ms=ms)
        return reply["error"]["code"] if reply["status"] == "error" else "ok"

    assert renew(1, 200, 100) == "NOT_FOUND"
    range_.do(commands.TAKE_LEASE, ["a", b"", None, 1, 200], ms=100)
    assert renew(2, 300, 150) == "NOT_FOUND"
    assert renew(1, 300, 150) == "ok"
    assert range_.state.removal.leases["a", b""].expires_ms == 300
    range_.do(commands.TRIM_KEYS, [[b"k", 3]], ms=299)
    assert range_.seqs(b"k", "a") == [1]
    assert renew(1, 900, 300) == "NOT_FOUND", "what it held may have been removed"
    assert range_.state.removal.leases == {}


def test_x16_the_tables_of_a_frozen_memtable_have_the_removal_of_its_index(range_: Range) -> None:
    range_.append(b"k", b"k", b"k")
    range_.do(commands.TRIM_KEYS, [[b"k", 2]])
    frozen = range_.state.freeze()
    assert frozen is not None
    before = msgpack.packb(frozen.tables)
    range_.do(commands.TAKE_LEASE, ["lease", b"", None, 3, 900])
    range_.do(commands.TRIM_KEYS, [[b"k", 3]])
    range_.do(commands.TRIM_SPANS, [[b"", None, 2]])
    range_.do(commands.COMPACT_TO, [b"", None, 4, commands.COMPACT, 0])
    assert msgpack.packb(frozen.tables) == before
    assert frozen.tables["removal"]["floors"] == {b"k": 2}
    range_.flush()
    range_.crash()
    assert range_.seqs(b"k") == [3]


@pytest.mark.parametrize(
    ("kind", "payload"),
    [
        (commands.TRIM_SPANS, []),
        (commands.TRIM_SPANS, [[b"b", b"a", 1]]),
        (commands.TRIM_SPANS, [[b"a", b"b", -1]]),
        (commands.TRIM_SPANS, [[b"a", b"b"]]),
        (commands.TRIM_SPANS, [[b"a" * 482, None, 1]]),
        (commands.TRIM_KEYS, None),
        (commands.TRIM_KEYS, [[b"", 1]]),
        (commands.TRIM_KEYS, [[b"k", True]]),
        (commands.TRIM_KEYS, [["k", 1]]),
        (commands.TRIM_KEYS, [[b"k", 1 << 63]]),
        (commands.TRIM_KEYS, [[b"k", 1]] * (limits.removal_keys_max + 1)),
        (commands.DELETE_KEYS, [[b"k" * 481, 1]]),
        (commands.COMPACT_TO, [b"", None, 1, 3, 0]),
        (commands.COMPACT_TO, [b"", None, 1, 1]),
        (commands.COMPACT_TO, [b"", None, 1, [], 0]),
        (commands.TAKE_LEASE, ["", b"", None, 1, 1]),
        (commands.TAKE_LEASE, [b"lease", b"", None, 1, 1]),
        (commands.TAKE_LEASE, ["x" * 129, b"", None, 1, 1]),
        (commands.RENEW_LEASE, ["lease", b"", None, 1]),
        (commands.RELEASE_LEASE, "lease"),
        (commands.RELEASE_LEASE, []),
    ],
)
def test_2_22_a_command_that_does_not_fit_is_refused_and_changes_nothing(
    range_: Range, kind: int, payload: Any
) -> None:
    range_.append(b"k")
    before = range_.state.removal.to_wire(0)
    assert range_.do(kind, payload)["error"]["code"] == "CORRUPT_DATA"
    assert range_.state.removal.to_wire(0) == before
    assert range_.seqs(b"k") == [1]


def test_2_22_keys_of_another_range_are_refused_and_spans_are_clipped(tmp_path: Path) -> None:
    range_ = Range(tmp_path)
    range_.state = RangeState(start=b"c", end=b"m", store=range_.store)
    reply = range_.do(commands.TRIM_KEYS, [[b"d", 1], [b"m", 1]])
    assert reply["error"]["code"] == "GENERATION_MISMATCH"
    assert range_.state.removal.floors == {}
    range_.append(b"d")
    assert range_.do(commands.TRIM_SPANS, [[b"", None, 2], [b"x", None, 2]]) == {"status": "ok"}
    assert range_.state.removal.marks.trims.starts == [b"", b"c", b"m"]
    reply = range_.do(commands.TAKE_LEASE, ["a", b"x", None, 1, 99])
    assert reply["error"]["code"] == "GENERATION_MISMATCH"


def test_floors_take_bounded_memory_and_go_when_retention_passes_them() -> None:
    removal = Removal()
    keys = [b"%06d" % n for n in range(limits.floors_max)]
    removal.floors.update(dict.fromkeys(keys, 10))
    refused = removal.raise_floors({b"new": 11})
    assert refused is not None
    assert refused.code == "OVERLOADED"
    assert removal.raise_floors({keys[0]: 11, keys[1]: 9}) is None
    assert (removal.floors[keys[0]], removal.floors[keys[1]]) == (11, 10)
    sizes = []
    for _ in range(40):
        assert removal.trim_spans([(b"", None, 10)]) is None
        sizes.append(removal.rows)
    assert sizes == sorted(sizes, reverse=True)
    assert removal.floors == {keys[0]: 11}
    assert removal.raise_floors({b"new": 12}) is None


def test_spans_are_bounded_and_join_when_they_are_equal() -> None:
    removal = Removal()
    for n in range(limits.lineage_spans_max - 2):
        assert removal.trim_spans([(b"%05d" % n, b"%05d" % (n + 1), n + 1)]) is None
    refused = removal.trim_spans([(b"a", b"b", 7), (b"c", b"d", 8)])
    assert refused is not None
    assert removal.marks.spans == limits.lineage_spans_max
    assert removal.trim_spans([(b"", None, 1 << 20)]) is None
    assert removal.marks.spans == 1
    assert Marks.from_wire(removal.marks.to_wire()) != Marks()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_S6_trims_that_hide_nothing_may_be_left_out(tmp_path: Path, seed: int) -> None:
    """Two ranges get the same commands, but that one gets no trim of a key that shows nothing below
    the trim's seq. All readers see the same in both, with leases and without."""
    rng, keys = random.Random(seed), [b"a", b"b", b"c", b"d"]
    for name in ("all", "some"):
        (tmp_path / name).mkdir()
    full, sparse = Range(tmp_path / "all"), Range(tmp_path / "some")
    leases: list[str] = []
    left_out = kept = 0
    for at in range(150):
        both = rng.choice(("append", "append", "append", "flush", "compact", "lease", "crash"))
        if rng.random() < 0.3:
            key, before = rng.choice(keys), rng.randrange(1, full.state.next_seq + 1)
            kind = rng.choice((commands.TRIM_KEYS, commands.DELETE_KEYS))
            full.do(kind, [[key, before]], ms=at)
            if sparse.state.shows_below(key, before):
                sparse.do(kind, [[key, before]], ms=at)
                kept += 1
            else:
                left_out += 1
        elif both == "append":
            chosen, value = rng.choices(keys, k=rng.randrange(1, 4)), rng.choice((b"v", None))
            snapshot = rng.random() < 0.2
            for range_ in (full, sparse):
                range_.append(*chosen, ms=at, value=value, snapshot=snapshot)
        elif both == "compact":
            mode = rng.choice((commands.COMPACT, commands.SNAPSHOT))
            before = rng.randrange(1, full.state.next_seq + 1)
            span, retention_ms = rng.choice(([b"", None], [b"b", b"d"])), rng.choice((0, 20))
            for range_ in (full, sparse):
                range_.do(commands.COMPACT_TO, [*span, before, mode, retention_ms], ms=at)
        elif both == "lease" and len(leases) < 3 and full.state.next_seq > 1:
            leases.append(f"lease-{at}")
            through = full.state.next_seq - 1
            for range_ in (full, sparse):
                taken = range_.do(
                    commands.TAKE_LEASE, [leases[-1], b"", None, through, HOUR_MS], ms=at
                )
                assert taken["status"] == "ok"
        elif both == "flush":
            rng.choice((full, sparse)).flush()
        elif both == "crash":
            rng.choice((full, sparse)).crash()
        for key in keys if at % 10 == 9 else ():
            for lease in (None, *leases):
                assert full.seqs(key, lease) == sparse.seqs(key, lease)
    assert left_out
    assert kept
    assert sparse.state.removal.rows <= full.state.removal.rows
