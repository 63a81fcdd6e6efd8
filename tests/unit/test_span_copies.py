"""Copies of spans of segments: the same entries as block by block, in bounded memory and turns."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from lineages import Lineages, as_objects

from lognode.client.protocol import limits
from lognode.client.protocol.errors import CorruptData
from lognode.client.protocol.records import encode_batch
from lognode.client.protocol.types import Entry, Headers
from lognode.statemachine import commands, span_copies, turn_limits
from lognode.statemachine.page import Page
from lognode.statemachine.range_state import RangeState
from lognode.statemachine.segment_order import PIECE, Piece
from lognode.statemachine.segment_reader import Segment
from lognode.statemachine.span_copies import SpanCopies, _Copy
from lognode.statemachine.turn_limits import NotPrepared, TurnOver, Turns

MANY = 2 * PIECE + 1_000
"""Entries of a segment: three pieces of the order of seq."""
SPANS: list[tuple[bytes, bytes | None]] = [
    (b"", None), (b"key 2", b"key 5"), (b"key 3", b"key 3\0"), (b"m", None), (b"key 9", None),
]  # fmt: skip


def fill(log: Lineages, seed: int, *, value_bytes: int = 90, marked: bool = False) -> None:
    """Append entries of many keys in any order."""
    rng = random.Random(seed)
    (state,) = log.ranges
    for begin in range(0, MANY, 500):
        count = min(500, MANY - begin)
        keys = [b"key %d" % rng.randrange(10_000) for _ in range(count)]
        values = [
            None if rng.random() < 0.1 else rng.randbytes(rng.randrange(value_bytes))
            for _ in range(count)
        ]
        headers: list[Headers | None] | None = None
        if marked:
            headers = [{b"h": b"%d" % n} if rng.random() < 0.2 else None for n in range(count)]
        data = encode_batch(
            keys, values, producer=0, epoch=1, low=1, numbers=1, headers=headers,
            snapshots=[3, 70] if marked else [],
        )  # fmt: skip
        reply = log.do(state, commands.APPEND, [data], 1_000 + begin // 1_500)
        assert reply["status"] == "ok"
    log.flush(state)


@pytest.fixture(autouse=True, params=["sorted", "by pieces"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Copies of few entries are sorted; others are read by the segment's own order."""
    monkeypatch.setattr(span_copies, "_SORTED_MAX", MANY if request.param == "sorted" else 0)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Lineages]:
    made = Lineages(tmp_path / "log")
    yield made
    made.close()


def in_turns(state: RangeState, turns: Turns, *ask: Any, **how: Any) -> tuple[Page, int]:
    """Read a page as a node does; return the page, and how many turns it took."""
    for count in range(1, 10_000):
        try:
            with state.store.on_hand(turns):
                return state.read_span(*ask, **how), count
        except TurnOver:
            continue
        except NotPrepared as missing:
            prepared = state.store.prepare(missing, turns)
            if prepared is not None:
                state.store.admit(prepared)
    raise AssertionError("the read never ends")


def walk(
    state: RangeState, span: tuple[bytes, bytes | None], *, columns: bool, limit: int = 5_000,
    bytes_max: int = limits.MIB, start: int = 1, end_seq: int | None = None,
) -> list[Entry]:  # fmt: skip
    """All entries of a span, as a consumer reads them."""
    found: list[Entry] = []
    more = True
    while more:
        page, _ = in_turns(
            state, Turns(), *span, start, end_seq, limit=limit, bytes_max=bytes_max, columns=columns
        )
        assert page.size <= bytes_max or page.count == 1
        assert page.count <= limit
        found += as_objects(page) if columns else page.entries()
        start, more = page.next, page.more
        state.store.copies.note(state.within(*span)[0], page.reached)
    return found


@pytest.mark.parametrize("marked", [False, True])
def test_a_copy_has_the_entries_of_the_blocks(log: Lineages, marked: bool) -> None:
    fill(log, 1, marked=marked)
    (state,) = log.ranges
    for span in SPANS:
        expected = walk(state, span, columns=False)
        assert walk(state, span, columns=True) == expected
        assert [entry for entry in expected if entry.seq >= 9_000] == walk(
            state, span, columns=True, start=9_000
        )
        for most in (7, 300, 40_000):
            assert walk(state, span, columns=True, bytes_max=most, start=17_000) == [
                entry for entry in expected if entry.seq >= 17_000
            ]
        assert walk(state, span, columns=True, end_seq=8_200, limit=999) == [
            entry for entry in expected if entry.seq < 8_200
        ]
    assert state.store.copies.bytes > 0


def test_entries_behind_a_trim_come_from_a_copy(log: Lineages) -> None:
    fill(log, 2)
    (state,) = log.ranges
    assert log.do(state, commands.TRIM_SPANS, [[b"", None, 700]])["status"] == "ok"
    assert walk(state, (b"", None), columns=True) == walk(state, (b"", None), columns=False)
    assert state.store.copies.bytes > 0


def test_a_trim_of_other_keys_does_not_stand_in_the_way_of_a_copy(log: Lineages) -> None:
    fill(log, 2)
    (state,) = log.ranges
    trims = [[b"key 2", b"key 3", 9_000], [b"key 6", None, 9_000]]
    assert log.do(state, commands.TRIM_SPANS, trims)["status"] == "ok"
    page, _ = in_turns(
        state, Turns(), b"key 5", b"key 6", 1, limit=5_000, bytes_max=limits.MIB, columns=True
    )
    assert page.chunks
    for start, end in ((b"key 5", b"key 6"), (b"key 2", b"key 6"), (b"key 5", None)):
        assert walk(state, (start, end), columns=True) == walk(state, (start, end), columns=False)


def test_a_key_that_was_trimmed_stays_hidden(log: Lineages) -> None:
    fill(log, 3)
    (state,) = log.ranges
    assert log.do(state, commands.TRIM_KEYS, [[b"key 5", 1 << 40]])["status"] == "ok"
    found = walk(state, (b"", None), columns=True)
    assert found == walk(state, (b"", None), columns=False)
    assert all(entry.key != b"key 5" for entry in found)


def test_a_large_span_is_copied_for_a_reader_that_goes_on(log: Lineages) -> None:
    fill(log, 4, value_bytes=300)
    (state,) = log.ranges
    copies = state.store.copies
    page = state.read_span(b"", None, 1, limit=50, bytes_max=1 << 20, columns=True)
    assert copies.bytes == 0
    assert not page.chunks
    copies.note(b"", page.reached)
    page = state.read_span(b"", None, page.next, limit=50, bytes_max=1 << 20, columns=True)
    assert copies.bytes > limits.MIB
    assert page.chunks


def test_a_page_that_needs_all_blocks_comes_from_a_copy(log: Lineages) -> None:
    fill(log, 4, value_bytes=300)
    (state,) = log.ranges
    page = state.read_span(b"", None, 1, limit=5_000, bytes_max=1 << 20, columns=True)
    assert page.chunks


@pytest.mark.parametrize("a_turn", [48 * limits.KIB, 100_000, limits.MIB])
def test_a_copy_is_made_and_read_in_turns(
    log: Lineages, monkeypatch: pytest.MonkeyPatch, a_turn: int
) -> None:
    monkeypatch.setattr(turn_limits, "_BYTES_A_TURN", a_turn)
    fill(log, 5, value_bytes=600)
    (state,) = log.ranges
    state.store.copies.note(b"", 1)
    _, count = in_turns(state, Turns(), b"", None, 1, limit=50, bytes_max=1 << 20, columns=True)
    assert count >= 4
    for most in (100_000, limits.MIB, limits.page_bytes_max):
        for start in (1, PIECE - 20, PIECE - 200):
            found = walk(state, (b"", None), columns=True, bytes_max=most, start=start)
            assert [entry.seq for entry in found] == list(range(start, MANY + 1))


def test_a_copy_of_few_entries_needs_no_piece_of_the_order(
    log: Lineages, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(span_copies, "_SORTED_MAX", MANY // 4)
    fill(log, 5)
    (state,) = log.ranges
    expected = walk(state, (b"key 2", b"key 4"), columns=False)
    assert 1_000 < len(expected) <= MANY // 4
    state.store.copies = SpanCopies()
    reads: list[int] = []
    piece = Segment.piece

    def noted(own: Segment, ordinal: int) -> Piece:
        reads.append(ordinal)
        return piece(own, ordinal)

    monkeypatch.setattr(Segment, "piece", noted)
    assert walk(state, (b"key 2", b"key 4"), columns=True) == expected
    assert not reads
    assert len(walk(state, (b"key 2", None), columns=True)) > MANY // 4
    assert set(reads) == {0, 1, 2}, "a larger copy is not sorted"


def test_copies_have_bounded_memory(log: Lineages, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(log, 6)
    (state,) = log.ranges
    whole = span_copies._size(state.store.segment(state.manifest[0].content_id), range(MANY))
    copies = state.store.copies = SpanCopies(whole + 1_000)
    monkeypatch.setattr(span_copies, "_SMALL_BYTES", whole)

    def is_copied(start: bytes, end: bytes | None, seq: int) -> bool:
        page = state.read_span(start, end, seq, limit=10, bytes_max=1 << 20, columns=True)
        assert copies.bytes <= whole + 1_000
        return bool(page.chunks)

    assert is_copied(b"", None, 1)
    assert not is_copied(b"key 2", None, 1), "another reader's copy has gone"
    for _ in range(span_copies._UNUSED + 1):
        assert not is_copied(b"key 2", None, 1) or copies.bytes < whole
    assert is_copied(b"key 2", None, 1)
    assert not is_copied(b"", None, 1)
    assert len(walk(state, (b"key 2", None), columns=True)) > 0  # to the end
    assert is_copied(b"", None, 1)


def test_a_copy_that_grows_beyond_the_bound_is_given_up(
    log: Lineages, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(log, 7)
    (state,) = log.ranges
    monkeypatch.setattr(span_copies, "_size", lambda *_: 1)
    copies = state.store.copies = SpanCopies(100_000)
    page = state.read_span(b"", None, 1, limit=10, bytes_max=1 << 20, columns=True)
    assert len(page.seqs) == 10
    assert copies.bytes == 0
    monkeypatch.setattr(_Copy, "step", None)  # no second attempt at once
    page = state.read_span(b"", None, 11, limit=10, bytes_max=1 << 20, columns=True)
    assert len(page.seqs) == 10


def test_an_order_that_leads_to_other_entries_is_damage(
    log: Lineages, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(span_copies, "_SORTED_MAX", 0)
    fill(log, 8)
    (state,) = log.ranges
    state.read_span(b"", None, 1, limit=10, bytes_max=1 << 20, columns=True)
    segment = state.store.segment(state.manifest[0].content_id)
    piece = segment.piece(0)
    piece.ranks[0], piece.ranks[1] = piece.ranks[1], piece.ranks[0]
    with pytest.raises(CorruptData):
        state.read_span(b"", None, 1, limit=10, bytes_max=1 << 20, columns=True)


def fill_alike(log: Lineages, value: bytes | None, headers: Headers | None = None) -> RangeState:
    """Append entries whose values compress well, and return the range."""
    (state,) = log.ranges
    for begin in range(0, MANY, 1_000):
        keys = [b"key %d" % n for n in range(begin, begin + 1_000)]
        data = encode_batch(
            keys, [value] * 1_000, producer=0, epoch=1, low=1, numbers=1,
            headers=[headers] * 1_000 if headers else None,
        )  # fmt: skip
        assert log.do(state, commands.APPEND, [data], 1_000)["status"] == "ok"
    log.flush(state)
    return state


@pytest.mark.parametrize(
    ("value", "headers", "least"),
    [(None, None, 4), (b"v" * 100, None, 5), (b"v" * 20, {b"a": b"b" * 20, b"c": b""}, 9)],
)
def test_entries_that_compress_well_count_for_a_turn(
    log: Lineages, value: bytes | None, headers: Headers | None, least: int
) -> None:
    state = fill_alike(log, value, headers)
    state.store.copies.note(b"", 1)
    _, count = in_turns(state, Turns(), b"", None, 1, limit=50, bytes_max=1 << 20, columns=True)
    assert count >= least


def test_headers_of_a_dropped_copy_are_freed_in_turns(
    log: Lineages, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = fill_alike(log, b"v", {b"a": b"b"})
    copies = state.store.copies
    state.read_span(b"", None, 1, limit=5_000, bytes_max=1 << 20, columns=True)
    (name,) = copies._copies
    headers = copies._copies[name].headers
    before = len(headers)
    monkeypatch.setattr(span_copies, "_FREED", 5_000)
    monkeypatch.setattr(span_copies, "_SMALL_BYTES", 0)
    copies._drop(name)
    for freed in range(5_000, before, 5_000):
        assert copies.bytes > 0
        state.read_span(b"", None, 1, limit=5, bytes_max=1 << 20, columns=True)
        assert len(headers) == before - freed
    state.read_span(b"", None, 1, limit=5, bytes_max=1 << 20, columns=True)
    assert not headers
    assert copies.bytes == 0


def parts(state: RangeState, limit: int, bytes_max: int, first: int) -> tuple[Page, int]:
    """Read a page part by part, as a node does; return the page and the number of parts."""
    page = Page(next=first, limit=limit, bytes_max=bytes_max)
    for count in range(1, 33):
        page.extend(
            state.read_span(
                b"", None, page.next, limit=page.entries_left, bytes_max=page.bytes_left,
                begun=page.begun, columns=True,
            )
        )  # fmt: skip
        if page.full or not page.more:
            return page, count
    raise AssertionError("the page does not end")


def test_a_page_from_a_copy_ends_where_an_entry_has_no_room(log: Lineages) -> None:
    fill(log, 9)
    (state,) = log.ranges
    for most in (7, 40_000, 300_000):
        state.store.copies.note(b"", 1)
        page, count = parts(state, 20_000, most, 1)
        assert page.chunks
        assert count <= 2


def test_the_largest_entries_do_not_end_a_page(log: Lineages) -> None:
    (state,) = log.ranges
    for n in range(5):
        data = encode_batch(
            [b"key %d" % n], [b"%d" % n * limits.value_bytes_max],
            producer=0, epoch=1, low=1, numbers=1,
        )  # fmt: skip
        assert log.do(state, commands.APPEND, [data], 1_000)["status"] == "ok"
    log.flush(state)
    state.store.copies.note(b"", 1)
    page, count = parts(state, 20_000, limits.page_bytes_max, 1)
    assert len(page.chunks) == page.count == 3
    assert count <= 4
