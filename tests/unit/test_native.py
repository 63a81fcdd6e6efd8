"""The compiled functions and their twins in Python do the same, also with damaged bytes."""

import os
import random
from array import array
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import msgpack
import numpy as np
import pytest

from lognode.client import appends, last_numbers
from lognode.client.appends import Columns
from lognode.client.last_numbers import LastNumbers
from lognode.client.protocol import chunks, columns, key_column
from lognode.client.protocol import native as native_of
from lognode.client.protocol.key_column import KeyColumn
from lognode.client.protocol.native import native, packing
from lognode.statemachine import key_store, packed_strings, seq_index, strings
from lognode.statemachine.compiled import memtables
from lognode.statemachine.key_store import KeyStore
from lognode.statemachine.seq_index import _Hashes

FIELDS = ("count", "data", "ends", "hashes", "least", "greatest", "longest")
KEYS = [b"", b"k", b"key", bytes(15), bytes(16), b"\xff" * 255, b"m" * 256, b"l" * 480, b"K"]

needs_native = pytest.mark.skipif(native is None, reason="no compiled module is installed")


def test_the_modules_are_compiled_where_they_are_tested() -> None:
    wanted = os.environ.get("CI") == "true" and not os.environ.get("LOGNODE_PURE")
    assert not wanted or None not in (native, packing, memtables)


def test_a_module_that_hashes_in_another_way_is_not_used() -> None:
    columns = (b"", b"", b"\1" * 8, b"", b"", 0)
    assert native_of._that_hashes(SimpleNamespace(scan_keys=lambda *_: columns)) is None
    assert native_of._that_hashes(native) is native


def outcome(call: Callable[..., Any], *arguments: Any) -> Any:
    """Return what a call returns or raises, so that two calls compare."""
    try:
        found = call(*arguments)
    except ValueError as error:
        return type(error), str(error)
    if isinstance(found, KeyColumn):
        return [getattr(found, name) for name in FIELDS], list(found.strings())
    return found


def both(patch: pytest.MonkeyPatch, call: Callable[..., Any], *arguments: Any) -> tuple[Any, Any]:
    """Return the outcome with the compiled module and without it."""
    compiled = outcome(call, *arguments)
    with patch.context() as without:
        without.setattr(key_column, "native", None)
        without.setattr(columns, "native", None)
        without.setattr(chunks, "native", None)
        return compiled, outcome(call, *arguments)


def packed(rng: random.Random, values: list[bytes | None]) -> bytes:
    """Pack an array, some heads in more bytes than they need."""
    count = len(values)
    heads = [b"\xdc" + count.to_bytes(2, "big"), b"\xdd" + count.to_bytes(4, "big")]
    if count < 16:
        heads.append(bytes((0x90 | count,)))
    found = rng.choice(heads)
    for value in values:
        if value is None:
            found += b"\xc0"
            continue
        width = rng.choice([w for w in (1, 2, 4) if len(value) < 1 << 8 * w])
        found += bytes((0xC3 + width.bit_length(),)) + len(value).to_bytes(width, "big") + value
    return found


@needs_native
@pytest.mark.parametrize("seed", range(20))
def test_columns_of_keys_are_the_same(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(seed)
    keys = rng.choices(KEYS, k=rng.choice((1, 2, 15, 16, 300)))
    data = packed(rng, list(keys))
    compiled, twin = both(monkeypatch, KeyColumn.unpack, data, len(keys))
    assert compiled == twin
    assert native.scan_keys(data, len(keys)) is not None
    assert compiled[1] == keys
    assert compiled == outcome(KeyColumn.of, keys)


@needs_native
@pytest.mark.parametrize("seed", range(20))
def test_the_longest_value_is_the_same(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(seed)
    values = rng.choices([*KEYS, None], k=rng.choice((0, 1, 16, 300)))
    data = packed(rng, values)
    compiled, twin = both(monkeypatch, columns.longest, data, len(values))
    assert compiled == twin == max((len(value or b"") for value in values), default=0)
    assert native.longest(data, len(values)) == compiled


@needs_native
@pytest.mark.parametrize("seed", range(60))
def test_damaged_columns_are_refused_in_the_same_words(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(seed)
    keys: list[bytes | None] = [*rng.choices(KEYS, k=rng.choice((1, 3, 16, 80)))]
    data, count = bytearray(packed(rng, keys)), len(keys)
    for _ in range(40):
        damaged = bytearray(data)
        kind = rng.randrange(4)
        if kind == 0:
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        elif kind == 1:
            del damaged[rng.randrange(len(damaged)) :]
        elif kind == 2:
            damaged += bytes((rng.randrange(256),))
        claimed = count if kind < 3 else count + rng.choice((-1, 1, 1 << 20, -count))
        for call in (KeyColumn.unpack, columns.longest):
            compiled, twin = both(monkeypatch, call, bytes(damaged), claimed)
            assert compiled == twin


@needs_native
def test_a_count_reserves_nothing_for_keys_that_are_not_there() -> None:
    head = b"\xdd\xff\xff\xff\xff"
    assert native.scan_keys(head + bytes(40), 0xFFFFFFFF) is None
    assert native.longest(head, 0xFFFFFFFF) is None
    assert native.scan_keys(msgpack.packb([b"k"]), -1) is None
    with pytest.raises(TypeError):
        native.scan_keys("k", 1)
    for count in (1 << 80, -(1 << 80)):  # the twin says what is wrong
        assert native.scan_keys(b"k", count) is None
        assert native.longest(b"k", count) is None
        assert native.locate([b"k"], [count], 0, 0) is None
        assert native.integers(b"k", 0, count) is None


@pytest.mark.parametrize("pure", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_a_store_has_the_keys_by_position(
    seed: int, pure: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if pure:
        monkeypatch.setattr(key_store, "memtables", None)
    rng = random.Random(seed)
    store, expected = KeyStore(), list[bytes]()
    for _ in range(20):
        keys = rng.choices(KEYS, k=rng.choice((1, 7, 40)))
        store.add(KeyColumn.unpack(msgpack.packb(keys), len(keys)))
        expected += keys
    assert [store[at] for at in range(len(store))] == expected
    begin, end = sorted(rng.sample(range(len(expected) + 1), 2))
    assert store.between(begin, end) == expected[begin:end]
    assert store.between(begin, begin) == []
    store.clear()
    assert len(store) == 0


@needs_native
def test_ends_of_keys_are_shifted_within_32_bits() -> None:
    ends = array("I", [0, 7, 1 << 31])
    assert memtables.shifted(ends, 5) == array("I", [5, 12, (1 << 31) + 5]).tobytes()
    for by in (1 << 31, 1 << 32, 1 << 63, -1, 1 << 70):
        with pytest.raises(OverflowError):
            memtables.shifted(ends, by)
    with pytest.raises(ValueError, match="four bytes"):
        memtables.shifted(b"abc", 0)
    with pytest.raises(TypeError):
        memtables.shifted(ends, None)


@needs_native
@pytest.mark.parametrize("seed", range(20))
def test_strings_are_found_and_gathered_the_same(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(seed)
    columns_of = [
        rng.choices([*KEYS, *([None] if seed % 2 else [])], k=rng.choice((1, 16, 70)))
        for _ in range(rng.choice((1, 9)))
    ]
    arrays, counts = [packed(rng, each) for each in columns_of], list(map(len, columns_of))
    expected = [value for each in columns_of for value in each]
    order = np.array(rng.choices(range(len(expected)), k=50))
    found = []
    for module in (native, None):
        monkeypatch.setattr(packed_strings, "native", module)
        monkeypatch.setattr(strings, "native", module)
        values, absent = packed_strings.located(arrays, counts)
        marks = [False] * len(expected) if absent is None else absent.tolist()
        texts = values.together()
        found.append(
            (list(texts), marks, list(texts.take(order)), texts.take(order).data.tobytes())
        )
        assert [values[at] for at in range(len(values))] == found[0][0]
        if absent is None:
            assert list(packed_strings.unpacked(arrays, counts)) == found[0][0]
    assert found[0] == found[1]
    assert found[0][0] == [value or b"" for value in expected]
    assert found[0][1] == [value is None for value in expected]


@needs_native
def test_damaged_columns_are_left_to_the_twin() -> None:
    sound = msgpack.packb([b"k", None])
    assert native.locate([sound], [2], True, 0) is not None
    for arrays, counts, none in (
        ([sound], [2], False), ([sound], [1], True), ([sound[:-1]], [2], True),
        ([sound + b"\xc0"], [2], True), ([b"\xdd\xff\xff\xff\xff"], [0xFFFFFFFF], True),
        ([msgpack.packb([1, b"k"])], [2], True), ([sound], [-1], True),
    ):  # fmt: skip
        assert native.locate(arrays, counts, none, 0) is None
        assert native.locate(arrays, counts, none, 40) is None
    assert native.locate([sound], [2], True, 2) is None
    assert native.locate([b"\x90"] * 9, [0] * 9, True, 62) is None
    with pytest.raises(ValueError, match="low bits"):
        native.locate([sound], [2], True, 63)


@needs_native
@pytest.mark.parametrize(
    ("start", "length", "place"),
    [(-1, 1, 0), (0, -1, 0), (3, 2, 0), (5, 0, 0), (9, 0, 0), (0, 1 << 62, 0), (1 << 62, 1, 0),
     (0, 1, -1), (0, 1, 1), (0, 1, 1 << 62)],
)  # fmt: skip
def test_nothing_outside_of_the_data_is_gathered(start: int, length: int, place: int) -> None:
    found = native.gather(b"abcd", np.array([1]), np.array([3]), np.array([0, 0]))
    assert found == (b"bcdbcd", np.array([3, 3]).tobytes())
    with pytest.raises(ValueError, match="outside"):
        native.gather(b"abcd", np.array([start]), np.array([length]), np.array([place]))
    with pytest.raises(ValueError, match="outside"):
        native.gather(b"abcd", np.array([0, 1]), np.array([1]), np.array([0]))


INTEGERS = [0, 1, 127, 128, 255, 256, 65_535, 65_536, 2**32 - 1, 2**32, 2**63 - 1, -1, -32, -33,
            -128, -129, -32_768, -32_769, -(2**31), -(2**31) - 1, -(2**63)]  # fmt: skip


@needs_native
@pytest.mark.parametrize("seed", range(40))
def test_arrays_of_integers_are_the_same(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(seed)
    values: list[Any] = rng.choices(INTEGERS, k=rng.choice((0, 1, 16, 2_000)))
    found = native.integers(b"xy" + msgpack.packb(values)[1:], 2, len(values))
    if len(values) < 16:  # with a head of one byte
        assert found == (values, 1 + len(msgpack.packb(values)))
    if seed % 2 and values:
        values[rng.randrange(len(values))] = rng.choice((None, True, 1.5, 2**64 - 1))
    batch = bytearray(msgpack.packb([1, values, b"bytes", None]))
    if seed % 3 == 2:
        batch[rng.randrange(len(batch))] = rng.randrange(256)
    read = partial(columns.fields, width_min=1, array_max=2_000)
    compiled, twin = both(monkeypatch, read, bytes(batch))
    assert compiled == twin


@needs_native
@pytest.mark.parametrize("elements", [[], [1], [1, None], [None], [1, True], [b"k", 1]])
@pytest.mark.parametrize("none", [False, True])
def test_types_are_told_the_same(
    elements: list[Any], none: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled, twin = both(monkeypatch, partial(columns.all_are, none=none), int, elements)
    assert compiled is twin


@needs_native
@pytest.mark.parametrize("seed", range(20))
def test_totals_of_a_column_are_the_same(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(seed)
    for code, most in (("H", 65_535), ("I", 2**32 - 1)):
        rows = [rng.choice([0, 1, 128, most - 1, most]) for _ in range(rng.randrange(200))]
        column = array(code, rows).tobytes()
        compiled, twin = both(monkeypatch, chunks.totals, code, column)
        assert compiled == twin == (sum(rows), rows.count(most))
        assert chunks.totals(code, memoryview(b"?" + column)[1:]) == twin
        compiled, twin = both(monkeypatch, chunks.totals, code, column + b"?")
        assert compiled == twin
        assert compiled[0] is ValueError


@needs_native
def test_a_column_of_other_numbers_has_no_totals() -> None:
    assert native.totals(bytes(16), 8) is None
    with pytest.raises(TypeError):
        native.totals(bytes(16), "I")
    with pytest.raises(TypeError):
        native.totals(7, 4)


@needs_native
@pytest.mark.parametrize("seed", range(20))
def test_runs_of_an_index_are_the_same(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(seed)
    some = [rng.randrange(-(2**63), 2**63) for _ in range(20)] + [-1, 0, 1, -(2**63), 2**63 - 1]
    tails = [bytearray(array("q", rng.choices(some, k=rng.choice((1, 30, 900))))) for _ in range(2)]
    found = []
    for module in (native, None):
        monkeypatch.setattr(seq_index, "native", module)
        runs = [_Hashes.ended(5, tails[0])]
        runs.append(_Hashes.ended(5 + len(tails[0]) // 8, tails[1]))
        runs.append(runs[0].merged(runs[1]))
        found.append([(run.begin, run.hashes.tolist(), run.positions.tolist()) for run in runs])
    assert found[0] == found[1]
    assert found[0][2][1] == sorted([*array("q", tails[0]), *array("q", tails[1])])


@needs_native
def test_a_run_has_a_position_for_each_hash() -> None:
    with pytest.raises(ValueError, match="positions"):
        native.merged_runs(bytes(8), bytes(4), bytes(8), b"")
    with pytest.raises(OverflowError):
        native.sorted_run(bytes(16), 2**31 - 2)


@needs_native
@pytest.mark.parametrize("seed", range(20))
def test_clients_pack_strings_the_same(seed: int) -> None:
    rng = random.Random(seed)
    longer = [bytes(65_535), bytes(65_536)] if seed % 4 == 0 else []
    values = rng.choices([*KEYS, None, *longer], k=rng.choice((0, 1, 15, 16, 300)))
    assert packing.pack_strings(values) == msgpack.packb(values)
    assert packing.pack_strings([*values, bytearray(b"k")]) is None
    assert packing.pack_strings((b"k",)) is None
    if seed == 0:
        assert packing.pack_strings([b""] * 65_536) == msgpack.packb([b""] * 65_536)


@needs_native
@pytest.mark.parametrize("seed", range(20))
def test_clients_sort_keys_by_range_the_same(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(seed)
    pool = [rng.randbytes(rng.randrange(1, 4)) for _ in range(60)]
    keys = rng.choices(pool, k=rng.choice((1, 2, 400)))
    starts = sorted({b"", *rng.sample(pool, rng.choice((1, 3, 20)))})
    records = Columns([(key, b"") for key in keys])
    compiled = list(records.by_start(starts))
    assert packing.extremes(keys) == (min(keys), max(keys))
    monkeypatch.setattr(appends, "packing", None)
    assert compiled == list(records.by_start(starts))
    assert packing.grouped([*keys, "k"], starts) is None
    assert packing.extremes([*keys, None]) is None
    assert packing.extremes([]) is None


@needs_native
@pytest.mark.parametrize("seed", range(20))
def test_S4_clients_find_what_a_record_follows_the_same(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(seed)
    compiled, twin = LastNumbers(), LastNumbers()
    monkeypatch.setattr(last_numbers, "_TURN_KEYS", 40)
    number = 1
    for _ in range(50):
        keys = [b"%d" % rng.randrange(99) for _ in range(rng.randrange(1, 30))]
        numbers, low = range(number, number + len(keys)), max(1, number - rng.randrange(200))
        found = []
        for last, module in ((compiled, packing), (twin, None)):
            monkeypatch.setattr(last_numbers, "packing", module)
            found.append((last.before(keys, low), len(last)))
            last.note_all(keys, numbers)
            last.settle(low)
        assert found[0] == found[1]
        number += len(keys)


def test_a_key_alone_is_the_key_at_its_position() -> None:
    keys = [b"k" * (at * 7 % 300) + b"%d" % at for at in range(1, 400)]
    for made in (KeyColumn.unpack(msgpack.packb(keys), len(keys)), KeyColumn.of(keys)):
        assert [made.string(at) for at in range(len(keys))] == keys
        assert made.strings() == keys
        assert [made.string(at) for at in range(len(keys))] == keys
