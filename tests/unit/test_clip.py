"""What a child of a split begins with, and that it shows nothing of its neighbours' keys."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgpack
import pytest
from band_walk import keys_and_seqs, walk
from prepared import make_ready

from lognode.client.protocol.records import encode_batch
from lognode.statemachine import commands
from lognode.statemachine.block_cache import BlockCache
from lognode.statemachine.clip import clipped
from lognode.statemachine.merge_process import Task, run
from lognode.statemachine.range_state import Base, RangeState
from lognode.statemachine.segment_format import SegmentInfo
from lognode.statemachine.segment_writer import build
from lognode.statemachine.segments import SegmentStore
from lognode.statemachine.turn_limits import TurnOver, Turns
from lognode.statemachine.visibility import Rules

Span = tuple[bytes, bytes | None]


class Parent:
    """A range of all keys, flushed in this thread."""

    def __init__(self, root: Path) -> None:
        (root / "files").mkdir()
        self.root = root
        self.store = SegmentStore(root / "files")
        self.state = RangeState(start=b"", end=None, store=self.store)

    def do(self, kind: int, payload: object, ms: int = 1) -> Any:
        index = self.state.applied_index + 1
        command = commands.encode(kind, ms, payload)
        (reply,) = self.state.apply(index, 1, command).replies or ()
        return reply

    def append(self, *keys: bytes, value: bytes | None = b"v", ms: int = 1, number: int = 0) -> Any:
        data = encode_batch(
            list(keys), [value] * len(keys), producer=7 if number else 0, epoch=1, low=1,
            numbers=number or 1,
        )  # fmt: skip
        return self.do(commands.APPEND, [data], ms)

    def flush(self) -> None:
        frozen = self.state.freeze()
        assert frozen is not None
        info = None
        if len(frozen.memtable):
            info = build(self.root / "new", frozen.memtable.first_seq, list(frozen.sources()))
            self.store.add(self.root / "new", info.content_id)
        self.state.flushed(self.state.base_with(frozen, info))

    def merge(self) -> None:
        """All segments, by the rules of the base."""
        base, span = self.state.durable_base, (self.state.start, self.state.end)
        files = [(self.store.path(info.content_id), info) for info in base.manifest]
        self.store.close()  # an environment is open once in a process
        rules = Rules.of(base.tables, *span)
        merged = run(Task(self.root / "merged", files, *span, rules, oldest=True))
        if merged is not None:
            self.store.add(self.root / "merged", merged.content_id)
        self.state.merged(self.state.base_merged(base.manifest, merged))

    def child(self, start: bytes, end: bytes | None) -> RangeState:
        base = clipped(self.state.durable_base, start, end)
        row = msgpack.unpackb(msgpack.packb(base.to_wire()), strict_map_key=False)
        base = Base.from_wire(row)
        return RangeState(start=start, end=end, store=self.store, base=base)


@pytest.fixture
def parent(tmp_path: Path) -> Parent:
    return Parent(tmp_path)


def of_keys(first: bytes, last: bytes) -> SegmentInfo:
    return SegmentInfo((first + last).hex(), 1, 1, 1, 2, first, last, 1, 1)


@pytest.mark.parametrize(
    ("span", "kept"),
    [
        ((b"", None), "ab bb bd cd dd"),
        ((b"", b"b"), "ab"),
        ((b"", b"b\0"), "ab bb bd"),
        ((b"b", None), "ab bb bd cd dd"),
        ((b"b\0", b"c"), "bd"),
        ((b"c", b"d"), "bd cd"),
        ((b"d", None), "bd cd dd"),
        ((b"d\0", None), ""),
    ],
)
def test_x8_a_manifest_keeps_the_segments_that_meet_the_span(span: Span, kept: str) -> None:
    names = ["ab", "bb", "bd", "cd", "dd"]
    manifest = [of_keys(name[:1].encode(), name[1:].encode()) for name in names]
    found = clipped(Base(9, 3, manifest, {}), *span)
    assert found.manifest == [info for info, name in zip(manifest, names, strict=True)
                              if name in kept.split()]  # fmt: skip
    assert (found.applied_index, found.applied_term, found.tables) == (9, 3, {})


def test_x8_x12_x14_tables_are_cut_by_key_and_kept_where_nobody_knows_how(parent: Parent) -> None:
    parent.append(b"a", b"c", b"m", b"x", number=1)
    parent.do(commands.TAKE_LEASE, ["all", b"", None, 2, 999])
    parent.do(commands.TAKE_LEASE, ["left", b"", b"d", 3, 999])
    parent.do(commands.TAKE_LEASE, ["over", b"", None, 4, 5])
    parent.do(commands.TRIM_KEYS, [[b"a", 2], [b"m", 3]])
    parent.do(commands.TRIM_SPANS, [[b"", b"n", 2]])
    parent.do(commands.COMPACT_TO, [b"b", b"p", 3, commands.COMPACT, 0], ms=7)
    parent.do(commands.SEAL, 1, ms=8)
    parent.flush()
    base = parent.state.durable_base
    base.tables["later"] = {"c": [b"a", 1]}
    before = msgpack.packb(base.to_wire())
    child = clipped(base, b"d", b"o")
    assert msgpack.packb(base.to_wire()) == before
    removal = child.tables["removal"]
    assert removal["floors"] == {b"m": 3}
    trims, compactions, snapshots = removal["marks"]
    assert trims == [[b"", b"d", b"n"], [0, 2, 0]]
    assert compactions == [[b"", b"d", b"o"], [(0, 0), (3, 7), (0, 0)]]
    assert snapshots == [[b""], [0]]
    (lease,) = removal["leases"]
    assert lease[:5] == ["all", b"d", b"o", 2, 999]
    assert lease[6] == {b"m": 0}, "what its keys' floors were, and nobody else's"
    rest = {name: table for name, table in child.tables.items() if name != "removal"}
    assert rest == {name: table for name, table in base.tables.items() if name != "removal"}
    assert rest["producers"][7][3] == [[1], [1], [0, 4]]
    assert rest["sealed"] == [1, base.applied_index, 1]
    again = clipped(Base.from_wire(msgpack.unpackb(before, strict_map_key=False)), b"d", b"o")
    assert msgpack.packb(again.to_wire()) == msgpack.packb(child.to_wire())
    twice = clipped(child, b"d", b"o")
    assert msgpack.packb(twice.to_wire()) == msgpack.packb(child.to_wire())


READS: dict[str, Callable[[RangeState], object]] = {
    "keys": lambda state: state.keys(limit=99),
    "keys of a prefix": lambda state: state.keys(b"k0", limit=99),
    "keys after": lambda state: state.keys(b"", b"k02", limit=99),
    "entries by seq": lambda state: by_seq(state, b"", None),
    "some by seq": lambda state: by_seq(state, b"k01", b"k07"),
    "by seq as of": lambda state: by_seq(state, b"", None, as_of="x"),
    "entries by key": lambda state: by_key(state),
    "by key as of": lambda state: by_key(state, as_of="x"),
    "keys as of": lambda state: state.keys(limit=99, as_of="x"),
}


def by_seq(state: RangeState, start: bytes, end: bytes | None, as_of: str | None = None) -> object:
    found: list[tuple[bytes, int]] = []
    at, more = 1, True
    while more:
        page = state.read_span(start, end, at, limit=5, bytes_max=1 << 20, as_of=as_of)
        found += zip(page.keys, page.seqs, strict=True)
        assert page.next > at or not page.more
        at, more = page.next, page.more
    return found


def by_key(state: RangeState, as_of: str | None = None) -> object:
    return list(keys_and_seqs(walk(state, b"", None, limit=5, as_of=as_of)))


def shown(found: Any, span: Span) -> Any:
    """Of keys, or of pairs that begin with one, those in the span."""
    return [
        each for each in found
        if (key := each if isinstance(each, bytes) else each[0]) >= span[0]
        and (span[1] is None or key < span[1])
    ]  # fmt: skip


@pytest.mark.parametrize("name", READS)
@pytest.mark.parametrize(
    "span",
    [(b"", b"k03"), (b"k03", b"k06"), (b"k02x", b"k06x"), (b"k06", None), (b"k03", b"k03\0"),
     (b"k", b"k00"), (b"z", None)],
)  # fmt: skip
def test_x8_a_child_shows_what_its_parent_shows_of_its_keys(
    parent: Parent, name: str, span: Span
) -> None:
    keys = [b"k%02d" % at for at in range(10)]
    for _ in range(3):
        parent.append(*keys)
        parent.flush()
    parent.append(b"k00", b"k09")
    parent.flush()
    parent.do(commands.TAKE_LEASE, ["x", b"", None, 20, 1000])
    parent.do(commands.DELETE_KEYS, [[b"k01", 99], [b"k04", 99]])
    parent.do(commands.TRIM_SPANS, [[b"", None, 5]])
    parent.flush()
    found = READS[name](parent.child(*span))
    assert found == shown(READS[name](parent.state), span)
    child = parent.child(*span)
    for key in keys:
        own = shown([key], span)
        expected = parent.state.scan(key, limit=9, bytes_max=1 << 20).seqs if own else []
        assert child.scan(key, limit=9, bytes_max=1 << 20).seqs == expected
        assert child.scan(key, limit=9, bytes_max=1 << 20, reverse=True).seqs == expected[::-1]
        assert child.count(key) == len(expected)
        assert child.last_seq(key) == (expected or [0])[-1]
        latest = child.latest(key)
        assert (latest.seq if latest else 0) == (expected or [0])[-1]
        assert child.tail(key, 1) == (expected or [1])[-1]


def test_x8_few_keys_of_a_large_shared_segment_are_found_in_bounded_steps(
    parent: Parent, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(1)
    parts, size = 12, 8_192
    for part in range(parts):
        key = b"7x" if part in (0, parts - 1) else b"5"
        parent.append(*(b"%06d" % rng.randrange(100_000) for _ in range(size - 1)), key)
    parent.flush()
    child = parent.child(b"5x", b"8")
    footer = child.store.segment(child.manifest[0].content_id).footer
    assert len(footer.order_seqs) == parts
    assert footer.blocks > 40
    child.store._blocks._bytes_max = 1
    decoded: list[int] = []
    put = BlockCache.put

    def counted(self: BlockCache, *args: Any) -> None:
        decoded[-1] += 1
        put(self, *args)

    monkeypatch.setattr(BlockCache, "put", counted)
    found: list[int] = []
    at, more = 1, True
    while more:
        decoded.append(0)
        page = child.read_span(b"", None, at, limit=999, bytes_max=1 << 20)
        assert page.next > at or not page.more
        found += page.seqs
        at, more = page.next, page.more
    assert found == [size, size * parts]
    assert max(decoded) <= 40
    assert 3 <= len(decoded) <= parts


def test_x8_a_cold_page_of_a_shared_segment_comes_to_its_end_in_turns(parent: Parent) -> None:
    for _ in range(8):
        parent.append(*(b"%06d" % at for at in range(8_192)))
    parent.flush()
    child = parent.child(b"004000", b"004004")
    child.store._blocks = BlockCache(1)
    (info,) = child.manifest
    child.store.close()
    make_ready(child.store, info.content_id)
    found: list[int] = []
    at, turns, more = 1, Turns(), True
    for _ in range(99):
        try:
            with child.store.on_hand(turns):
                page = child.read_span(b"", None, at, limit=999, bytes_max=1 << 20)
        except TurnOver:
            continue
        found += page.seqs
        at, more, turns = page.next, page.more, Turns()
        if not more:
            break
    assert found == [8_192 * batch + key for batch in range(8) for key in range(4_001, 4_005)]


def test_x14_a_read_through_a_lease_ends_where_what_follows_it_was_merged_away(
    parent: Parent,
) -> None:
    parent.append(b"k", b"a", b"a", b"a", b"k")
    parent.do(commands.TAKE_LEASE, ["x", b"", None, 3, 1000])
    parent.do(commands.DELETE_KEYS, [[b"a", 99]])
    parent.do(commands.RELEASE_LEASE, ["x"])
    parent.flush()
    parent.merge()
    page = parent.state.read_span(b"", None, 2, 4, limit=9, bytes_max=1 << 20)
    assert (page.seqs, page.more, page.next) == ([], False, 4)


def test_x8_x13_a_childs_marks_let_go_of_what_a_shared_segment_has_of_it(parent: Parent) -> None:
    for _ in range(3):
        parent.append(b"a", b"m", b"x")
    parent.append(b"m", value=None, ms=5)
    parent.flush()
    base = clipped(parent.state.durable_base, b"d", b"n")
    parent.state = RangeState(start=b"d", end=b"n", store=parent.store, base=base)
    (info,) = base.manifest
    parent.do(commands.COMPACT_TO, [b"", None, 99, commands.COMPACT, 0], ms=50)
    parent.flush()
    rules = Rules.of(parent.state.durable_base.tables, b"d", b"n")
    assert rules.compacts(info)
    assert not rules.unneeded(info)
    assert parent.state.keys(limit=9) == []
    parent.merge()
    assert parent.state.manifest == [], "an expired tombstone, and what it hid"
    parent.do(commands.TRIM_SPANS, [[b"", None, 99]])
    parent.flush()
    assert Rules.of(parent.state.durable_base.tables, b"d", b"n").unneeded(info)
    assert Rules.of({}, b"y", None).unneeded(info), "nothing of its keys is there"
    assert not Rules.of({}, b"x", None).unneeded(info)
