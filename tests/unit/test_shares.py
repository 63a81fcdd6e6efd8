"""What a range counts of files that it shares with its neighbours."""

import random

import pytest

from lognode.client.protocol.errors import CorruptData
from lognode.client.protocol.records import encode_batch
from lognode.node.upkeep.retention import holdings
from lognode.statemachine import commands
from lognode.statemachine.clip import clipped
from lognode.statemachine.range_state import RangeState
from lognode.statemachine.segment_format import Footer
from lognode.statemachine.segment_writer import build
from lognode.statemachine.segments import SegmentStore
from lognode.statemachine.shared_files import Share, Shares
from lognode.statemachine.turn_limits import NotPrepared, Turns

SEGMENTS, KEYS = 3, 4_000
SMALL, LARGE = 20, 2_000
"""Bytes of the values of the lower and of the upper half of the keys."""


@pytest.fixture(scope="module")
def parent(tmp_path_factory: pytest.TempPathFactory) -> RangeState:
    """Three segments with all keys in each."""
    root = tmp_path_factory.mktemp("parent")
    (root / "files").mkdir()
    store = SegmentStore(root / "files")
    state = RangeState(start=b"", end=None, store=store)
    rng = random.Random(1)
    index = 2
    for _ in range(SEGMENTS):
        for at in range(0, KEYS, 200):
            keys = [b"%05d" % key for key in range(at, at + 200)]
            size = SMALL if at < KEYS // 2 else LARGE
            data = encode_batch(keys, [rng.randbytes(size) for _ in keys], producer=0, epoch=1,
                                low=1, numbers=1)  # fmt: skip
            state.apply(index, 1, commands.encode(commands.APPEND, 1, [data]))
            index += 1
        frozen = state.freeze()
        assert frozen is not None
        info = build(root / "new", frozen.memtable.first_seq, list(frozen.sources()))
        store.add(root / "new", info.content_id)
        state.flushed(state.base_with(frozen, info))
    return state


def child(parent: RangeState, start: bytes, end: bytes | None) -> RangeState:
    base = clipped(parent.durable_base, start, end)
    return RangeState(start=start, end=end, store=parent.store, base=base)


def measured(state: RangeState) -> RangeState:
    while not state.measure():
        continue
    return state


def test_a_file_that_is_a_ranges_own_is_known_at_once(parent: RangeState) -> None:
    assert parent.segment_bytes == sum(info.size for info in parent.manifest)
    assert parent.entries_held == SEGMENTS * KEYS
    assert parent.measure()


def test_x8_a_share_is_unknown_until_it_was_looked_at_and_then_by_bytes(parent: RangeState) -> None:
    low, high = child(parent, b"", b"02000"), child(parent, b"02000", None)
    for state in (low, high):
        assert (state.segment_bytes, state.entries_held) == (None, None)
        assert [piece.size for each in holdings(state) for piece in each.segments] == [0] * SEGMENTS
        measured(state)
        assert state.entries_held == SEGMENTS * KEYS / 2
        assert sum(p.size for each in holdings(state) for p in each.segments) == state.segment_bytes
    whole = parent.segment_bytes
    assert low.segment_bytes is not None
    assert high.segment_bytes is not None
    assert whole is not None
    assert 0.9 * whole < low.segment_bytes + high.segment_bytes <= whole
    assert 0.005 < low.segment_bytes / whole < 0.03, "half of the entries, a hundredth of the bytes"


@pytest.mark.parametrize(
    "span", [(b"01000", b"01001"), (b"01000x", b"01000y"), (b"03990", None), (b"0", b"00000x")]
)
def test_x8_narrow_spans_count_their_entries_exactly(
    parent: RangeState, span: tuple[bytes, bytes | None]
) -> None:
    state = measured(child(parent, *span))
    keys = [b"%05d" % key for key in range(KEYS)]
    own = [key for key in keys if key >= span[0] and (span[1] is None or key < span[1])]
    assert state.entries_held == SEGMENTS * len(own)
    assert state.segment_bytes is not None
    assert (state.segment_bytes > 0) == bool(own)
    assert state.segment_bytes < SEGMENTS * (len(own) + 1) * 2 * LARGE


def test_each_file_is_looked_at_once_and_forgotten_with_its_manifest(
    parent: RangeState, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = child(parent, b"01000", None)
    assert [state.measure() for _ in range(SEGMENTS + 1)] == [False] * SEGMENTS + [True]
    monkeypatch.setattr(Footer, "stored_bytes", None)
    assert state.measure()
    one = list(state.manifest[:1])
    assert state.shares.look(one, state.store.segment)
    assert state.shares.of(state.manifest[0]) is not None
    assert state.shares.of(state.manifest[1]) is None


def test_x28_a_file_that_is_not_at_hand_or_damaged_leaves_its_share_unknown(
    parent: RangeState,
) -> None:
    state = child(parent, b"01000", None)
    parent.store.close()
    with state.store.on_hand(Turns()), pytest.raises(NotPrepared):
        state.measure()
    shares = Shares(b"5", None)
    info = parent.manifest[0]._replace(content_id="no", max_key=b"7")
    with pytest.raises(CorruptData):
        shares.look([info], state.store.segment)
    assert shares.of(info) is None
    assert shares.of(info._replace(min_key=b"6")) == Share(info.size, info.entries)
    assert measured(state).segment_bytes is not None
