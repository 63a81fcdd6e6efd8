"""Segment files: lookups, bounds, and what happens when their bytes are not those written."""

import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import lmdb
import pytest

from lognode.client.protocol import limits
from lognode.client.protocol.errors import CorruptData, Overloaded
from lognode.client.protocol.records import encode_batch
from lognode.node.directory.disk_room import file_bytes
from lognode.statemachine import bloom, commands, segment_reader
from lognode.statemachine.block_cache import BlockCache, Cached
from lognode.statemachine.bloom_output import build_filter
from lognode.statemachine.key_hashes import hash_keys
from lognode.statemachine.meta import LmdbMeta, MemoryMeta
from lognode.statemachine.range_state import Base, RangeState
from lognode.statemachine.segment_format import BLOCK, ORDINAL, POSITION
from lognode.statemachine.segment_reader import Segment
from lognode.statemachine.segment_writer import SegmentInfo, Source, build
from lognode.statemachine.segments import SegmentStore
from lognode.statemachine.strings import Strings

Pair = tuple[bytes, bytes | None]


def make(
    directory: Path, pairs: list[Pair], *, first_seq: int = 1
) -> tuple[SegmentStore, SegmentInfo]:
    """A store with one segment of these records."""
    files = directory / "files"
    files.mkdir(exist_ok=True)
    sources = [
        Source(
            encode_batch([k for k, _ in part], [v for _, v in part],
                         producer=1, epoch=1, low=1, numbers=1),
            None, 1000 + at,
        )
        for at, part in enumerate(pairs[at : at + 1000] for at in range(0, len(pairs), 1000))
    ]  # fmt: skip
    info = build(directory / "building", first_seq, sources)
    store = SegmentStore(files)
    store.add(directory / "building", info.content_id)
    return store, info


class Decoded(BlockCache):
    """Keeps nothing, and counts what had to be decoded."""

    def __init__(self) -> None:
        super().__init__(0)
        self.decoded = 0

    def put(self, segment: str, part: bytes, ordinal: int, found: Cached) -> None:
        self.decoded += part == BLOCK
        super().put(segment, part, ordinal, found)


HOT = [(b"hot", b"%06d" % at + bytes(500)) for at in range(2000)]
AROUND: list[Pair] = [(b"ab%d" % at, b"x" * 200) for at in range(500)]


@pytest.mark.slow
def test_a_key_of_many_blocks_is_read_from_both_ends_and_counted_at_them(tmp_path: Path) -> None:
    pairs = [*AROUND, *HOT, *((b"z%d" % at, b"y") for at in range(500))]
    store, info = make(tmp_path, pairs)
    cache = Decoded()
    segment = Segment(store.path(info.content_id), info.content_id, cache)
    assert segment.footer.blocks > 30
    first = 501
    lookups: list[tuple[Callable[[], bool], int]] = [
        (lambda: segment.last_seq(b"hot") == first + 1999, 4),
        (lambda: next(segment.entries_reversed(b"hot", 1, None)).seq == first + 1999, 4),
        (lambda: next(segment.entries_reversed(b"hot", 1, 900)).seq == 899, 6),
        (lambda: next(segment.entries(b"hot", 900, None)).seq == 900, 6),
        (lambda: segment.count(b"hot", 1, None) == 2000, 8),
        (lambda: segment.count(b"hot", 700, 1300) == 600, 10),
        (lambda: list(segment.keys_after(b"hot", None)) == [b"hot"], 8),
        (lambda: next(segment.keys_after(b"", b"ab99")) == b"hot", 4),
        (lambda: next(segment.keys_after(b"", b"hot")) == b"z0", 4),
    ]
    for what, blocks in lookups:
        cache.decoded = 0
        assert what()
        assert cache.decoded <= blocks
    rng = random.Random(1)
    for _ in range(300):
        start, end = rng.randrange(0, 3200), rng.choice([None, rng.randrange(0, 3200)])
        expected = [
            s for s in range(first, first + 2000) if s >= start and (end is None or s < end)
        ]
        assert [e.seq for e in segment.entries(b"hot", start, end)] == expected
        assert [e.seq for e in segment.entries_reversed(b"hot", start, end)] == expected[::-1]
        assert segment.count(b"hot", start, end) == len(expected)
    segment.close()


@pytest.mark.by_hand
@pytest.mark.slow
def test_a_read_in_the_order_of_seq_goes_on_when_no_cache_could_hold_its_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found by reading: it decoded the same blocks again and again and never returned an entry."""
    monkeypatch.setattr(limits, "block_cache_bytes_max", 100_000)
    rng = random.Random(1)
    store, info = make(
        tmp_path, [(b"%06d" % rng.randrange(10**6), bytes(300)) for _ in range(5000)]
    )
    assert store.segment(info.content_id).footer.blocks > 2 * segment_reader._BLOCKS_A_STEP
    base = Base(2, 1, [info], {"next_seq": info.end_seq})
    state = RangeState(start=b"", end=None, store=store, base=base)
    at, seqs, pages = 1, [], 0
    while True:
        page = state.read_span(b"", None, at, limit=1000, bytes_max=1 << 20)
        seqs += page.seqs
        at, pages = page.next, pages + 1
        if not page.more:
            break
        assert pages < 5000
    assert seqs == list(range(1, 5001))


def test_no_more_segments_are_open_than_the_store_is_told(tmp_path: Path) -> None:
    files = tmp_path / "files"
    files.mkdir()
    store = SegmentStore(files, open_max=3)
    state = RangeState(start=b"", end=None, store=store)
    infos, seq = [], 1
    for at in range(6):
        data = encode_batch(
            [b"k", b"k%d" % at], [b"%d" % at, b""], producer=1, epoch=1, low=1, numbers=1
        )
        info = build(tmp_path / "building", seq, [Source(data, None, at)])
        store.add(tmp_path / "building", info.content_id)
        infos.append(info)
        seq = info.end_seq
    state = RangeState(start=b"", end=None, store=store, base=Base(9, 1, infos, {"next_seq": seq}))
    # All of them at once: those that are pushed out stay open until the call has ended.
    assert state.keys(limit=9) == [b"k", *(b"k%d" % at for at in range(6))]
    assert state.count(b"k") == 6
    assert [e.value for e in state.scan(b"k", limit=9, bytes_max=1 << 20).entries()] == [
        b"%d" % at for at in range(6)
    ]
    assert state.tail(b"k", 4) == 5
    descriptors = {os.path.realpath(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")}
    assert sum(str(files) in path for path in descriptors) <= 3


def test_a_read_that_needs_too_many_segments_at_once_is_refused(tmp_path: Path) -> None:
    """The descriptors that it would take are those of others."""
    files = tmp_path / "files"
    files.mkdir()
    store = SegmentStore(files, open_max=2)
    infos = []
    for at in range(6):
        data = encode_batch([b"k%d" % at], [b"v"], producer=1, epoch=1, low=1, numbers=1)
        info = build(tmp_path / "building", at + 1, [Source(data, None, at)])
        store.add(tmp_path / "building", info.content_id)
        infos.append(info)
    held = [store.segment(info.content_id) for info in infos[:4]]
    with pytest.raises(Overloaded, match="over 4 segment files at once"):
        store.segment(infos[4].content_id)
    del held
    assert store.segment(infos[4].content_id).last_seq(b"k4") == 5
    store.close()


WITHOUT_DESCRIPTORS = """
import os, resource, sys
from pathlib import Path
from lognode.client.protocol.errors import Overloaded
from lognode.statemachine.strings import Strings
from lognode.statemachine.segments import SegmentStore
from lognode.statemachine.turn_limits import NotPrepared, Place

store, name = SegmentStore(Path(sys.argv[1])), sys.argv[2]
store.doubt([name])
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
hoard = []
try:
    while True:
        hoard.append(os.open("/dev/null", os.O_RDONLY))
except OSError:
    pass
for step in (
    store.verify, lambda name: store.prepare(NotPrepared(name)),
    lambda name: store.prepare(NotPrepared(name, Place(name, 0, 1))), store.segment,
):
    try:
        step(name)
        print("no error")
    except Overloaded as error:
        print("OVERLOADED", "`ulimit -n`" in error.message)
os.close(hoard.pop())
print(store.segment(name).last_seq(b"k"))
"""


def test_a_lack_of_descriptors_is_not_damage(tmp_path: Path) -> None:
    """The file would be fetched again from others, and the replica given up."""
    store, info = make(tmp_path, [(b"k", b"v")])
    store.close()
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_DESCRIPTORS, str(tmp_path / "files"), info.content_id],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [*["OVERLOADED True"] * 4, "1"]


def test_decoded_blocks_are_bounded(tmp_path: Path) -> None:
    store, info = make(tmp_path, [(b"%06d" % at, bytes(300)) for at in range(5000)])
    cache = BlockCache(200_000)
    segment = Segment(store.path(info.content_id), info.content_id, cache)
    for ordinal in range(segment.footer.blocks):
        segment.block(ordinal)
    held = list(cache._blocks.values())
    assert sum(block.size for block in held) == cache.bytes <= 200_000
    segment.close()


def test_keys_beyond_what_lmdb_takes_are_simply_absent(tmp_path: Path) -> None:
    keys = [b"\0" * 480, b"a" * 480, b"b" * 479]
    store, info = make(tmp_path, [(key, b"v") for key in keys])
    state = RangeState(start=b"", end=None, store=store, base=Base(2, 1, [info], {"next_seq": 4}))
    for key in (b"a" * 481, b"a" * 2000, b"b" * 480, b"\0" * 600):
        assert state.last_seq(key) == 0
        assert state.count(key) == 0
        assert state.keys(b"", key, limit=9) == [k for k in keys if k > key]
        assert state.keys(key, limit=9) == []
    assert state.keys(b"a" * 480, limit=9) == [b"a" * 480]


def test_the_bloom_filter_has_no_false_negatives_and_few_false_positives() -> None:
    keys = [b"\0" * n for n in range(1, 481)] + [b"k%d" % n for n in range(5000)]
    table = build_filter(hash_keys(Strings.of(keys)))
    assert len(table) == 65536 // 8
    assert all(bloom.may_contain(table, key) for key in keys)
    hits = sum(bloom.may_contain(table, b"absent%d" % n) for n in range(10_000))
    assert hits < 250
    assert not bloom.may_contain(build_filter(hash_keys(Strings.of([]))), b"x")


# Damage (S12, x28).


def rewrite(path: Path, change: object) -> None:
    """Change a finished file through LMDB: what a lying page would answer."""
    environment = lmdb.open(str(path), subdir=False, max_dbs=4, lock=False, map_size=1 << 28,
                            lib_version=0)  # fmt: skip
    with environment.begin(write=True) as transaction:
        change(environment, transaction)  # type: ignore[operator]
    environment.close()


def right(segment: Segment, key: bytes, seqs: list[int]) -> bool:
    """Whether every read of the key is right; False when one has found damage."""
    reads: list[Callable[[], bool]] = [
        lambda: [entry.seq for entry in segment.entries(key, 1, None)] == seqs,
        lambda: [entry.seq for entry in segment.entries_reversed(key, 1, None)] == seqs[::-1],
        lambda: segment.count(key, 1, None) == len(seqs),
        lambda: segment.last_seq(key) == seqs[-1],
        lambda: next(segment.keys_after(key, None)) == key,
    ]
    sound = True
    for read in reads:
        try:
            assert read(), key
        except CorruptData:
            sound = False
    return sound


@pytest.mark.slow
def test_x28_an_index_that_leads_to_the_wrong_block_is_damage_not_an_absent_key(
    tmp_path: Path,
) -> None:
    pairs: list[Pair] = [(b"key-%05d" % (at // 3), bytes(200)) for at in range(3000)]
    store, info = make(tmp_path, pairs)
    path = store.path(info.content_id)
    whole = path.read_bytes()
    blocks = store.segment(info.content_id).footer.blocks
    store.close()
    expected = {key: [s for s, (k, _) in enumerate(pairs, 1) if k == key] for key, _ in pairs}
    assert blocks > 10
    for shift in (-3, -1, 1, 2, blocks):

        def lie(
            environment: lmdb.Environment, transaction: lmdb.Transaction, by: int = shift
        ) -> None:
            index = environment.open_db(b"index", txn=transaction, dupsort=True)
            rows = list(transaction.cursor(db=index))
            for key, value in rows:
                seq, ordinal = POSITION.unpack(value)
                transaction.delete(key, value, db=index)
                transaction.put(key, POSITION.pack(seq, max(0, ordinal + by)), db=index)

        path.write_bytes(whole)
        rewrite(path, lie)
        segment = Segment(path, info.content_id, BlockCache(1 << 20))
        found = sum(not right(segment, key, seqs) for key, seqs in expected.items())
        segment.close()
        assert found > len(expected) // 2


def test_x28_swapped_and_missing_blocks_are_damage(tmp_path: Path) -> None:
    pairs: list[Pair] = [(b"key-%05d" % at, bytes(100)) for at in range(3000)]
    store, info = make(tmp_path, pairs)
    path = store.path(info.content_id)
    store.close()
    whole = path.read_bytes()

    def swap(environment: lmdb.Environment, transaction: lmdb.Transaction) -> None:
        blocks = environment.open_db(BLOCK, txn=transaction, integerkey=True)
        one, two = (bytes(transaction.get(ORDINAL.pack(n), b"", db=blocks)) for n in (3, 4))
        transaction.put(ORDINAL.pack(3), two, db=blocks)
        transaction.put(ORDINAL.pack(4), one, db=blocks)

    def remove(environment: lmdb.Environment, transaction: lmdb.Transaction) -> None:
        blocks = environment.open_db(BLOCK, txn=transaction, integerkey=True)
        transaction.delete(ORDINAL.pack(3), db=blocks)

    for change in (swap, remove):
        path.write_bytes(whole)
        rewrite(path, change)
        segment = Segment(path, info.content_id, BlockCache(1 << 20))
        with pytest.raises(CorruptData):
            segment.check()
        wrong = 0
        for seq, (key, _) in enumerate(pairs, 1):
            try:
                assert [e.seq for e in segment.entries(key, 1, None)] == [seq]
                assert segment.entry_at_seq(seq).key == key
            except CorruptData:
                wrong += 1
        assert wrong > 100
        segment.close()


def spoil(whole: bytes, rng: random.Random) -> bytes:
    broken = bytearray(whole)
    at, size = rng.randrange(len(broken)), rng.choice([1, 16, 256, 4096])
    kind = rng.choice(["flip", "noise", "zero", "cut", "page"])
    if kind == "flip":
        broken[at] ^= 1 << rng.randrange(8)
    elif kind == "noise":
        broken[at : at + size] = rng.randbytes(len(broken[at : at + size]))
    elif kind == "zero":
        broken[at : at + size] = bytes(len(broken[at : at + size]))
    elif kind == "cut":
        del broken[at:]
    else:
        one, two = (4096 * rng.randrange(len(broken) // 4096) for _ in range(2))
        broken[one : one + 4096] = whole[two : two + 4096]
    return bytes(broken)


def test_S12_x28_a_file_with_any_other_bytes_gives_what_was_written_or_is_damaged(
    tmp_path: Path,
) -> None:
    """The store opens files that it has not hashed: their reader finds what is wrong."""
    pairs: list[Pair] = [(b"key-%05d" % at, b"%d" % at * 20) for at in range(500)]
    store, info = make(tmp_path, pairs)
    path = store.path(info.content_id)
    store.close()
    whole = path.read_bytes()
    found = 0
    for seed in range(300):
        broken = spoil(whole, random.Random(seed))
        path.write_bytes(broken)
        again = SegmentStore(path.parent)
        try:
            segment = again.segment(info.content_id)
            segment.check()
        except CorruptData:
            found += 1
        else:
            entries = [next(segment.entries(key, 1, None)) for key, _ in pairs]
            assert [(entry.key, entry.value) for entry in entries] == pairs
        again.doubt([info.content_id])
        if broken != whole:
            with pytest.raises(CorruptData, match="its SHA-256 is"):
                again.segment(info.content_id)
        again.close()
    assert found > 100
    path.unlink()
    with pytest.raises(CorruptData, match="is missing"):
        SegmentStore(path.parent).segment(info.content_id)


def test_S12_a_block_that_rots_under_an_open_segment_is_found(tmp_path: Path) -> None:
    rng = random.Random(1)
    values = [rng.randbytes(300) for _ in range(600)]
    pairs: list[Pair] = [(b"key-%05d" % at, value) for at, value in enumerate(values)]
    store, info = make(tmp_path, pairs)
    path = store.path(info.content_id)
    whole = path.read_bytes()
    where = [at for at in range(0, len(whole), 997) if _within_a_value(whole, at, values)]
    assert len(where) > 100
    for at in where:
        broken = bytearray(whole)
        broken[at] ^= 1 << rng.randrange(8)
        path.write_bytes(broken)
        segment = Segment(path, info.content_id, BlockCache(1 << 24))
        with pytest.raises(CorruptData):
            segment.check()
        for seq, (key, value) in enumerate(pairs, 1):
            try:
                assert [(e.seq, e.value) for e in segment.entries(key, 1, None)] == [(seq, value)]
            except CorruptData:
                break
        else:
            pytest.fail("no read has found it")
        segment.close()


def _within_a_value(whole: bytes, at: int, values: list[bytes]) -> bool:
    """Incompressible values stand in their blocks as they are."""
    around = whole[max(0, at - 8) : at + 8]
    return any(around in value for value in values)


# Meta rows.


def test_S12_x28_a_meta_row_with_a_flipped_bit_is_an_error(tmp_path: Path) -> None:
    meta = LmdbMeta(tmp_path / "meta.mdb", map_bytes=1 << 22)
    rows = {f"replica/{n:04d}": {"base": {"n": n, "bytes": bytes(50)}} for n in range(20)}
    meta.commit(rows)
    meta.close()
    path = tmp_path / "meta.mdb"
    whole = path.read_bytes()
    found = 0
    for seed in range(300):
        rng = random.Random(seed)
        broken = bytearray(whole)
        at = whole.index(b"replica/%04d" % rng.randrange(20)) + rng.randrange(8, 80)
        broken[at] ^= 1 << rng.randrange(8)
        path.write_bytes(broken)
        meta = LmdbMeta(path, map_bytes=1 << 22)
        try:
            for key, row in meta.items("replica/"):
                assert rows[key] == row, seed
            for key, row in rows.items():
                assert meta.get(key) in (row, None), seed
        except CorruptData:
            found += 1
        meta.close()
    assert found > 250


def test_S12_a_malformed_meta_store_is_named(tmp_path: Path) -> None:
    path = tmp_path / "meta.mdb"
    for content in (b"garbage" * 1000, bytes(8192), b"x"):
        path.write_bytes(content)
        with pytest.raises(CorruptData, match=r"meta\.mdb cannot be opened"):
            LmdbMeta(path, map_bytes=1 << 22)


def test_S12_a_row_copied_to_another_key_is_an_error() -> None:
    meta = MemoryMeta()
    meta.commit({"replica/1": 1, "replica/2": 2})
    meta._rows["replica/2"] = meta._rows["replica/1"]
    with pytest.raises(CorruptData, match="replica/2"):
        meta.get("replica/2")


@pytest.mark.parametrize("seed", range(3))
def test_S12_a_malformed_base_is_an_error(seed: int) -> None:
    rng = random.Random(seed)
    info = SegmentInfo("ab", 1, 1, 1, 2, b"a", b"b", 1, 1)
    wire = Base(5, 2, [info], {"next_seq": 9}).to_wire()
    assert Base.from_wire(wire).to_wire() == wire
    for _ in range(300):
        broken = dict(wire)
        broken[rng.choice(list(wire))] = rng.choice(
            [None, 5, "x", [], [1], [[1]], {}, [[1] * 9], [None, None, None], [1, 2, 3]]
        )
        if rng.random() < 0.3:
            broken.pop(rng.choice(list(wire)))
        try:
            base = Base.from_wire(broken)
        except CorruptData:
            continue
        assert type(base.applied_index) is int
        assert type(base.applied_term) is int
        assert type(base.tables) is dict
        assert all(part == info for part in base.manifest)
    for name in ("../x", "", "a/b", "ä"):
        with pytest.raises(CorruptData):
            Base.from_wire({**wire, "manifest": [list(info._replace(content_id=name))]})


def test_the_same_records_make_the_same_file(tmp_path: Path) -> None:
    """Nothing of the builder's memory is in it, and replicas can compare what they built."""
    rng = random.Random(1)
    pairs: list[Pair] = [(b"%03d" % rng.randrange(300), rng.randbytes(200)) for _ in range(2000)]
    _, first = make(tmp_path, pairs)
    clutter = [rng.randbytes(40_000) for _ in range(300)]
    del clutter
    _, second = make(tmp_path, pairs)
    assert first == second


def test_records_larger_than_a_block_have_one_of_their_own(tmp_path: Path) -> None:
    rng = random.Random(1)
    big = [rng.randbytes(limits.segment_block_bytes * 2) for _ in range(3)]
    pairs: list[Pair] = [(b"a", b"1"), *((b"b", value) for value in big), (b"c", b"2")]
    store, info = make(tmp_path, pairs)
    segment = store.segment(info.content_id)
    assert [entry.value for entry in segment.entries(b"b", 1, None)] == big
    assert (segment.footer.blocks, segment.footer.keys, segment.footer.entries) == (5, 3, 5)
    segment.check()


@pytest.mark.parametrize(
    "size", [10, 600, 2_100, 4_097, 8_200, 10_930, 12_300, 16_350, 16_384, 17_000, 33_000, 100_000]
)
def test_S1_a_file_is_at_most_a_quarter_larger_than_its_entries(tmp_path: Path, size: int) -> None:
    """A disk filled while a segment of 16 KiB values was built, which had room by their bytes."""
    count = min(20_000, (2 << 20) // size)
    pairs: list[Pair] = [(b"%09d" % at, os.urandom(size)) for at in range(count)]
    store, info = make(tmp_path, pairs)
    entries = count * (9 + size)
    needed = store.path(info.content_id).stat().st_size
    assert needed <= file_bytes(entries) + 20 * 4_096, f"{needed / entries:.2f} of its entries"


@pytest.mark.parametrize("flushed", [False, True])
def test_keys_by_prefix_and_after_in_memory_and_in_a_segment(tmp_path: Path, flushed: bool) -> None:
    keys = [b"a", b"a\0", b"ab", b"ab\xff", b"b", b"c"]
    store, info = make(tmp_path, [(key, b"v") for key in reversed(keys)])
    state = RangeState(start=b"", end=None, store=store)
    if flushed:
        base = Base(2, 1, [info], {"next_seq": 7})
        state = RangeState(start=b"", end=None, store=store, base=base)
    else:
        data = encode_batch(keys[::-1], [b"v"] * 6, producer=0, epoch=1, low=1, numbers=1)
        state.apply(2, 1, commands.encode(commands.APPEND, 1, [data]))
    for prefix in (b"", b"a", b"ab", b"b", b"d", b"\0"):
        for after in (None, b"", b"\0", b"a", b"aa", b"ab", b"bz", b"z"):
            wanted = [k for k in keys if k.startswith(prefix) and (after is None or k > after)]
            assert state.keys(prefix, after, limit=9) == wanted, (prefix, after)
