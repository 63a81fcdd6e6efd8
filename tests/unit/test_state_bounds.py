"""What a range keeps in memory, and what it does with entries that nobody should have proposed."""

import gc
import random
import time
import tracemalloc
from pathlib import Path
from typing import Any

import msgpack
import pytest

from lognode.client.protocol import limits
from lognode.client.protocol.records import decode_batch, encode_batch
from lognode.statemachine import builder as builder_module
from lognode.statemachine import commands, rules
from lognode.statemachine.builder import Builder
from lognode.statemachine.column_cache import ColumnCache
from lognode.statemachine.late_numbers import LateNumbers
from lognode.statemachine.producer_row import SETTLED_KEPT, Row
from lognode.statemachine.producers import Producers
from lognode.statemachine.range_state import RangeState
from lognode.statemachine.segments import SegmentStore
from lognode.statemachine.unknown import UnknownCommandError


def state_in(directory: Path) -> RangeState:
    (directory / "files").mkdir(exist_ok=True)
    return RangeState(start=b"", end=None, store=SegmentStore(directory / "files"))


def append(*batches: bytes, ms: int = 1) -> bytes:
    return commands.encode(commands.APPEND, ms, batches)


def applied_of(row: Row) -> dict[int, int]:
    """What the row has applied itself, by number."""
    return dict((*row.applied, *row.late))


# Memory.


@pytest.mark.slow
@pytest.mark.parametrize(
    ("keys", "key_bytes", "value_bytes", "batch"),
    [(10**6, 16, 128, 1000), (50, 16, 128, 1000), (10**6, 400, 10, 500), (10**6, 12, 4000, 100),
     (10**6, 16, 0, 3000), (10**6, 24, 60, 1)],
)  # fmt: skip
def test_a_memtable_knows_its_memory_to_a_fifth(
    tmp_path: Path, keys: int, key_bytes: int, value_bytes: int, batch: int
) -> None:
    rng = random.Random(1)
    # The library packs batches of one slowly while memory is traced; a quarter of them is enough.
    records = min(40_000 if batch > 1 else 10_000, 8_000_000 // (key_bytes + value_bytes))
    entries = []
    for _ in range(records // batch):
        names = [b"%0*d" % (key_bytes, rng.randrange(keys)) for _ in range(batch)]
        entries.append(append(encode_batch(names, [rng.randbytes(value_bytes) for _ in names],
                                           producer=0, epoch=1, low=1, numbers=1)))  # fmt: skip
    state = state_in(tmp_path)
    gc.collect()
    tracemalloc.start()
    for index, entry in enumerate(entries, 2):
        state.apply(index, 1, entry)
    gc.collect()
    real, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert 0.8 < state.memtable_bytes / real < 1.2, (state.memtable_bytes, real)


def test_a_memtable_is_full_by_what_it_holds_or_by_what_it_unpacks_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "memtable_bytes_max", 500_000)
    monkeypatch.setattr(limits, "segment_unpacked_bytes_max", 2_000_000)
    noise = random.Random(1).randbytes(1000)
    for value, records in ((noise, 500), (bytes(1000), 2000)):
        state = state_in(tmp_path)
        applied = 0
        while not state.memtable_full:
            values = [value] * 10
            data = encode_batch([b"%d" % n for n in range(10)], values, producer=0, epoch=1, low=1,
                                numbers=1, compress=value is not noise)  # fmt: skip
            state.apply(applied + 2, 1, append(data))
            applied += 1
        assert 0.8 * records < 10 * applied < 1.2 * records


def test_decoded_batches_of_a_memtable_are_bounded(tmp_path: Path) -> None:
    state = state_in(tmp_path)
    state.store.columns = cache = ColumnCache(100_000)
    state.memtable._cache = cache
    for number in range(100):
        data = encode_batch([b"k%d" % number] * 50, [bytes(100)] * 50, producer=0, epoch=1, low=1,
                            numbers=1)  # fmt: skip
        state.apply(number + 2, 1, append(data))
    for number in range(100):
        assert state.count(b"k%d" % number) == 50
        assert len(state.scan(b"k%d" % number, limit=99, bytes_max=1 << 20)) == 50
    assert cache.bytes <= 100_000
    assert cache.bytes == sum(columns.size for columns in cache._columns.values())


def test_settled_numbers_of_a_producer_are_forgotten(tmp_path: Path) -> None:
    state = state_in(tmp_path)
    for at in range(200):
        number = 1 + at * 100
        data = encode_batch([b"k"] * 100, [b"v"] * 100, producer=7, epoch=1,
                            low=max(1, number - 500), numbers=number)  # fmt: skip
        (reply,) = state.apply(at + 2, 1, append(data)).replies or ()
        assert reply["status"] == "ok"
        row = state.producers.rows[7]
        assert row.count <= 2 * 600 + 64
        assert set(range(row.low, row.highest + 1)) <= applied_of(row).keys()
    # One that has nothing on its way is hardly anything.
    data = encode_batch([b"k"], [b"v"], producer=7, epoch=1, low=20_001, numbers=20_001)
    state.apply(202, 1, append(data))
    assert state.producers.rows[7].count <= 66


def test_a_range_remembers_no_numbers_for_the_sake_of_other_ranges(tmp_path: Path) -> None:
    """Numbers run over all ranges of a log: of 64 each sees one in 64 of what is on its way."""
    state = state_in(tmp_path)
    for at in range(400):
        numbers = [1 + (at * 10 + n) * 64 for n in range(10)]
        low = max(1, numbers[0] - 64_000)
        data = encode_batch([b"k"] * 10, [b"v"] * 10, producer=7, epoch=1, low=low, numbers=numbers)
        state.apply(at + 2, 1, append(data))
    row = state.producers.rows[7]
    unsettled = [number for number in applied_of(row) if number >= row.low]
    assert len(unsettled) == 1_000 + 10
    assert row.count <= 2 * len(unsettled) + 64


def test_S8_numbers_that_come_late_are_known_and_forgotten_as_others(tmp_path: Path) -> None:
    state = state_in(tmp_path)
    index = 2

    def applied(numbers: list[int], low: int = 1) -> Any:
        nonlocal index
        data = encode_batch([b"k"] * len(numbers), [b"v"] * len(numbers), producer=7, epoch=1,
                            low=low, numbers=numbers)  # fmt: skip
        (reply,) = state.apply(index, 1, append(data)).replies or ()
        index += 1
        return reply

    assert applied([300, 400])["first_seq"] == 1
    assert applied([100, 200, 350])["first_seq"] == 3
    assert applied([100, 200, 300, 350, 400])["seqs"] == [3, 4, 1, 5, 2]
    row = state.producers.rows[7]
    assert [dict(row.applied), dict(row.late)] == [{300: 1, 400: 2}, {100: 3, 200: 4, 350: 5}]
    again = Row.from_wire(row.to_wire())
    assert again.numbers() == row.numbers() == sorted(applied_of(row).items())
    applied([*range(500, 600)], low=400)
    assert applied([*range(600, 700)], low=600)["first_seq"] == 106
    assert min(applied_of(row)) == 600, "all below low went at once"


def test_X1_late_numbers_are_added_without_a_look_at_the_others() -> None:
    """256 records of one request, numbered backwards, stopped all members for seven seconds."""
    row = Row()
    row.add(range(10_001, 110_001), 1)
    began = time.thread_time()
    for at, number in enumerate(range(10_000, 0, -1)):
        row.add([number], 100_001 + at)
        assert row.seq_of(number) == 100_001 + at
    assert time.thread_time() - began < 0.5
    assert [number for number, _ in row.numbers()] == list(range(1, 110_001))
    row.settle(100_001)
    assert min(applied_of(row)) == 100_001
    assert row.count == len(applied_of(row)) == 10_000


def crowded(taken: int, bits: int, highest: int) -> tuple[list[int], list[int]]:
    """Numbers that fill consecutive places of the way that CPython takes through a table of 2^bits
    places from 0 on, and numbers above whose first tries all fall on these places."""
    mask, place = (1 << bits) - 1, 0
    base = [place := (place * 5 + 1) & mask for _ in range(taken)]
    places, others = frozenset(base), []
    for number in range(mask + 1, highest):
        tries, place = number, number & mask
        while place in places and tries:
            tries >>= 5
            place = (place * 5 + tries + 1) & mask
        if place in places:
            others.append(number)
    return sorted(base), others


@pytest.mark.slow
def test_X1_numbers_that_a_client_chose_are_found_as_fast_as_others() -> None:
    """8,000 records that were sent again took 1.5 s of every member, each time."""
    base, others = crowded(110_000, 18, limits.producer_window_max)
    plain = dict.fromkeys(base, 1)
    began = time.thread_time()
    plain.update(dict.fromkeys(others, 1))
    unbounded_s = time.thread_time() - began
    row, took_s = Row(), list[float]()
    row.add(base, 1)
    for step in (
        lambda: row.add(others, 200_000),
        lambda: [row.seq_of(number) for number in others],
        lambda: row.to_wire(),
        lambda: row.settle(others[-1] + 1),
    ):
        began = time.thread_time()
        step()
        took_s.append(time.thread_time() - began)
    assert len(others) > 5_000
    assert max(took_s) < unbounded_s / 3, (took_s, unbounded_s)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_S8_a_row_remembers_the_same_however_numbers_come(seed: int) -> None:
    """Members of all versions forget at the same entry, since the hash of effects has the count."""
    rng = random.Random(seed)
    row, kept, used, low, seq = Row(), dict[int, int](), set[int](), 1, 1
    for _ in range(300):
        top = low + 5_000
        some = {rng.randrange(low, top) for _ in range(rng.choice((1, 3, 60, 400)))}
        fresh = sorted(some - used)
        if rng.random() < 0.7:  # as nearly always: all higher than before
            fresh = [number for number in fresh if number > row.highest]
        if fresh:
            row.add(fresh, seq)
            used.update(fresh)
            kept.update(zip(fresh, range(seq, seq + len(fresh)), strict=True))
            seq += len(fresh)
        low += rng.choice((0, 0, 1, 500))
        row.settle(low)
        if 2 * sum(number < low for number in kept) > len(kept) + SETTLED_KEPT:
            kept = {number: at for number, at in kept.items() if number >= low}
        if rng.random() < 0.02:
            row = Row.from_wire(row.to_wire())
        if rng.random() < 0.1:
            copy, row = row, row.copy()
            number = max(row.highest, low) + 1
            row.add([number], seq)
            kept[number] = seq
            used.add(number)
            seq += 1
            assert number not in dict(copy.numbers()), "a copy changes with its row"
        assert row.numbers() == sorted(kept.items())
        assert row.count == len(kept)
        for number in range(low - 9, low + 99):
            assert row.seq_of(number) == kept.get(number)


def test_X1_a_batch_looks_its_numbers_up_and_goes_through_no_others() -> None:
    """A record that named its predecessor went through all numbers that its producer had not
    settled, half a million, on every member; and each batch through all that had come late."""
    table, window = Producers(), 500_000
    row = table.rows[7] = Row(epoch=1)
    row.add(range(1_000_000, 1_000_000 + window), 1)  # of them, and of 60,000 late ones, all stay
    row.add(range(900_001, 960_001), window + 1)
    row.settle(900_001)
    assert len(row.late) == 60_000
    began = time.thread_time()
    for at in range(1_000):
        number = 1_000_000 + window + at
        data = encode_batch([b"k"], [b"v"], producer=7, epoch=1, low=900_001 + at, numbers=number,
                            prevs=[number - 1])  # fmt: skip
        batch = decode_batch(data)._replace(low=number - limits.producer_window_max + 1)
        assert table.check(batch) is None
        table.record(batch, [number], number, 1)
    assert time.thread_time() - began < 0.5
    assert len(row.late) == 60_000


@pytest.mark.parametrize("seed", range(20))
def test_late_numbers_are_counted_as_one_by_one(seed: int) -> None:
    rng = random.Random(seed)
    late, plain, low = LateNumbers(), set[int](), 1
    for _ in range(200):
        for number in {rng.randrange(low, low + 20_000) for _ in range(rng.randrange(50))} - plain:
            late.add([number], number + 7)
            plain.add(number)
        low += rng.choice((0, 1, 100, 3_000, 30_000))
        assert late.below(low) == sum(number < low for number in plain)
        assert list(late) == [(number, number + 7) for number in sorted(plain)]
        assert len(late) == len(plain)
        assert all(late.get(number) == number + 7 for number in plain)
        if rng.random() < 0.1:
            late.settle(low)
            plain = {number for number in plain if number >= low}
            assert list(map(late.get, range(low - 9, low))) == [None] * 9


@pytest.mark.parametrize("seed", range(8))
def test_the_remembered_numbers_are_those_of_the_rows(seed: int) -> None:
    """Also of rows that came with a base, whose numbers are in runs, and of late numbers."""
    rng, table = random.Random(seed), Producers()
    highest, seq, forgot = [0, 0, 0], 1, 0
    for turn in range(300):
        at = rng.randrange(3)
        count = rng.choice((1, 13, 70))
        numbers = list(range(highest[at] + 1, highest[at] + 1 + 2 * count))
        highest[at] = numbers[-1]
        low = max(1, highest[at] - rng.choice((0, 40, 300, 2_000)))
        for some in (numbers[1::2], [n for n in numbers[::2] if n >= low]):
            if not some:
                continue
            data = encode_batch([b"k"] * len(some), [b"v"] * len(some), producer=at + 1, epoch=1,
                                low=low, numbers=some)  # fmt: skip
            before = table.remembered
            table.record(decode_batch(data), some, seq, 1)
            seq += len(some)
            forgot += table.remembered < before + len(some)
            assert table.remembered == sum(row.count for row in table.rows.values())
        if turn % 50 == 49:
            table = Producers.from_wire(table.to_wire())
    assert forgot > 10


def test_X1_producers_that_settle_nothing_are_bounded_and_others_go_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Each id remembered half a million numbers, 75 MiB on every member, and ids cost nothing."""
    monkeypatch.setitem(
        rules.BY_LEVEL, 1, rules.BY_LEVEL[1]._replace(remembered_numbers_max=10_000)
    )
    state, index, last = state_in(tmp_path), 2, dict[int, int]()

    def append_some(producer: int, count: int, low: int = 1, first: int | None = None) -> Any:
        nonlocal index
        begin = last.get(producer, 0) + 1 if first is None else first
        numbers = list(range(begin, begin + count))
        data = encode_batch([b"k"] * count, [b"v"] * count, producer=producer, epoch=1, low=low,
                            numbers=numbers)  # fmt: skip
        (reply,) = state.apply(index, 1, append(data)).replies or ()
        index += 1
        if reply["status"] == "ok":
            last[producer] = max(last.get(producer, 0), numbers[-1])
        return reply

    while (reply := append_some(1, 500))["status"] == "ok":
        assert last[1] < 12_000
    assert reply["error"]["code"] == "OVERLOADED"
    assert append_some(1, 500, first=1)["seqs"] == list(range(1, 501)), "a retry is still known"
    for producer in range(2, 30):
        assert append_some(producer, 60)["status"] == "ok", "others go on"
    table = state.producers
    assert table.remembered == sum(row.count for row in table.rows.values())
    assert type(table).from_wire(table.to_wire()).remembered == table.remembered
    assert append_some(2, 1, low=61)["status"] == "ok"
    table.retire([1])
    assert table.remembered == sum(row.count for row in table.rows.values())
    assert append_some(3, 500)["status"] == "ok"


def test_frozen_tables_are_not_a_view_of_the_live_ones_x16(tmp_path: Path) -> None:
    state = state_in(tmp_path)
    for number in (1, 2):
        data = encode_batch([b"k"], [b"v"], producer=7, epoch=1, low=1, numbers=number)
        state.apply(number + 1, 1, append(data))
        if number == 1:
            frozen = state.freeze()
    assert frozen is not None
    assert frozen.tables["next_seq"] == 2
    frozen.producers.finish()
    assert frozen.tables["producers"][7][3] == [[1], [1], [0, 1]]


def test_the_builder_takes_a_bounded_multiple_of_what_it_builds(tmp_path: Path) -> None:
    rng = random.Random(1)
    state = state_in(tmp_path)
    for index in range(2, 42):
        keys = [b"%016d" % rng.randrange(10**6) for _ in range(1000)]
        data = encode_batch(keys, [rng.randbytes(128) for _ in keys], producer=0, epoch=1, low=1,
                            numbers=1)  # fmt: skip
        state.apply(index, 1, append(data))
    frozen = state.freeze()
    assert frozen is not None
    builder = Builder()
    info = builder.build(tmp_path / "built", 1, frozen.sources())
    process = builder._process
    assert process is not None
    status = Path(f"/proc/{process.pid}/status").read_text()
    peak = next(int(line.split()[1]) << 10 for line in status.splitlines() if "VmHWM" in line)
    builder.stop()
    assert info.entries == 40_000
    assert peak < (64 << 20) + 6 * frozen.memtable.unpacked_bytes


# Entries that no leader should have proposed (x22).


def test_x22_a_batch_that_no_segment_could_hold_is_refused(tmp_path: Path) -> None:
    state = state_in(tmp_path)
    bad = [
        encode_batch([], [], producer=1, epoch=1, low=1, numbers=1),
        encode_batch([b""], [b"v"], producer=1, epoch=1, low=1, numbers=1),
        encode_batch([b"k", b"x" * 481], [b"v", b"v"], producer=1, epoch=1, low=1, numbers=1),
    ]
    replies = state.apply(2, 1, append(*bad)).replies or ()
    assert [reply["error"]["code"] for reply in replies] == ["CORRUPT_DATA"] * 3
    assert (state.next_seq, state.producers.rows) == (1, {})


@pytest.mark.parametrize("seed", range(4))
def test_x22_x2_22_no_entry_stops_a_replica_and_all_do_the_same(tmp_path: Path, seed: int) -> None:
    """But at an entry that a newer program may have proposed all stop, with nothing changed."""

    def applied(state: RangeState, index: int, entry: bytes) -> Any:
        try:
            return state.apply(index, 1, entry).replies
        except UnknownCommandError as error:
            found = str(error)
        command = commands.decode(entry)
        assert command is not None
        assert command.kind > max(commands.KINDS)
        assert state.applied_index == index - 1
        return found

    rng = random.Random(seed)
    states = [state_in(tmp_path), state_in(tmp_path)]
    good = encode_batch([b"a", b"b"], [b"1", None], producer=3, epoch=1, low=1, numbers=1)
    fields: list[Any] = msgpack.unpackb(good)
    odd: list[Any] = [
        None,
        -1,
        0,
        1,
        1 << 63,
        "x",
        b"x",
        [],
        [1],
        [b"k"],
        {},
        2.5,
        True,
        [0, 0],
        [2, 1],
    ]
    for _ in range(400):
        kind = rng.randrange(4)
        if kind == 0:
            payload = list(fields)
            payload[rng.randrange(14)] = rng.choice(odd)
            entry = append(msgpack.packb(payload))
        elif kind == 1:
            entry = b"\0" + msgpack.packb(
                (rng.choice([*range(7), -1]), rng.choice([1, 5]), rng.choice(odd))
            )
        elif kind == 2:
            entry = b"\0" + msgpack.packb([rng.choice(odd) for _ in range(rng.randrange(5))])
        else:
            broken = bytearray(append(good))
            broken[rng.randrange(1, len(broken))] ^= 1 << rng.randrange(8)
            entry = bytes(broken)
        index = states[0].applied_index + 1
        replies = [applied(state, index, entry) for state in states]
        assert replies[0] == replies[1]
        if states[0].sealed:
            states = [state_in(tmp_path), state_in(tmp_path)]
    assert states[0].state_hash == states[1].state_hash
    assert states[0].effects.to_wire() == states[1].effects.to_wire()
    assert states[0].producers.to_wire() == states[1].producers.to_wire()


@pytest.mark.parametrize(("batch", "size"), [(1, 20), (7, 100), (2, 300_000)])
def test_a_frozen_memtable_is_packed_for_the_builder_in_bounded_portions(
    tmp_path: Path, batch: int, size: int
) -> None:
    """Packed one by one, or all at once, they would keep the loop from running."""
    state = state_in(tmp_path)
    rng = random.Random(2)
    for index in range(2, 14 if size > 10_000 else 1_500):
        keys = [b"%06d" % rng.randrange(10**6) for _ in range(batch)]
        data = encode_batch(keys, [rng.randbytes(size) for _ in keys], producer=3, epoch=1, low=1,
                            numbers=1 + batch * (index - index % 3))  # fmt: skip
        state.apply(index, 1, append(data))
    frozen = state.freeze()
    assert frozen is not None
    sources = frozen.sources()
    portions = list(builder_module._portions(sources))
    assert [source for some in portions for source in some] == list(sources)
    assert sum(len(source.selected or range(batch)) for source in sources) == len(frozen.memtable)
    for some in portions:
        assert len(some) <= builder_module._PORTION_SOURCES
        held = sum(len(source.data) for source in some)
        assert held <= builder_module._PORTION_BYTES or len(some) == 1
    assert len(portions) <= 4 + len(sources) // 500 + (12 if size > 10_000 else 0)


def test_a_memtable_is_freed_in_steps_without_the_garbage_collector(
    tmp_path: Path,
) -> None:
    state = state_in(tmp_path)
    gc.collect()
    before = len(gc.get_objects())
    for index in range(2, 3_002):
        data = encode_batch([b"%06d" % index], [b"v"], producer=0, epoch=1, low=1, numbers=1)
        state.apply(index, 1, append(data))
    gc.collect()
    assert len(gc.get_objects()) - before < 200
    memtable = state.memtable
    assert len(state.keys(limit=10_000)) == 3_000
    steps = 1
    while memtable.shrink(500):
        steps += 1
    assert steps == 6
    assert memtable.batch_count == 0
