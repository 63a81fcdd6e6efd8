"""Blocks are laid out alike with the compiled module and without, and no column is believed."""

import os
import random
import zlib
from itertools import pairwise
from pathlib import Path
from typing import Any

import google_crc32c
import msgpack
import numpy as np
import pytest

from lognode.client.protocol.chunks import ABSENT
from lognode.client.protocol.errors import CorruptData
from lognode.client.protocol.records import encode_batch
from lognode.statemachine import block_layout, key_hashes, key_order, packed_strings, strings
from lognode.statemachine.block_layout import ALL_BYTES, ENTRY_BYTES, Laid, Layout, _window_end
from lognode.statemachine.compiled import building
from lognode.statemachine.key_hashes import hash_keys
from lognode.statemachine.merge import merge
from lognode.statemachine.scattered import PLACE_BITS, Scattered, joined
from lognode.statemachine.segment_writer import Source, build
from lognode.statemachine.strings import Strings

needs_building = pytest.mark.skipif(building is None, reason="no compiled module is installed")
COLUMNS = ("order", "fresh", "key_data", "key_lengths", "buffers", "places", "lengths", "seqs",
           "timestamps", "absent", "more")  # fmt: skip
MIB = 1 << 20


def test_the_module_is_compiled_where_it_is_tested() -> None:
    wanted = os.environ.get("CI") == "true" and not os.environ.get("LOGNODE_PURE")
    assert not wanted or building is not None


def columns(rng: random.Random) -> dict[str, Any]:
    """The arguments of a `Layout`: some entries, of which an order takes a part."""
    count = rng.choice((1, 2, 3, 40, 400))
    sizes: tuple[int, ...] = tuple(rng.choices((0, 9, 300, 5_000), k=rng.randrange(1, 5)))
    buffers = tuple(map(rng.randbytes, sizes))
    places, lengths = [], []
    longest = rng.choice((0, 1, 16, 900))
    for _ in range(count):
        number = rng.randrange(len(buffers))
        begin = rng.randint(0, len(buffers[number]))
        places.append(number << PLACE_BITS | begin)
        lengths.append(min(rng.randint(0, longest), len(buffers[number]) - begin))
    order = rng.sample(range(count), rng.randint(1, count))
    often = rng.choice((0.0, 0.1, 0.7, 1.0))
    fresh = [at == 0 or rng.random() < often for at in range(len(order))]
    sizes = rng.choice(((1,), (16,), (0, 1, 2, 255, 256, 480)))
    keys = [rng.randbytes(rng.choice(sizes)) for _ in range(sum(fresh))]
    absent = more = None
    if rng.random() < 0.5:
        absent = np.array([rng.random() < 0.3 for _ in range(count)])
        lengths = [0 if gone else size for gone, size in zip(absent, lengths, strict=True)]
    if rng.random() < 0.3:
        more = np.array(rng.choices((0, 0, 7, 2_000), k=count))
    codes = rng.choice("IQ"), rng.choice("IQ")
    numbers = [np.array([rng.randrange(1 << 8 * np.dtype(code).itemsize) for _ in range(count)],
                        np.dtype(code)) for code in codes]  # fmt: skip
    return {
        "order": np.array(order), "fresh": np.array(fresh), "key_data": memoryview(b"".join(keys)),
        "key_lengths": np.array(list(map(len, keys)), np.uint16), "buffers": buffers,
        "places": np.array(places), "lengths": np.array(lengths, np.int64), "seqs": numbers[0],
        "timestamps": numbers[1], "absent": absent, "more": more,
    }  # fmt: skip


def laid(layout: Any, sizes: list[int], *, last: bool) -> list[Laid]:
    found = []
    for size in sizes:
        block = layout.take(size, last)
        if block is None:
            break
        found.append(Laid._make(block))
    rest = layout.take(ALL_BYTES, True)
    return [*found, *([] if rest is None else [Laid._make(rest)])]


def by_hand(given: dict[str, Any], sizes: list[int]) -> list[Laid]:
    """What the docstrings say, entry by entry."""
    ends = np.cumsum([0, *given["key_lengths"].tolist()]).tolist()
    keys = [bytes(given["key_data"][a:b]) for a, b in pairwise(ends)]
    key_of = (np.cumsum(given["fresh"]) - 1).tolist()
    order = given["order"].tolist()
    value_of = Scattered(given["buffers"], given["places"], given["lengths"])
    found: list[Laid] = []
    begin = 0
    for bytes_max in [*sizes, ALL_BYTES]:
        end, size = begin, 0
        while end < len(order):
            at = order[end]
            own = len(keys[key_of[end]]) + ENTRY_BYTES + len(value_of[at])
            own += 0 if given["more"] is None else given["more"].item(at)
            if end > begin and size + own > bytes_max:
                break
            end, size = end + 1, size + own
        if begin == end:
            break
        places, owners = order[begin:end], key_of[begin:end]
        some = keys[owners[0] : owners[-1] + 1]
        head = b"".join(len(key).to_bytes(2, "little") for key in some)
        if len(some) < len(places):
            for at in range(owners[0], owners[-1] + 1):
                head += owners.count(at).to_bytes(4, "little")
        for name in ("seqs", "timestamps"):
            head += b"".join(given[name][at].tobytes() for at in places)
        for at in places:
            gone = given["absent"] is not None and given["absent"][at]
            head += (ABSENT if gone else len(value_of[at])).to_bytes(4, "little")
        found.append(
            Laid(
                end, end - begin, owners[-1] + 1, len(some), sum(map(len, some)), size, some[0],
                given["seqs"].item(places[0]), keys[key_of[end]] if end < len(order) else None,
                head + b"".join(some), b"".join(value_of[at] for at in places),
            )
        )  # fmt: skip
        begin = end
    return found


@pytest.mark.parametrize("seed", range(150))
def test_blocks_are_the_same_compiled_and_in_python(seed: int) -> None:
    rng = random.Random(seed)
    given = columns(rng)
    sizes = rng.choices((0, 1, 60, 700, 9_000), k=600)
    expected = by_hand(given, sizes)
    assert laid(Layout(**given), sizes, last=True) == expected
    if building is not None:
        assert laid(building.Layout(*map(given.get, COLUMNS)), sizes, last=True) == expected


@pytest.mark.parametrize("seed", range(40))
def test_entries_that_may_grow_into_a_block_are_left(seed: int) -> None:
    rng = random.Random(seed)
    given = columns(rng)
    sizes = rng.choices((60, 700, 9_000), k=600)
    whole = by_hand(given, sizes)
    for kind in (Layout, None if building is None else building.Layout):
        if kind is not None:
            layout = kind(*map(given.get, COLUMNS))
            found = laid(layout, sizes, last=False)
            assert found == whole, "the last block is what is left"
            assert layout.take(ALL_BYTES, True) is None
            layout = kind(*map(given.get, COLUMNS))
            assert layout.take(ALL_BYTES, False) is None
            assert layout.take(ALL_BYTES, False) is None
            assert Laid._make(layout.take(ALL_BYTES, True)).entries == len(given["order"])


def test_values_are_copied_in_windows_of_bounded_size(monkeypatch: pytest.MonkeyPatch) -> None:
    for lengths, expected in (
        ([10] * 40_000, 16_384), ([5 * MIB, 3 * MIB, 1], 2), ([9 * MIB, 1], 0), ([7, 0], 2),
    ):  # fmt: skip
        assert _window_end(np.cumsum([0, *lengths]), 0) == expected
    monkeypatch.setattr(block_layout, "_WINDOW", 3)
    monkeypatch.setattr(block_layout, "_WINDOW_BYTES", 400)
    for seed in range(30):
        given = columns(random.Random(seed))
        sizes = random.Random(seed).choices((1, 60, 700), k=600)
        assert laid(Layout(**given), sizes, last=True) == by_hand(given, sizes)


@needs_building
@pytest.mark.parametrize(
    ("name", "at", "number"),
    [("order", 1, -1), ("order", 1, 3), ("order", 1, 1 << 62), ("places", 0, -1),
     ("places", 0, 2 << PLACE_BITS), ("places", 0, 5), ("places", 0, 1 << 62), ("lengths", 0, -1),
     ("lengths", 0, 6), ("lengths", 0, 1 << 62), ("lengths", 0, -(1 << 63)), ("more", 0, -1),
     ("more", 0, 1 << 62)],
)  # fmt: skip
def test_nothing_outside_of_the_buffers_is_read(name: str, at: int, number: int) -> None:
    given: dict[str, Any] = {
        "order": np.array([2, 0, 1]), "fresh": np.array([True, False, True]), "key_data": b"kl",
        "key_lengths": np.array([1, 1], np.uint16), "buffers": (b"value", b"other"),
        "places": np.array([0, 1 << PLACE_BITS, 2]), "lengths": np.array([5, 5, 1]),
        "seqs": np.array([1, 2, 3], np.uint32), "timestamps": np.array([4, 5, 6], np.uint64),
        "absent": None, "more": np.array([0, 0, 0]),
    }  # fmt: skip
    layout = building.Layout(*map(given.get, COLUMNS))
    assert Laid._make(layout.take(ALL_BYTES, True)).values == b"lvalueother"
    given[name][at] = number
    layout = building.Layout(*map(given.get, COLUMNS))
    with pytest.raises(ValueError, match="outside"):
        layout.take(ALL_BYTES, True)


@needs_building
def test_columns_that_do_not_fit_each_other_are_refused() -> None:
    given = columns(random.Random(5))
    assert len(given["order"]) > 2
    for name in COLUMNS:
        broken = dict(given)
        if name == "buffers":
            for other in ([b""], (bytearray(),), None):
                with pytest.raises(TypeError):
                    building.Layout(*map({**given, name: other}.get, COLUMNS))
            continue
        if given[name] is None:
            broken[name] = np.zeros(1, np.uint8)
        else:
            broken[name] = given[name][:-1]
        with pytest.raises(ValueError, match="fit"):
            building.Layout(*map(broken.get, COLUMNS))
    with pytest.raises(ValueError, match="fit"):
        building.Layout(*map({**given, "fresh": ~given["fresh"]}.get, COLUMNS))
    with pytest.raises(TypeError):
        building.Layout()
    with pytest.raises(TypeError):
        building.Layout(**given)
    layout = building.Layout(*map(given.get, COLUMNS))
    for wrong in ((), (1,), ("1", True), (1.5, True)):
        with pytest.raises(TypeError):
            layout.take(*wrong)
    with pytest.raises(OverflowError):
        layout.take(1 << 80, True)


@needs_building
@pytest.mark.parametrize("seed", range(60))
def test_changed_columns_are_refused_or_laid_out_within_their_buffers(seed: int) -> None:
    """Whatever changes between two blocks, as when a writer of columns is wrong."""
    rng = random.Random(seed)
    given = columns(rng)
    names = [name for name in COLUMNS if isinstance(given[name], np.ndarray)]
    for _ in range(60):
        broken = {name: given[name].copy() if name in names else given[name] for name in COLUMNS}
        layout = building.Layout(*map(broken.get, COLUMNS))
        for _ in range(8):
            column = broken[rng.choice(names)].view(np.uint8)
            column[rng.randrange(len(column))] = rng.choice((0, 1, 2, 127, 128, 255))
            try:
                block = layout.take(rng.choice((1, 90, 2_000)), rng.random() < 0.5)
            except ValueError:
                continue
            if block is not None:
                made = Laid._make(block)
                assert made.end <= len(given["order"])
                assert len(made.values) <= made.size


def test_strings_stay_in_their_buffers() -> None:
    one = Scattered((b"abc", b"de"), np.array([1, 1 << PLACE_BITS]), np.array([2, 1]))
    two = Scattered.side_by_side(b"xyz", np.array([1, 0, 2]))
    both = joined([one, two, one.slice(1, 2)])
    assert [both[at] for at in range(len(both))] == [b"bc", b"d", b"x", b"", b"yz", b"d"]
    assert list(both.together()) == [b"bc", b"d", b"x", b"", b"yz", b"d"]
    assert list(both.chosen(np.array([4, 0])).together()) == [b"yz", b"bc"]
    assert both.buffers == (b"abc", b"de", b"xyz", b"abc", b"de")


@needs_building
@pytest.mark.parametrize("seed", range(20))
def test_keys_are_hashed_the_same(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(seed)
    longest = rng.choice((0, 1, 16, 31, 32, 480))
    keys = [rng.randbytes(rng.choice((longest, rng.randint(0, longest)))) for _ in range(90)]
    expected = [google_crc32c.value(key) | zlib.crc32(key) << 32 for key in keys]
    assert hash_keys(Strings.of(keys)).tolist() == expected
    monkeypatch.setattr(key_hashes, "building", None)
    monkeypatch.setattr(key_hashes, "_STEP", 7)
    assert hash_keys(Strings.of(keys)).tolist() == expected


@needs_building
@pytest.mark.parametrize(
    ("start", "length"), [(-1, 1), (0, -1), (3, 2), (5, 0), (0, 3), (1 << 62, 1), (1, 1 << 62)]
)
def test_a_key_outside_of_its_buffer_or_the_tables_is_not_hashed(start: int, length: int) -> None:
    tables = key_hashes._tables_up_to(2)
    assert len(building.hash_keys(bytes(4), np.array([2]), np.array([2]), *tables)) == 8
    with pytest.raises(ValueError, match="outside"):
        building.hash_keys(bytes(4), np.array([start]), np.array([length]), *tables)
    with pytest.raises(ValueError, match="outside"):
        building.hash_keys(bytes(4), np.array([0]), np.array([1]), tables[0], tables[1][:2])


@needs_building
@pytest.mark.parametrize(
    ("start", "length"), [(-1, 1), (0, -1), (3, 2), (5, 0), (1 << 62, 1), (0, 1 << 62)]
)
def test_no_key_outside_of_the_buffer_is_sorted(start: int, length: int) -> None:
    order, fresh = building.sort_keys(b"abcd", np.array([1, 0]), np.array([3, 4]))
    assert np.frombuffer(order, np.int64).tolist() == [1, 0]
    assert fresh == b"\1\1"
    with pytest.raises(ValueError, match="outside"):
        building.sort_keys(b"abcd", np.array([0, start]), np.array([1, length]))
    with pytest.raises(ValueError, match="outside"):
        building.sort_keys(b"abcd", np.array([0, 1]), np.array([1]))


def batches(rng: random.Random) -> list[Source]:
    """Batches of all shapes: keys and values of any length, headers, marks, chosen records."""
    made = []
    lengths = rng.choice(((16,), (1, 2, 3), (0, 1, 7, 255, 256, 3_000), (70_000, 5)))
    key_lengths = rng.choices((1, 8, 16, 17, 300, 480), k=rng.choice((1, 9, 400)))
    pool = list(map(rng.randbytes, key_lengths))
    for at in range(rng.randrange(1, 7)):
        count = rng.choice((1, 2, 15, 16) if max(lengths) > 3_000 else (1, 2, 15, 16, 300))
        texts = map(rng.randbytes, rng.choices(lengths, k=count))
        values = [None if rng.random() < 0.1 else text * rng.choice((1, 1, 2)) for text in texts]
        data = encode_batch(
            rng.choices(pool, k=count), values, producer=1, epoch=1, low=1, numbers=1,
            headers=[{b"h": rng.randbytes(rng.randrange(99))} if rng.random() < 0.2 else None
                     for _ in range(count)] if rng.random() < 0.3 else None,
            snapshots=sorted({0, count - 1}) if rng.random() < 0.3 else None,
            compress=rng.random() < 0.5,
        )  # fmt: skip
        chosen = None if rng.random() < 0.7 else sorted(rng.sample(range(count), count // 2 + 1))
        made.append(Source(data, chosen, 1_000 + at * rng.choice((1, 1 << 33))))
    return made


def in_python(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(block_layout, "building", None)
    patch.setattr(key_hashes, "building", None)
    patch.setattr(key_order, "building", None)
    patch.setattr(packed_strings, "native", None)
    patch.setattr(strings, "native", None)


@needs_building
@pytest.mark.parametrize("seed", range(40))
def test_files_are_the_same_compiled_and_in_python(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lognode.statemachine.segment_output.write_back", lambda path: None)
    parts = [batches(random.Random(f"{seed} {part}")) for part in range(3)]

    def made() -> list[Any]:
        infos, first = [], 1
        for part, sources in enumerate(parts):
            infos.append(build(tmp_path / str(part), first, sources))
            first = infos[-1].end_seq
        inputs = [(tmp_path / str(part), info) for part, info in enumerate(infos)]
        rules = [None, lambda key, seqs, *_: [at for at, seq in enumerate(seqs) if seq % 3]]
        for kept in rules:
            infos.append(merge(tmp_path / "merged", inputs, start=b"", end=None, kept=kept))
        return infos

    compiled = made()
    in_python(monkeypatch)
    assert made() == compiled


@needs_building
@pytest.mark.parametrize("seed", range(40))
def test_a_damaged_batch_is_refused_in_the_same_words_or_built_the_same(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lognode.statemachine.segment_output.write_back", lambda path: None)
    rng = random.Random(seed)
    keys = [b"key%d" % rng.randrange(9) for _ in range(20)]
    values = [b"value", None, b"", b"v" * 300] * 5
    data = encode_batch(keys, values, producer=1, epoch=1, low=1, numbers=1, compress=False)
    fields = msgpack.unpackb(data)
    sources = []
    for _ in range(10):
        broken = [*fields]
        column = bytearray(broken[at := rng.choice((10, 12))])
        kind = rng.randrange(3)
        if kind == 0:
            column[rng.randrange(len(column))] = rng.choice((0, 1, 0x90, 0xC0, 0xC4, 0xC6, 255))
        elif kind == 1:
            del column[rng.randrange(len(column)) :]
        else:
            column += b"\xc0"
        broken[at] = bytes(column)
        broken[13] = len(broken[12])
        sources.append(Source(msgpack.packb(broken), None, 1))

    def outcome(source: Source) -> Any:
        try:
            return build(tmp_path / "made", 1, [source])
        except (CorruptData, OSError) as error:  # LMDB refuses a key without bytes
            return str(error)

    compiled = [outcome(source) for source in sources]
    in_python(monkeypatch)
    assert [outcome(source) for source in sources] == compiled
