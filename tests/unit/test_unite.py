"""What the range begins with that comes of a merge, and that it shows what its parents showed."""

import os
import random
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgpack
import pytest
from band_walk import walk
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from lineages import KEYS, Lineages

from lognode.client.protocol.errors import CorruptData, LognodeError, OutOfOrder
from lognode.client.protocol.invariants import InvariantError
from lognode.client.protocol.records import Batch, decode_batch, encode_batch
from lognode.node.upkeep.retention import decide, holdings, trimmed
from lognode.partitions.policy import Policy
from lognode.statemachine import commands, rules
from lognode.statemachine.merge_plan import is_oldest, plan
from lognode.statemachine.number_runs import NumberRuns
from lognode.statemachine.producers import Producers, Table, united_rows
from lognode.statemachine.range_state import Base, RangeState
from lognode.statemachine.segment_format import SegmentInfo
from lognode.statemachine.segment_reader import Segment
from lognode.statemachine.spans import Span
from lognode.statemachine.split_key import SplitKey
from lognode.statemachine.unite import Parent, united
from lognode.statemachine.visibility import Rules

EXAMPLES = int(os.environ.get("LOGNODE_UNITE_EXAMPLES", "40"))
NUMBERS = st.integers(0, 30)
OFTEN = {"append": 4, "flush": 2, "split": 2, "unite": 3, "retain": 2, "join": 2, "cycle": 3}
SELDOM = ["trim", "keys", "compact", "snapshot", "lease", "release", "unlink", "again"]
NAMES = [*(name for name, count in OFTEN.items() for _ in range(count)), *SELDOM]
STEPS = st.lists(
    st.tuples(st.sampled_from(NAMES), NUMBERS, NUMBERS, NUMBERS), min_size=5, max_size=45
)


def step(lineages: Lineages, name: str, a: int, b: int, c: int) -> None:
    """One thing that may happen, to the range that `a` names."""
    state = lineages.ranges[a % len(lineages.ranges)]
    own, rng = lineages.own(state), random.Random(31 * b + c)
    bounds = [b"", *KEYS, b"c\0", b"e\0"]
    first, last = sorted(rng.sample(bounds, 2))
    cut = (first, last if c % 3 else None)
    if name == "append" and own:
        lineages.append(state, rng.choices(own, k=1 + b % 6), ms=c, snapshot=b % 4 == 3,
                        value=None if c % 5 == 4 else b"%d" % b)  # fmt: skip
    elif name == "flush":
        lineages.flush(state)
    elif name == "split":
        lineages.split(state, KEYS[b % len(KEYS)] + (b"\0" if c % 4 == 3 else b""))
    elif name == "unite":
        lineages.unite(a % len(lineages.ranges), 2 + c % 2)
    elif name == "trim":
        lineages.trim_span(state, cut, b)
    elif name == "retain":
        retain(
            lineages, state, Policy(retention_ms=b) if c % 2 else Policy(retention_bytes=b << 12)
        )
    elif name == "keys" and own:
        lineages.trim_keys(state, {rng.choice(own), own[0]}, b)
    elif name in ("compact", "snapshot"):
        mode = commands.COMPACT if name == "compact" else commands.SNAPSHOT
        lineages.compact(state, cut, b, mode)
    elif name == "lease":
        lineages.take_lease(state, "xyz"[b % 3], cut, max(0, state.next_seq - 1 - c % 5))
    elif name == "release":
        lineages.release_lease(state, "xyz"[b % 3])
    elif name == "unlink":
        lineages.flush(state)
        lineages.unlink(state)
    elif name == "join":
        join(lineages, state, b)
    elif name == "cycle":
        at = lineages.ranges.index(state)
        lineages.split(state, KEYS[b % len(KEYS)])
        for half in lineages.ranges[at : at + 2]:
            keys = lineages.own(half)
            if keys and c % 2:
                lineages.append(half, rng.choices(keys, k=3), ms=c)
            if rng.randrange(2):
                join(lineages, half, 0)
                lineages.unlink(half)
        lineages.unite(at)
    elif name == "again":
        lineages.flush(state)
        lineages.ranges[lineages.ranges.index(state)] = lineages._begun(
            (state.start, state.end), state.durable_base
        )


def join(lineages: Lineages, state: RangeState, at: int) -> None:
    """Merge the segments that have one clip, from one of them on."""
    lineages.flush(state)
    rows = state.durable_base.manifest
    if rows:
        begin = end = at % len(rows)
        while end < len(rows) and rows[end].clip == rows[begin].clip:
            end += 1
        lineages.join(state, begin, end)


def retain(lineages: Lineages, state: RangeState, policy: Policy) -> None:
    """What retention decides now, and that nothing goes which is younger or less than it says."""
    while not state.measure():
        continue
    now_ms, before = (
        state.last_timestamp_ms,
        {k: list(v.entries) for k, v in lineages.shown.items()},
    )
    held = holdings(state)
    for proposal in decide(policy, held, now_ms):
        for start, end, seq in proposal.payload:
            lineages.trim_span(state, (start, end), seq)
    gone = [e for key, was in before.items() for e in was if e not in lineages.shown[key].entries]
    if policy.retention_ms is not None:
        assert all(entry.timestamp_ms < now_ms - policy.retention_ms for entry in gone)
        return
    live = [(piece, each) for each in held for piece in each.segments
            if piece.end_seq > each.trimmed]  # fmt: skip
    floors = {each.start: trimmed(state.removal.marks, each.start, each.end) for each in held}
    left = [piece for piece, each in live if piece.end_seq > floors[each.start]]
    passed = [p.max_timestamp_ms for p, each in live if p.end_seq <= floors[each.start]]
    assert max(passed, default=0) <= min((piece.max_timestamp_ms for piece in left), default=99)
    assert all(entry.timestamp_ms <= max(passed) for entry in gone)
    size = sum(piece.size for piece, _ in live)
    assert sum(piece.size for piece in left) >= min(size, policy.retention_bytes or 0)


@pytest.mark.slow
@settings(
    max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow],
)  # fmt: skip
@given(steps=STEPS)
def test_S3_S6_every_key_shows_the_same_through_splits_and_merges(
    steps: list[tuple[str, int, int, int]],
) -> None:
    with tempfile.TemporaryDirectory() as root:
        lineages = Lineages(Path(root) / "log")
        try:
            for each in steps:
                step(lineages, *each)
                if each[0] in ("split", "unite", "join", "unlink"):
                    lineages.check()
            lineages.check()
            lineages.unite(0, len(lineages.ranges))
            lineages.check()
        finally:
            lineages.close()


# By table.


@pytest.fixture
def lineages(tmp_path: Path) -> Iterator[Lineages]:
    made = Lineages(tmp_path / "log")
    yield made
    made.close()


def two(lineages: Lineages, left: int, right: int) -> None:
    """Two ranges that met no traffic together: so many appends of three keys in each."""
    lineages.split(lineages.ranges[0], b"e")
    for state, keys, count in zip(lineages.ranges, (b"abc", b"efg"), (left, right), strict=True):
        for at in range(count):
            lineages.append(state, [b"%c" % key for key in keys], ms=100 * count + at)
            lineages.flush(state)


def test_S6_the_seqs_go_on_behind_the_larger_and_the_clock_behind_the_later(
    lineages: Lineages,
) -> None:
    two(lineages, 2, 5)
    left, right = (state.durable_base for state in lineages.ranges)
    left.tables["new"], right.tables["new"], right.tables["newer"] = 1, 2, 3
    left.tables["sealed"] = [1, 2, 3]
    parents = [Parent(b"", b"e", left), Parent(b"e", None, right)]
    found = united(parents, 7, 3)
    assert (found.applied_index, found.applied_term) == (7, 3)
    tables = found.tables
    assert (tables["next_seq"], tables["last_timestamp_ms"]) == (16, 504)
    assert (tables["sealed"], tables["new"], tables["newer"]) == (None, 1, 3)
    assert len(tables["hash"]) == len(left.tables["hash"])
    assert tables["hash"] not in (left.tables["hash"], right.tables["hash"])
    left.tables["hash"], right.tables["hash"] = right.tables["hash"], left.tables["hash"]
    assert united(parents, 7, 3).tables["hash"] != tables["hash"]
    empty = [Parent(b"", b"e", Base()), Parent(b"e", b"f", Base()), Parent(b"f", None, Base())]
    assert united(empty, 1, 1).tables["removal"] is None
    RangeState(start=b"", end=None, store=lineages.store, base=united(empty, 1, 1))


@pytest.mark.parametrize("order", [(0,), (1, 0), (0, 0), (0, 2)])
def test_S6_only_neighbours_are_united(order: tuple[int, ...]) -> None:
    spans = [(b"", b"b"), (b"b", b"c"), (b"c", b"d")]
    with pytest.raises(InvariantError, match="the ranges of a merge are not neighbours"):
        united([Parent(*spans[at], Base()) for at in order], 1, 1)


def test_x8_a_split_and_a_merge_leave_the_manifest_as_it_was(lineages: Lineages) -> None:
    (state,) = lineages.ranges
    for keys in ([b"a", b"h"], [b"b", b"c"], [b"f"], [b"a", b"h"], [b"g"]):
        lineages.append(state, keys)
        lineages.flush(state)
    before = state.durable_base.manifest
    assert [info.clip for info in before] == [(b"", None)] * 5
    for key in (b"e", b"b", b"g"):
        lineages.split(lineages.ranges[-1], key)
        lineages.split(lineages.ranges[0], b"d")
        lineages.unite(0, len(lineages.ranges))
        assert lineages.ranges[0].durable_base.manifest == before
    lineages.split(lineages.ranges[0], b"e")
    lineages.append(lineages.ranges[1], [b"f"])
    lineages.unite(0)
    (state,) = lineages.ranges
    *same, added = state.durable_base.manifest
    assert same == before
    assert added.clip == (b"", None), "the other wrote nothing: all its rows are older"
    lineages.split(state, b"e")
    for range_, keys in zip(lineages.ranges, ([b"b", b"d"], [b"g"]), strict=True):
        lineages.append(range_, keys)
    lineages.unite(0)
    (state,) = lineages.ranges
    clips = [info.clip for info in state.durable_base.manifest]
    assert clips == [*[(b"", None)] * 6, (b"", b"e"), (b"e", None)], "both gave one seq"
    assert SegmentInfo.from_wire(same[0].to_wire()[:9]) == same[0], "as rows were before clips"
    lineages.append(state, KEYS)
    lineages.check()
    lineages.split(state, b"c")
    clips = [info.clip for info in lineages.ranges[0].durable_base.manifest]
    assert set(clips) == {(b"", None)}, "of one that has all of the child's keys nothing is said"
    assert (b"c", b"e") in [info.clip for info in lineages.ranges[1].durable_base.manifest]
    lineages.unite(0)
    assert [info.clip for info in lineages.ranges[0].durable_base.manifest][6:] == [
        (b"", b"e"), (b"e", None), (b"", None)
    ]  # fmt: skip
    lineages.check()


@pytest.mark.parametrize(
    "clip", [(b"b", b"b"), (b"b", b"a"), (b"", b""), (None, None), (1, None), (b"", "x"), (b"",)]
)
def test_S12_a_row_with_a_malformed_clip_is_an_error(clip: tuple[Any, ...]) -> None:
    row = ["ab", 1, 1, 1, 2, b"a", b"b", 1, 1]
    for whole in (row, [*row, b"a", b"b"], [*row, b"a", None]):
        assert SegmentInfo.from_wire(whole).to_wire() == whole
    assert SegmentInfo.from_wire([*row, b"", None]).to_wire() == row, "as before there were clips"
    with pytest.raises(CorruptData):
        Base.from_wire({"applied": [1, 1], "manifest": [[*row, *clip]], "tables": {}})


def test_files_of_other_chains_are_not_opened_for_a_page_of_keys(
    lineages: Lineages, monkeypatch: pytest.MonkeyPatch
) -> None:
    two(lineages, 5, 5)
    lineages.unite(0)
    (state,) = lineages.ranges
    opened: set[str] = set()
    segment: Callable[[str], Segment] = lineages.store.segment

    def counted(content_id: str) -> Segment:
        opened.add(content_id)
        return segment(content_id)

    monkeypatch.setattr(lineages.store, "segment", counted)
    assert state.keys(limit=3) == [b"a", b"b", b"c"]
    assert opened == {info.content_id for info in state.manifest if info.end == b"e"}
    opened.clear()
    assert state.keys(b"f", limit=3) == [b"f"]
    assert [entry.seq for entry in walk(state, b"f", b"g", limit=99)] == [2, 5, 8, 11, 14]
    assert opened == {info.content_id for info in state.manifest if info.start == b"e"}


@pytest.mark.parametrize(
    ("left_ms", "right_ms", "clips"),
    [
        (100, 200, [(b"", b"e"), (b"e", None), (b"", None)]),
        (300, 200, [(b"", b"e"), (b"e", None), (b"e", None)]),
    ],
)
def test_x2_21_later_seqs_with_earlier_times_stay_apart(
    lineages: Lineages, left_ms: int, right_ms: int, clips: list[Span]
) -> None:
    lineages.split(lineages.ranges[0], b"e")
    left, right = lineages.ranges
    lineages.append(left, [b"a"], ms=left_ms)
    for _ in range(2):
        lineages.append(right, [b"e", b"f"], ms=right_ms)
        lineages.flush(right)
    lineages.unite(0)
    (state,) = lineages.ranges
    assert [info.clip for info in state.manifest] == clips
    lineages.check()


def test_x2_21_earlier_seqs_with_later_times_stay_apart(lineages: Lineages) -> None:
    lineages.split(lineages.ranges[0], b"e")
    left, right = lineages.ranges
    lineages.append(left, [b"a"], ms=300)
    lineages.append(right, [b"e", b"f"], ms=200)
    lineages.trim_span(right, (b"e", None), 2)
    lineages.flush(right)
    lineages.append(right, [b"e"], ms=200)
    lineages.trim_span(right, (b"e", None), 3)
    lineages.flush(right)
    lineages.unlink(right)
    assert [info.first_seq for info in right.manifest] == [3]
    lineages.unite(0)
    (state,) = lineages.ranges
    assert [info.clip for info in state.manifest] == [(b"", b"e"), (b"e", None)]
    assert state.seq_at_timestamp(250) == (1, b"e")
    lineages.check()


def test_x12_a_floor_of_one_parents_keys_takes_nothing_of_the_others(lineages: Lineages) -> None:
    two(lineages, 60, 2)
    lineages.trim_span(lineages.ranges[0], (b"", b"e"), 100)
    lineages.unite(0)
    (state,) = lineages.ranges
    lineages.trim_span(state, (b"", b"e"), 150)
    assert [state.count(key) for key in (b"a", b"e")] == [10, 2]
    lineages.check()
    lineages.flush(state)
    lineages.unlink(state)
    clips = [info.clip for info in state.manifest]
    assert clips == [(b"e", None)] * 2 + [(b"", None)] * 11, "no seq of these is another's too"
    lineages.check()


def test_x12_marks_beyond_the_limit_stay_and_can_be_raised(
    lineages: Lineages, monkeypatch: pytest.MonkeyPatch
) -> None:
    two(lineages, 2, 2)
    for state, spans in zip(lineages.ranges, ((b"abc"), (b"efg")), strict=True):
        for at, key in enumerate(spans):
            lineages.trim_span(state, (b"%c" % key, b"%c" % (key + 1)), 2 + at)
    monkeypatch.setitem(rules.BY_LEVEL, 1, rules.BY_LEVEL[1]._replace(lineage_spans_max=4))
    lineages.unite(0)
    (state,) = lineages.ranges
    assert state.removal.marks.spans == 9
    lineages.trim_span(state, (b"a", b"b"), 4)
    reply = lineages.do(state, commands.TRIM_SPANS, [[b"a\0", b"a\1", 5]])
    assert reply["error"]["code"] == "OVERLOADED"
    lineages.trim_span(state, (b"", None), 5)
    assert state.removal.marks.spans == 1
    lineages.check()


@pytest.mark.parametrize("joined", [False, True])
def test_x13_entries_hidden_by_compaction_are_not_derived_from_files(
    lineages: Lineages, joined: bool
) -> None:
    two(lineages, 3, 3)
    left, right = lineages.ranges
    lineages.append(left, [b"a"], value=None, ms=400)
    lineages.append(right, [b"e"], value=None, ms=400)
    lineages.append(left, [b"b"], ms=500)
    lineages.compact(left, (b"", None), 99, commands.COMPACT)
    lineages.flush(left)
    if joined:
        lineages.join(left, 0, len(left.manifest))
    lineages.unite(0)
    (state,) = lineages.ranges
    assert (state.last_seq(b"a"), state.last_seq(b"e")) == (0, 10)
    lineages.check()
    assert state.removal.marks.compactions.at(b"e").before == 0


def test_x14_leases_go_on_through_a_split_and_a_merge(lineages: Lineages) -> None:
    (state,) = lineages.ranges
    lineages.append(state, KEYS)
    lineages.trim_span(state, (b"f", None), 7)
    lineages.take_lease(state, "split", (b"b", b"g"), 6)
    lineages.split(state, b"e")
    left, right = lineages.ranges
    lineages.append(left, [b"a", b"b"])
    lineages.take_lease(left, "x", (b"", None), 9)
    lineages.take_lease(right, "x", (b"", None), 7)
    lineages.take_lease(right, "right", (b"", b"f"), 8)
    lineages.trim_keys(left, [b"b", b"c"], 99)
    lineages.trim_keys(right, [b"e"], 99)
    lineages.unite(0)
    (state,) = lineages.ranges
    rows = [(row.lease_id, *row.span, row.through_seq) for row in state.removal.leases.values()]
    assert rows == [
        ("split", b"b", b"g", 6), ("x", b"", b"e", 9),
        ("x", b"e", None, 7), ("right", b"e", b"f", 8),
    ]  # fmt: skip
    lineages.trim_span(state, (b"", None), 99)
    lineages.flush(state)
    lineages.unlink(state)
    lineages.check()
    assert len(lineages.leased) == 5 + 4 + 4 + 1
    lineages.release_lease(state, "x")
    lineages.check()


def test_x14_a_lease_with_several_rows_is_renewed_as_far_as_it_holds_what_is_asked(
    lineages: Lineages,
) -> None:
    two(lineages, 3, 3)
    left, right = lineages.ranges
    for state, through in ((left, 5), (right, 5)):
        assert lineages.do(state, commands.TAKE_LEASE, ["x", b"", None, through, 900])
    lineages.do(left, commands.TAKE_LEASE, ["y", b"b", b"e", 4, 900])
    lineages.do(right, commands.TAKE_LEASE, ["y", b"e", None, 6, 900])
    lineages.unite(0)
    (state,) = lineages.ranges

    def renew(name: str, start: bytes, end: bytes | None, through: int, ms: int) -> str:
        reply = lineages.do(state, commands.TAKE_LEASE, [name, start, end, through, ms])
        return str(reply["status"] if reply["status"] == "ok" else reply["error"]["code"])

    def ends() -> list[int]:
        return [lease.expires_ms for lease in state.removal.leases.values()]

    assert ends() == [900, 900, 900], "what a split could have cut is one row"
    assert renew("x", b"", None, 5, 1000) == "ok"
    assert renew("x", b"b", b"c", 5, 1100) == "ok"
    assert renew("x", b"", None, 4, 1200) == "CONFLICT"
    assert renew("y", b"", b"e", 4, 1200) == "CONFLICT", "it was never promised what is below b"
    assert renew("y", b"b", None, 4, 1200) == "CONFLICT", "the other row holds another seq"
    assert renew("y", b"e", b"f", 6, 1300) == "ok"
    assert sorted(ends()) == [900, 1100, 1300]
    assert renew("y", b"a", b"b", 3, 950) == "ok"
    assert len(ends()) == 4
    lineages.do(state, commands.RELEASE_LEASE, ["y"])
    assert ends() == [1100]


def test_x14_no_order_of_views_is_changed_for_the_sake_of_one_row(lineages: Lineages) -> None:
    """Of several leases of one seq that cover the same keys, the one taken first is asked."""
    two(lineages, 3, 3)
    left, right = lineages.ranges
    for state, names in ((left, "xy"), (right, "yx")):
        for name in names:
            assert lineages.do(state, commands.TAKE_LEASE, [name, b"", None, 5, 900])
    lineages.unite(0)
    rows = [(lease.lease_id, *lease.span) for lease in lineages.ranges[0].removal.leases.values()]
    assert [name for name, start, _ in rows if start == b""] == ["x", "y"]
    assert [name for name, _, end in rows if end is None] == ["y", "x"]


def test_x2_20_from_the_first_seq_of_the_merged_range_on_nothing_is_told_apart(
    lineages: Lineages,
) -> None:
    two(lineages, 4, 2)
    lineages.unite(0)
    (state,) = lineages.ranges
    lineages.append(state, KEYS)
    assert state.readable_to(b"", None, 1) == b"e"
    assert state.readable_to(b"", b"d", 1) is None
    assert state.readable_to(b"f", None, 1) is None
    assert state.readable_to(b"", None, 6) == b"e"
    assert state.readable_to(b"", None, 7) is None, "the other's seqs end there"
    assert state.readable_to(b"", None, state.next_seq) is None
    page = state.read_span(b"", None, 5, limit=99, bytes_max=1 << 20)
    assert (page.end_key, page.more, page.next, page.keys) == (b"e", True, 7, [b"b", b"c"])
    assert page.to_wire()["end_key"] == b"e"
    page = state.read_span(b"e", None, 5, limit=99, bytes_max=1 << 20)
    assert (page.end_key, page.more, page.next, page.keys) == (None, True, 7, [b"f", b"g"])
    page = state.read_span(b"", None, 13, limit=99, bytes_max=1 << 20)
    assert page.end_key is None
    assert "end_key" not in page.to_wire()


def test_x2_21_a_time_is_one_of_a_lineage_span(lineages: Lineages) -> None:
    two(lineages, 4, 2)  # from 400 ms on, and from 200
    lineages.unite(0)
    (state,) = lineages.ranges
    lineages.append(state, [b"a", b"g"], ms=900)
    assert state.seq_at_timestamp(201) == (1, b"e")
    assert state.seq_at_timestamp(201, b"e") == (4, None)
    assert state.seq_at_timestamp(401) == (4, b"e")
    assert state.seq_at_timestamp(401, b"e") == (7, None)
    assert state.seq_at_timestamp(401, b"f", b"g") == (7, None)
    assert state.seq_at_timestamp(404) == (13, None)
    assert state.seq_at_timestamp(901) == (15, None)


def test_the_earliest_that_retention_has_left_is_one_of_a_lineage_span(lineages: Lineages) -> None:
    two(lineages, 4, 2)
    left, right = lineages.ranges
    assert left.earliest(b"", None) == right.earliest(b"", None) == (1, None)
    lineages.trim_span(left, (b"", None), 3)
    lineages.unite(0)
    (state,) = lineages.ranges
    lineages.append(state, [b"a", b"g"])
    assert state.earliest(b"", None) == (3, b"e")
    assert state.earliest(b"b", b"d") == (3, None)
    assert state.earliest(b"e", None) == (1, None)
    lineages.trim_span(state, (b"f", b"g"), 2)
    assert state.earliest(b"", None) == (3, b"e")
    assert state.earliest(b"e", None) == (1, b"f")
    assert state.earliest(b"f", None) == (2, b"g")
    assert state.earliest(b"g", None) == (1, None)
    lineages.trim_span(state, (b"", None), 1 << 40)
    assert state.earliest(b"g", None) == (state.next_seq, None)


def test_segments_of_one_clip_are_joined_and_none_of_two(lineages: Lineages) -> None:
    """However the parents' rows lie, and however often ranges split and merge."""
    two(lineages, 9, 17)
    lineages.unite(0)
    (state,) = lineages.ranges
    joined = []
    while found := plan(state.manifest, Rules.of({})):
        clips = {info.clip for info in state.manifest[slice(*found)]}
        joined.append((*clips, found[1] - found[0], is_oldest(state.manifest, found[0])))
        lineages.join(state, *found)
    assert sorted(joined, key=str) == [
        ((b"", None), 8, False), ((b"", b"e"), 8, True), ((b"e", None), 8, True)
    ]  # fmt: skip
    lineages.check()
    for at in range(40):
        key = KEYS[1 + at % 6]
        lineages.split(lineages.ranges[0], key)
        lineages.append(lineages.ranges[at % 2], [b"a", b"h"][at % 2 : at % 2 + 1])
        lineages.unite(0)
        while found := plan(lineages.ranges[0].manifest, Rules.of({})):
            lineages.join(lineages.ranges[0], *found)
    assert len(lineages.ranges[0].manifest) < 20
    lineages.check()


def test_a_merged_range_is_split_where_its_own_bytes_are_halved(lineages: Lineages) -> None:
    """A file that was cut counts for what is left of its keys alone."""
    (state,) = lineages.ranges
    for key in KEYS:
        lineages.append(state, [key], value=os.urandom(20_000))
    lineages.flush(state)
    lineages.split(state, b"c")
    left, right = lineages.ranges
    lineages.append(left, [b"a"])
    lineages.append(right, [b"h"])
    lineages.flush(right)
    lineages.join(right, 0, 2)
    lineages.unite(0)
    (state,) = lineages.ranges
    assert [info.clip for info in state.manifest] == [(b"", b"c")] * 2 + [(b"c", None)]
    assert state.manifest[0].max_key == b"h"
    search = SplitKey(state)
    while not search.step():
        continue
    assert search.key in (b"d\0", b"e")
    assert 160_000 < search.size < 200_000
    while not state.measure():
        continue
    cut = state.shares.of(state.manifest[0])
    assert cut is not None
    assert (cut.entries, 40_000 < cut.size < 50_000) == (2, True)
    lineages.check()
    lineages.join(state, 0, 2)
    lineages.check()
    lineages.trim_span(state, (b"", b"c"), 99)
    lineages.flush(state)
    lineages.unlink(state)
    assert [info.clip for info in state.manifest] == [(b"c", None)], "nobody sees more of the file"


@pytest.mark.parametrize("side", [0, 1])
def test_x8_entries_that_a_parent_merged_into_another_file_are_not_read_twice(
    lineages: Lineages, side: int
) -> None:
    (state,) = lineages.ranges
    for _ in range(2):
        lineages.append(state, KEYS)
        lineages.flush(state)
    lineages.split(state, b"e")
    lineages.join(lineages.ranges[side], 0, 2)
    lineages.unite(0)
    (state,) = lineages.ranges
    clips = [info.clip for info in state.manifest]
    assert clips == [(b"", b"e")] * (1 + side) + [(b"e", None)] * (2 - side)
    lineages.check()
    lineages.join(state, 1 - side, 3 - side)
    lineages.check()


def test_x8_a_manifest_may_name_a_file_twice(lineages: Lineages) -> None:
    """And counts of it what each row has, once."""
    (state,) = lineages.ranges
    for _ in range(2):
        lineages.append(state, [*KEYS, b"a"], value=os.urandom(9_000))
        lineages.flush(state)
    lineages.split(state, b"e")
    lineages.split(lineages.ranges[0], b"c")
    lineages.append(lineages.ranges[1], [b"d"])
    lineages.join(lineages.ranges[1], 0, 2)
    lineages.unite(0, 3)
    (state,) = lineages.ranges
    names = [info.content_id for info in state.manifest]
    assert (len(names), len(set(names))) == (6, 4)
    lineages.append(state, KEYS)
    lineages.flush(state)
    lineages.check()
    held = holdings(state)
    assert len(held) == 3
    assert sum(p.size for each in held for p in each.segments) == state.segment_bytes
    lineages.join(state, 0, 2)
    lineages.check()
    for key in (b"b", b"d", b"f"):
        lineages.split(lineages.ranges[-1], key)
    lineages.check()


@pytest.mark.parametrize("side", [0, 1])
def test_x13_entries_dropped_by_a_parent_do_not_return_with_the_other_parents_file(
    lineages: Lineages, side: int
) -> None:
    """The last file of a key that it has is not that which hides what is in the first."""
    (state,) = lineages.ranges
    lineages.append(state, [b"a", b"h"])
    lineages.split(state, b"e")
    half, key = lineages.ranges[side], [b"a", b"h"][side]
    lineages.append(half, [key], value=None, ms=10)
    lineages.append(half, [key], value=None, ms=10)
    lineages.do(half, commands.FREEZE, None, ms=50)
    lineages.compact(half, (b"", None), 99, commands.COMPACT)
    lineages.flush(half)
    lineages.join(half, 0, len(half.manifest))
    assert half.manifest == []
    lineages.unite(0)
    (state,) = lineages.ranges
    assert len(state.manifest) == 1
    lineages.check()


# Producers.


def producers(**rows: list[Any]) -> dict[int, list[Any]]:
    """Rows as meta stores them: epoch, low, numbers with their seqs, last log time and token."""
    table = {}
    for name, (epoch, low, numbers, last_ms, token) in rows.items():
        known = sorted(numbers)
        runs = NumberRuns(known, [numbers[number] for number in known]).to_wire()
        table[int(name[1:])] = [epoch, low, max(known, default=0), runs, last_ms, token]
    return table


A, B = (b"", b"m"), (b"m", None)
"""Spans of neighbours."""


def united_of(left: dict[int, list[Any]], right: dict[int, list[Any]]) -> dict[int, list[Any]]:
    return dict(united_rows(Table(A, left), Table(B, right)).rows)


def record(number: int, key: bytes, prev: int = 0, low: int = 1) -> Batch:
    return decode_batch(
        encode_batch([key], [b"v"], producer=7, epoch=2, low=low, numbers=[number], prevs=[prev])
    )


OLD = [1, 40, {41: 7, 44: 8}, 900, 5]
NEW = [2, 1, {1: 3, 2: 4}, 300, 6]


@pytest.mark.parametrize(("left", "right", "new_key"), [(OLD, NEW, b"x"), (NEW, OLD, b"a")])
def test_x9_the_row_with_the_higher_epoch_of_a_producer_stays(
    left: list[Any], right: list[Any], new_key: bytes
) -> None:
    table = Producers.from_wire(united_of(producers(p7=left), producers(p7=right)))
    row = table.rows[7]
    assert (row.epoch, row.low, row.highest, row.fence_token, row.last_ms) == (2, 1, 44, 6, 900)
    third = record(3, new_key, prev=2)
    assert table.check(third) is None, "record 3 of epoch 2 is not below the low of epoch 1"
    assert row.seq_of(2) == 4


@pytest.mark.parametrize(("left", "right", "old_key"), [(OLD, NEW, b"a"), (NEW, OLD, b"x")])
def test_S8_x10_a_number_known_to_a_range_before_the_opening_arrived_is_still_a_duplicate(
    left: list[Any], right: list[Any], old_key: bytes
) -> None:
    """An import was opened again while its ranges were merged: what one of them had applied, and
    nobody had acknowledged, was stored once more."""
    table = Producers.from_wire(united_of(producers(p7=left), producers(p7=right)))
    table = copied(table)
    for known in (39, 41, 44):
        assert table.check(record(known, old_key)) == []
    assert table.duplicate_seqs(record(44, old_key)) == [8]
    assert table.check(record(43, old_key, prev=41)) is None
    assert table.check(record(43, old_key, prev=39)) is None, "settled there"
    assert isinstance(table.check(record(46, old_key, prev=42)), OutOfOrder)
    table.record(record(45, old_key, low=44), [45], 9, 901)
    assert table.rows[7].elders, "44 may come again"
    table.record(record(46, old_key, low=45), [46], 10, 902)
    assert not table.rows[7].elders
    assert len(table.rows[7].to_wire()) == 6


def test_S8_x10_rows_are_merged_again_and_again_and_nothing_is_forgotten() -> None:
    third = [3, 1, {5: 9}, 1, 7]
    once = united_of(producers(p7=OLD), producers(p7=NEW))
    twice = united_rows(Table((b"", None), once), Table((b"z", None), producers(p7=third)))
    row = Producers.from_wire(dict(twice.rows)).rows[7]
    assert (row.epoch, row.highest) == (3, 44)
    assert [(elder.start, elder.end, elder.low) for elder in row.elders] == [
        (b"", b"m", 40), (b"", None, 1),
    ]  # fmt: skip
    assert row.knows(44, b"a")
    assert not row.knows(44, b"x")
    assert row.knows(2, b"x")
    split = united_rows(Table(A, twice.rows), Table(B, twice.rows))
    assert split.rows == twice.rows, "both children of a split know the same"


def test_x9_rows_of_one_epoch_know_what_either_knew() -> None:
    left = producers(p7=[3, 5, {4: 1, 5: 2, 9: 3}, 10, 1], p8=[1, 1, {1: 4}, 1, 0])
    right = producers(p7=[3, 8, {5: 2, 8: 2, 10: 5}, 9, 0], p9=[1, 1, {}, 1, 0])
    table = united_of(left, right)
    assert list(table) == [7, 8, 9]
    row = Producers.from_wire(table).rows[7]
    assert (row.epoch, row.low, row.highest, row.last_ms, row.fence_token) == (3, 8, 10, 10, 1)
    assert row.numbers() == [(4, 1), (5, 2), (8, 2), (9, 3), (10, 5)]
    assert united_of(table, table) == table
    many = {producer: [1, 1, 0, [[], [], [0]], 0, 0] for producer in range(9)}
    assert len(united_of(many, {99: many[0]})) == 10


class Cluster:
    """Ranges of producers' tables alone, and what was appended to each key."""

    def __init__(self) -> None:
        self.ranges: list[tuple[int, int, Producers]] = [(0, 8, Producers())]
        self.appended: dict[int, list[int]] = {key: [] for key in range(8)}

    def write(self, batch: Batch) -> bool:
        """Whether all of it is acknowledged; a range that does not have its keys takes nothing."""
        keys = [key[0] for key in batch.keys]
        for start, end, table in self.ranges:
            if start <= min(keys) and max(keys) < end:
                fresh = table.check(batch)
                if isinstance(fresh, LognodeError):
                    return False
                chosen = list(range(batch.count)) if fresh is None else fresh
                numbers = [batch.numbers[at] for at in chosen]
                table.record(batch, numbers, 1 + sum(map(len, self.appended.values())), 1)
                for at in chosen:
                    self.appended[keys[at]].append(batch.numbers[at])
                return True
        return False

    def split(self, key: int) -> None:
        self.ranges = [
            part for start, end, table in self.ranges
            for part in ([(start, key, copied(table)), (key, end, copied(table))]
                         if start < key < end else [(start, end, table)])
        ]  # fmt: skip

    def unite(self, at: int) -> None:
        if at + 1 < len(self.ranges):
            (start, *_), (_, end, _) = self.ranges[at : at + 2]
            tables = [
                Table((bytes([first]), bytes([last])), table.to_wire())
                for first, last, table in self.ranges[at : at + 2]
            ]
            table = dict(united_rows(*tables).rows)
            self.ranges[at : at + 2] = [(start, end, Producers.from_wire(table))]

    def open(self, epoch: int, rng: random.Random) -> None:
        """Raise the epoch range by range, as ranges are split and merged (x27)."""
        fenced = 0
        while behind := [
            table for *_, table in self.ranges if 7 not in table.rows or table.rows[7].epoch < epoch
        ]:
            table = rng.choice(behind)
            assert table.fence(7, epoch, epoch, 1) is None
            fenced += 1
            if fenced < 20 and rng.random() < 0.4:
                self.unite(rng.randrange(4))
                self.split(rng.randrange(1, 8))


def copied(table: Producers) -> Producers:
    row = msgpack.unpackb(msgpack.packb(table.to_wire()), strict_map_key=False)
    return Producers.from_wire(row)


@pytest.mark.parametrize("seed", range(4))
def test_S4_S8_x9_a_record_is_applied_once_and_in_order_whatever_splits_and_merges(
    seed: int,
) -> None:
    """Lost acknowledgements, late duplicates, give-ups, gaps and openings, at random."""
    rng = random.Random(seed)
    for _ in range(250):
        cluster, epoch, number = Cluster(), 1, 0
        open_: dict[int, int] = {}
        """Numbers that are not settled, and their keys."""
        acknowledged: set[int] = set()
        sent: list[Batch] = []
        for _ in range(rng.randrange(10, 60)):
            what = rng.random()
            if what < 0.12:
                cluster.split(rng.randrange(1, 8))
            elif what < 0.3:
                cluster.unite(rng.randrange(4))
            elif what < 0.35:
                epoch += 1
                cluster.open(epoch, rng)
            elif what < 0.4 and open_:
                del open_[rng.choice(list(open_))]
            elif what < 0.55 and sent:
                cluster.write(rng.choice(sent))
            else:
                for _ in range(rng.randrange(4)):
                    number += 1
                    open_[number] = rng.randrange(8)
                start, end, _ = rng.choice(cluster.ranges)
                chosen = [n for n, key in open_.items() if start <= key < end][
                    : rng.randrange(1, 6)
                ]
                if not chosen:
                    continue
                before = [[m for m in open_ if m < n and open_[m] == open_[n]] for n in chosen]
                batch = decode_batch(
                    encode_batch(
                        [bytes([open_[n]]) for n in chosen], [b"v"] * len(chosen), producer=7,
                        epoch=epoch, low=min(open_), numbers=chosen,
                        prevs=[max(each, default=0) for each in before],
                    )
                )  # fmt: skip
                sent.append(batch)
                if rng.random() < 0.8 and cluster.write(batch) and rng.random() < 0.7:
                    acknowledged.update(chosen)
                    for n in chosen:
                        del open_[n]
        for numbers in cluster.appended.values():
            assert numbers == sorted(set(numbers)), "twice, or out of order"
        assert acknowledged <= {n for numbers in cluster.appended.values() for n in numbers}
