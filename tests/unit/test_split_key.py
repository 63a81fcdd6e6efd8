"""The key that halves the bytes of a range."""

import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from prepared import make_ready

from lognode.client.protocol import limits
from lognode.client.protocol.records import encode_batch
from lognode.statemachine import commands, split_key
from lognode.statemachine.block_cache import BlockCache
from lognode.statemachine.clip import clipped
from lognode.statemachine.range_state import RangeState
from lognode.statemachine.segment_writer import build
from lognode.statemachine.segments import SegmentStore
from lognode.statemachine.split_key import SplitKey
from lognode.statemachine.turn_limits import NotPrepared, TurnOver, Turns

Rows = list[tuple[bytes, int]]
"""Keys, and the bytes of the values."""


class Range:
    """A range that is flushed in this thread."""

    def __init__(self, root: Path) -> None:
        (root / "files").mkdir(parents=True)
        self.root = root
        self.store = SegmentStore(root / "files")
        self.state = RangeState(start=b"", end=None, store=self.store)
        self.rng = random.Random(1)
        self.rows: Rows = []

    def append(self, rows: Rows, *, flush: bool = True) -> None:
        count = 5 if any(size > 1_000 for _, size in rows) else 1_000  # a batch is a MiB at most
        for at in range(0, len(rows), count):
            some = rows[at : at + count]
            values = [self.rng.randbytes(size) for _, size in some]
            data = encode_batch([key for key, _ in some], values, producer=0, epoch=1, low=1,
                                numbers=1)  # fmt: skip
            index = self.state.applied_index + 1
            command = commands.encode(commands.APPEND, 1, [data])
            (reply,) = self.state.apply(index, 1, command).replies or ()
            assert reply["status"] == "ok"
        self.rows += rows
        if flush:
            frozen = self.state.freeze()
            assert frozen is not None
            path = self.root / "new"
            info = build(path, frozen.memtable.first_seq, list(frozen.sources()))
            self.store.add(path, info.content_id)
            self.state.flushed(self.state.base_with(frozen, info))

    def clip(self, start: bytes, end: bytes | None) -> None:
        base = clipped(self.state.durable_base, start, end)
        self.state = RangeState(start=start, end=end, store=self.store, base=base)
        self.rows = [row for row in self.rows if row[0] >= start and (not end or row[0] < end)]

    def share(self, key: bytes) -> float:
        """Of all bytes those below a key."""
        below = sum(len(k) + size for k, size in self.rows if k < key)
        return below / sum(len(k) + size for k, size in self.rows)


@pytest.fixture
def range_(tmp_path: Path) -> Range:
    return Range(tmp_path)


def found(state: RangeState) -> bytes | None:
    search = SplitKey(state)
    while not search.step():
        continue
    return search.key


def names(first: int, end: int, size: int) -> Rows:
    return [(b"k%05d" % at, size) for at in range(first, end)]


@pytest.mark.slow
@pytest.mark.parametrize("flush", [False, True])
@pytest.mark.parametrize(
    ("rows", "least", "most"),
    [
        (names(0, 5_000, 200), 0.47, 0.53),
        (names(0, 5_000, 20) + names(5_000, 6_000, 1_000), 0.45, 0.55),
        (names(0, 40, 30_000) + names(40, 6_000, 20), 0.45, 0.55),
        (names(0, 9, 10), 0.3, 0.7),
        (names(0, 2, 10), 0.5, 0.5),
        ([(b"a", 10), (b"b", 10_000)], 0.0, 0.01),
        ([(b"a", 10_000), (b"b", 10)], 0.99, 1.0),
        ([(b"a", 100_000)] * 30 + names(0, 3_000, 100), 0.9, 0.93),
        ([(b"z", 100_000)] * 30 + names(0, 3_000, 100), 0.07, 0.1),
        ([(b"k01500", 100_000)] * 30 + names(0, 3_000, 100), 0.03, 0.97),
    ],
)
def test_a_key_is_found_with_half_of_the_bytes_below_it(
    range_: Range, rows: Rows, least: float, most: float, flush: bool
) -> None:
    range_.append(rows, flush=flush)
    key = found(range_.state)
    assert key is not None
    assert min(rows)[0] < key <= max(rows)[0]
    if flush or len(rows) <= split_key._SAMPLES:
        assert least <= range_.share(key) <= most


@pytest.mark.parametrize("flush", [False, True])
@pytest.mark.parametrize(
    "rows", [[], [(b"a", 5)], [(b"a", 50_000)] * 40, [(b"\xff" * limits.key_bytes_max, 5)] * 2]
)
def test_one_key_alone_is_not_split(range_: Range, rows: Rows, flush: bool) -> None:
    range_.append(rows, flush=flush and bool(rows))
    assert found(range_.state) is None


def test_a_key_of_the_greatest_length_is_split_from_what_follows_it(range_: Range) -> None:
    longest = b"a" * limits.key_bytes_max
    range_.append([(longest, 10_000), (b"b", 10)])
    key = found(range_.state)
    assert key is not None
    assert longest < key <= b"b"
    assert len(key) <= limits.key_bytes_max


def test_x8_a_shared_segment_weighs_as_much_as_it_has_of_the_range(range_: Range) -> None:
    range_.append(names(0, 6_000, 300))
    range_.append(names(3_000, 4_000, 600))
    range_.append(names(0, 6_000, 30))
    for span in ((b"k02000", b"k05000"), (b"k03000", b"k04000"), (b"k03500", b"k03510"),
                 (b"k03504", b"k03506")):  # fmt: skip
        range_.clip(*span)
        key = found(range_.state)
        assert key is not None
        assert span[0] < key < span[1]
        assert 0.4 <= range_.share(key) <= 0.6, span
    range_.clip(b"k03504", b"k03505")
    assert found(range_.state) is None
    range_.clip(b"k03504", b"k03504\0")
    assert found(range_.state) is None


@pytest.mark.parametrize("blocks", [0, 16])
def test_x8_blocks_at_the_ends_of_a_span_weigh_what_they_have_of_it(
    range_: Range, monkeypatch: pytest.MonkeyPatch, blocks: int
) -> None:
    monkeypatch.setattr(split_key, "_DECODED_BLOCKS", blocks)
    range_.append([(b"%06d" % at, 3_000) for at in range(300)])
    range_.clip(b"000105", b"000125")
    search = SplitKey(range_.state)
    while not search.step():
        continue
    (info,) = range_.state.manifest
    assert 0.85 <= sum(size for _, size, _ in search._weights) / (info.size / 300 * 20) <= 1.1


def test_memory_is_bounded_by_parts_not_by_blocks(
    range_: Range, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(split_key, "_PARTS", 100)
    range_.append([(b"%06d" % at, 400) for at in range(60_000)])
    (info,) = range_.state.manifest
    blocks = range_.store.segment(info.content_id).footer.blocks
    assert blocks > 600
    search = SplitKey(range_.state)
    steps, most = 1, 0
    while not search.step():
        steps += 1
        most = max(most, len(search._weights))
    assert most <= 2 * split_key._PARTS + 50
    assert steps <= 2 + blocks / split_key._BLOCKS_A_STEP + 1
    assert search.key is not None
    assert 0.47 <= range_.share(search.key) <= 0.53


def test_a_cold_search_takes_turns_and_begins_again_when_the_files_change(range_: Range) -> None:
    for part in range(6):
        range_.append(names(1_000 * part, 1_000 * part + 1_000, 400))
    expected = found(range_.state)
    state, store = range_.state, range_.store
    store.close()
    store._verified.clear()
    store._blocks = BlockCache(1)
    search, over, asked = SplitKey(state), 0, []
    done, turns = False, Turns()
    while not done:
        try:
            with store.on_hand(turns):
                done = search.step()
                turns = Turns()
        except NotPrepared as missing:
            asked.append(missing.content_id)
            make_ready(store, missing, turns)
        except TurnOver:
            over += 1
    assert sorted(asked) == sorted(info.content_id for info in state.manifest)
    assert search.key == expected
    search = SplitKey(state)
    for _ in range(5):
        search.step()
    range_.append([(b"a", 9_000)] * 2_000)
    while not search.step():
        continue
    assert search.key == found(state) == b"a\0"


def test_a_layout_says_where_the_bytes_are(range_: Range) -> None:
    range_.append(names(0, 5_000, 20) + names(5_000, 6_000, 1_000))
    range_.append(names(2_000, 2_100, 400), flush=False)
    search = SplitKey(range_.state)
    while not search.step():
        continue
    rows = search.layout(b"", None)
    assert [key for key, _ in rows] == sorted(key for key, _ in rows)
    assert 20 <= len(rows) <= 2 * split_key._SHOWN_PARTS
    whole = sum(size for _, size in rows)
    assert 0.8 <= whole / search.size <= 1
    for key in (b"k02500", b"k05000", b"k05500"):
        below = sum(size for at, size in rows if at < key) / whole
        assert abs(below - range_.share(key)) < 0.05
    some = search.layout(b"k05000", b"k05500")
    assert all(b"k05000" <= key < b"k05500" for key, _ in some)
    assert 0.35 <= sum(size for _, size in some) / whole <= 0.5
    assert search.layout(b"x", None) == []


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    parts=st.lists(
        st.lists(
            st.tuples(
                st.sampled_from([b"a", b"a\0", b"ab", b"b", b"c", b"\xff" * 480])
                | st.binary(min_size=1, max_size=2),
                st.sampled_from([0, 1, 100, 40_000]),
            ),
            min_size=1, max_size=30,
        ),
        min_size=1, max_size=3,
    ),
    bounds=st.tuples(st.binary(max_size=2), st.none() | st.binary(min_size=1, max_size=2)),
    flushed=st.integers(0, 3),
)  # fmt: skip
def test_there_are_entries_on_both_sides(
    tmp_path_factory: pytest.TempPathFactory,
    parts: list[Rows],
    bounds: tuple[bytes, bytes | None],
    flushed: int,
) -> None:
    range_ = Range(tmp_path_factory.mktemp("range"))
    start, end = bounds
    if end is not None and start >= end:
        start = b""
    for rows in parts[:flushed]:
        range_.append(rows)
    range_.clip(start, end)
    for rows in parts[flushed:]:
        own = [row for row in rows if row[0] >= start and (not end or row[0] < end)]
        range_.append(own, flush=False)
    keys = {key for key, _ in range_.rows}
    key = found(range_.state)
    assert (key is None) == (len(keys) < 2)
    if key is not None:
        assert start < key
        assert end is None or key < end
        assert min(keys) < key <= max(keys)
