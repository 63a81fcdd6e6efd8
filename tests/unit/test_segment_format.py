"""What a segment file consists of: columns, codecs, pieces of the order, and other formats."""

import random
from array import array
from itertools import combinations, pairwise
from pathlib import Path

import lmdb
import numpy as np
import pytest

from lognode.client.protocol.errors import CorruptData
from lognode.client.protocol.records import encode_batch
from lognode.statemachine.block_cache import BlockCache
from lognode.statemachine.merge import merge
from lognode.statemachine.order_output import encode_piece
from lognode.statemachine.segment_block import PLAIN, RAW, WITH_DICTIONARY, Block
from lognode.statemachine.segment_format import BLOCK, FOOTER, ORDER, seal
from lognode.statemachine.segment_order import PIECE, Piece
from lognode.statemachine.segment_reader import Segment
from lognode.statemachine.segment_writer import SegmentInfo, Source, build

Pair = tuple[bytes, bytes | None]


def made(path: Path, pairs: list[Pair], *, first_seq: int = 1, step_ms: int = 1) -> SegmentInfo:
    """A segment of batches of a hundred."""
    sources = []
    for at in range(0, len(pairs), 100):
        part = pairs[at : at + 100]
        data = encode_batch([k for k, _ in part], [v for _, v in part],
                            producer=0, epoch=0, low=0, numbers=1)  # fmt: skip
        sources.append(Source(data, None, 1000 + at * step_ms))
    return build(path, first_seq, sources)


def check(path: Path, expected: dict[int, tuple[bytes, bytes | None, int]]) -> None:
    segment = Segment(path, "x", BlockCache(1 << 24))
    segment.check()
    for seq, (key, value, ms) in expected.items():
        entry = segment.entry_at_seq(seq)
        assert (entry.key, entry.seq, entry.value, entry.timestamp_ms) == (key, seq, value, ms)
        assert [e.seq for e in segment.entries(key, seq, seq + 1)] == [seq]
    segment.close()


def test_seqs_and_timestamps_take_eight_bytes_where_four_are_not_enough(tmp_path: Path) -> None:
    rng = random.Random(1)
    pairs: list[Pair] = [(b"k%d" % rng.randrange(50), rng.randbytes(40)) for _ in range(1000)]
    far = 1 << 40
    one = made(tmp_path / "one", pairs, step_ms=1 << 32)
    two = made(tmp_path / "two", pairs, first_seq=far, step_ms=1 << 33)
    merged = merge(
        tmp_path / "merged", [(tmp_path / "one", one), (tmp_path / "two", two)],
        start=b"", end=None, kept=None,
    )  # fmt: skip
    assert merged is not None
    expected = {}
    for first, step in ((1, 1 << 32), (far, 1 << 33)):
        for at, (key, value) in enumerate(pairs):
            expected[first + at] = (key, value, 1000 + at // 100 * 100 * step)
    assert (merged.min_timestamp_ms, merged.max_timestamp_ms) == (1000, 1000 + 900 * (1 << 33))
    check(tmp_path / "merged", expected)


@pytest.mark.parametrize(
    ("kind", "mode"), [("alike", PLAIN), ("words", WITH_DICTIONARY), ("random", RAW), ("none", RAW)]
)
def test_values_are_compressed_as_a_sample_of_them_says(
    tmp_path: Path, kind: str, mode: int
) -> None:
    rng = random.Random(1)
    words = [rng.randbytes(4).hex().encode() for _ in range(1500)]

    def value() -> bytes | None:
        if kind == "words":
            return b" ".join(rng.choices(words, k=12))
        if kind == "alike":
            return b'{"device":"d%06d","state":"running","ok":true}' % rng.randrange(10**6)
        return rng.randbytes(100) if kind == "random" else None

    pairs = [(b"%08d" % rng.randrange(10**6), value()) for at in range(6000)]
    info = made(tmp_path / "made", pairs)
    raw = sum(len(key) + len(value or b"") for key, value in pairs)
    segment = Segment(tmp_path / "made", "x", BlockCache(1 << 24))
    assert segment.footer.data_bytes == raw
    modes = {segment._part(b"block", at)[4] for at in range(segment.footer.blocks)}
    segment.close()
    assert modes == {mode}
    if kind in ("random", "none"):
        assert info.size < 1.1 * raw + 100_000
    else:
        assert info.size < 0.6 * raw
    check(tmp_path / "made", {
        at: (key, value, 1000 + (at - 1) // 100 * 100) for at, (key, value) in enumerate(pairs, 1)
    })  # fmt: skip


@pytest.mark.parametrize("step", [1, 3, 1 << 30])
def test_a_piece_of_the_order_has_what_was_put_in(step: int) -> None:
    seqs = range(7, 7 + step * PIECE, step)
    ranks = array("I", random.Random(1).sample(range(PIECE), PIECE))
    data = encode_piece(np.array(seqs, np.uint64), np.array(ranks, np.uint32), 3)
    piece = Piece.decode(data, 3)
    assert list(piece.seqs) == list(seqs)
    assert piece.seq_numbers().tolist() == list(seqs)
    assert piece.ranks == ranks
    rng = random.Random(2)
    for _ in range(300):
        broken = bytearray(data)
        broken[rng.randrange(len(broken))] ^= 1 << rng.randrange(8)
        with pytest.raises(CorruptData):
            Piece.decode(bytes(broken[: rng.choice([len(data), rng.randrange(len(data))])]), 3)
    with pytest.raises(CorruptData, match="checksum"):
        Piece.decode(data, 4)


def test_S12_bytes_below_a_right_checksum_are_an_error_or_what_was_put_in(tmp_path: Path) -> None:
    """Not damage of a disk, which the checksum finds: a writer that is wrong, or an attacker."""
    rng = random.Random(1)
    pairs: list[Pair] = [(b"k%d" % rng.randrange(9), rng.randbytes(9) or None) for _ in range(40)]
    made(tmp_path / "made", pairs)
    segment = Segment(tmp_path / "made", "x", BlockCache(1 << 20))
    block, piece = segment._part(b"block", 0)[4:], segment._part(b"order", 0)[4:]
    codec = segment._codec
    segment.close()
    for _ in range(3000):
        for whole, name in ((block, BLOCK), (piece, ORDER)):
            broken = bytearray(whole)
            for _ in range(rng.choice([1, 1, 4])):
                broken[rng.randrange(len(broken))] = rng.randrange(256)
            if rng.random() < 0.2:
                del broken[rng.randrange(len(broken)) :]
            try:
                sealed = seal(bytes(broken), name)
                Block(sealed, codec, 0) if name == BLOCK else Piece.decode(sealed, 0)
            except CorruptData:
                continue


@pytest.mark.parametrize("mode", [PLAIN, WITH_DICTIONARY])
def test_S12_a_block_that_does_not_decompress_leaves_nothing_behind_for_the_next(
    tmp_path: Path, mode: int
) -> None:
    """One decompressor serves all blocks of a segment."""
    rng = random.Random(1)
    words = [rng.randbytes(4).hex().encode() for _ in range(1500)]
    length = 12 if mode == WITH_DICTIONARY else 1200  # long values get no dictionary
    pairs: list[Pair] = [
        (b"%08d" % rng.randrange(10**6), b" ".join(rng.choices(words, k=length)))
        for _ in range(6000 * 12 // length)
    ]
    made(tmp_path / "made", pairs)
    segment = Segment(tmp_path / "made", "x", BlockCache(1 << 20))
    blocks = [segment._part(b"block", at) for at in range(2)]
    codec = segment._codec
    segment.close()
    assert [block[4] for block in blocks] == [mode, mode]
    sound = [Block(block, codec, at) for at, block in enumerate(blocks)]
    refused = 0
    for _ in range(200):
        broken = bytearray(blocks[0][4:])
        broken[rng.randrange(len(broken) // 2, len(broken))] ^= 1 << rng.randrange(8)
        try:
            Block(seal(bytes(broken), BLOCK), codec, 0)
        except CorruptData:
            refused += 1
        again = Block(blocks[1], codec, 1)
        places = range(again.count)
        assert list(map(again.entry, places)) == list(map(sound[1].entry, places))
    assert refused


def test_the_footer_has_the_size_of_each_block(tmp_path: Path) -> None:
    rng = random.Random(3)
    path = tmp_path / "segment"
    made(path, [(b"k%04d" % rng.randrange(900), rng.randbytes(300)) for _ in range(2_000)])
    environment = lmdb.open(str(path), subdir=False, readonly=True, lock=False, max_dbs=8)
    blocks = environment.open_db(BLOCK, integerkey=True, create=False)
    with environment.begin(db=blocks) as transaction, transaction.cursor() as cursor:
        sizes = [len(value) for _, value in cursor]
    environment.close()
    segment = Segment(path, "x", BlockCache(1 << 20))
    assert list(segment.footer.sizes) == sizes
    everything = range(segment.footer.blocks), range(segment.footer.entries)
    assert [size for _, size in segment.stored(*everything)] == sizes
    segment.close()


def test_x8_the_bytes_of_some_ranks_are_those_of_their_blocks_the_ends_in_part(
    tmp_path: Path,
) -> None:
    rng = random.Random(4)
    path = tmp_path / "segment"
    made(path, [(b"k%04d" % rng.randrange(900), rng.randbytes(300)) for _ in range(2_000)])
    segment = Segment(path, "x", BlockCache(1 << 20))
    footer, begins = segment.footer, [*segment.footer.ranks, 2_000]
    assert footer.blocks > 4
    near = sorted({at for begin in begins for at in (begin - 1, begin, begin + 1)})
    spans = [range(low, high) for low, high in combinations(near, 2) if low >= 0 and high <= 2_000]
    assert spans
    for ranks in [*spans, range(0)]:
        inside = [
            len(range(max(low, ranks.start), min(high, ranks.stop)))
            for low, high in pairwise(begins)
        ]
        by_hand = sum(
            size * own // (high - low)
            for size, own, (low, high) in zip(footer.sizes, inside, pairwise(begins), strict=True)
        )
        assert footer.stored_bytes(ranks) == by_hand
        assert sum(size for _, size in segment.stored(footer.blocks_of(ranks), ranks)) == by_hand
    assert footer.stored_bytes(range(2_000)) == sum(footer.sizes)
    segment.close()


def test_a_file_of_format_1_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "old"
    environment = lmdb.open(str(path), subdir=False, max_dbs=4, lock=False, lib_version=0)
    footer = environment.open_db(FOOTER)
    with environment.begin(write=True) as transaction:
        packed = b"\x81\xa7version\x01"  # {"version": 1}
        transaction.put(b"footer", seal(packed, FOOTER), db=footer)
    environment.close()
    with pytest.raises(CorruptData, match="the segment has format 1; this program reads 3"):
        Segment(path, "x", BlockCache(1 << 20))
