"""The compiled table of newest positions finds what a dict finds, and reads nothing outside."""

import random
from array import array
from typing import Any

import numpy as np
import pytest

from lognode.client.protocol.key_column import KeyColumn
from lognode.statemachine.compiled import memtables
from lognode.statemachine.key_store import KeyStore
from lognode.statemachine.newest_table import NewestTable

pytestmark = pytest.mark.skipif(memtables is None, reason="no compiled module is installed")
TAG = (1 << 32) - 1


@pytest.fixture(scope="module")
def colliding() -> list[bytes]:
    """Keys in pairs: both hashes of a pair have the same lowest 32 bits, which the table keeps."""
    first: dict[int, bytes] = {}
    found: list[bytes] = []
    for number in range(400_000):
        key = b"%d" % number
        other = first.setdefault(hash(key) & TAG, key)
        if other is not key:
            found += (other, key)
    return found


def hashes_of(column: KeyColumn) -> Any:
    return np.frombuffer(column.hashes, np.int64)


@pytest.mark.parametrize("seed", range(20))
def test_S9_the_table_finds_what_a_dict_finds(seed: int, colliding: list[bytes]) -> None:
    rng = random.Random(seed)
    pool = [*colliding, b"", b"k", *(rng.randbytes(rng.choice((1, 8, 480))) for _ in range(90))]
    if seed % 2:
        pool += [b"%d" % n for n in range(3_000)]
    store, expected = KeyStore(), dict[bytes, int]()
    table = NewestTable(store)
    for _ in range(40):
        keys = rng.choices(pool, k=rng.choice((1, 13, 70, 500)))
        column, begin = KeyColumn.of(keys), len(store)
        store.add(column)
        table.add(hashes_of(column), begin)
        expected |= zip(keys, range(begin + 1, len(store) + 1), strict=True)
        asked = rng.choices(pool, k=rng.choice((1, 13, 900)))
        assert table.lasts(asked, 1 << 40) == [
            (1 << 40) + expected[key] if key in expected else 0 for key in asked
        ]
    assert table.count == len(store)
    assert 16 * len(expected) <= table.size <= 64 * (len(expected) + 500)


@pytest.mark.parametrize("seed", range(5))
def test_S9_the_newest_position_counts_in_any_order(seed: int, colliding: list[bytes]) -> None:
    rng = random.Random(seed)
    keys = rng.choices([*colliding[:6], b"a", b"b", b"c"], k=300)
    store, column = KeyStore(), KeyColumn.of(keys)
    store.add(column)
    order = np.array(rng.sample(range(300), 300), np.int32)
    table = NewestTable(store)
    for part in np.array_split(order, 7):
        table.add(hashes_of(column)[part], part)
    newest = {key: at for at, key in enumerate(keys)}
    assert table.lasts(list(newest), 0) == [at + 1 for at in newest.values()]


def test_a_key_that_repeats_takes_no_further_slot() -> None:
    store, column = KeyStore(), KeyColumn.of([b"hot"] * 1_000)
    table = NewestTable(store)
    for turn in range(50):
        store.add(column)
        table.add(hashes_of(column), 1_000 * turn)
    assert table.lasts([b"hot"], 0) == [50_000]
    assert table.size <= 32 * 1_000


def memory(places: list[int]) -> bytearray:
    """Return slots that all have the tag of `b"k"`."""
    tag = hash(b"k") & TAG
    return bytearray(array("I", [part for place in places for part in (tag, place)]))


ENDS = array("I", [0, 1, 2])


@pytest.mark.parametrize(
    ("slots", "ends"),
    [
        (memory([3]), ENDS),  # a place without a key
        (memory([1]), array("I", [0, 7, 9])),  # an end behind all bytes
        (memory([1]), array("I", [2, 1, 2])),  # an end before its begin
        (memory([1, 1, 1]), ENDS),  # not a power of two
        (bytearray(), ENDS),
        (bytearray(7), ENDS),
        (memory([1]), array("I")),  # without the end before all keys
    ],
)
def test_nothing_outside_of_the_memory_is_read(slots: bytearray, ends: "array[int]") -> None:
    with pytest.raises(ValueError, match=r"position has no key|power of two|column of ends"):
        memtables.lasts(slots, bytearray(b"xx"), ends, [b"k"], 0)
    hashes = array("q", [hash(b"k")])
    with pytest.raises(ValueError, match=r"position has no key|power of two|column of ends|full"):
        memtables.note(slots, bytearray(b"xx"), ends, hashes, 1)


@pytest.mark.parametrize(
    ("positions", "error"),
    [
        (array("i", [2]), ValueError), (array("i", [-1]), ValueError), (array("i"), ValueError),
        (array("i", [0, 1]), ValueError), (2, ValueError), (-1, OverflowError),
        (1 << 31, OverflowError), (1 << 70, OverflowError), (None, TypeError), ("0", TypeError),
    ],
)  # fmt: skip
def test_a_position_that_has_no_key_is_refused(positions: Any, error: type[Exception]) -> None:
    hashes = array("q", [hash(b"k")])
    with pytest.raises(error):
        memtables.note(bytearray(64), bytearray(b"kk"), ENDS, hashes, positions)


def test_a_full_table_is_refused_and_searched_once() -> None:
    slots = memory([1, 1])
    with pytest.raises(ValueError, match="full"):
        memtables.note(slots, bytearray(b"xk"), ENDS, array("q", [hash(b"k")]), 1)
    with pytest.raises(ValueError, match="full"):
        memtables.move(memory([1, 1]), bytearray(8))
    assert memtables.lasts(slots, bytearray(b"xk"), ENDS, [b"k"], 0) == [0]


@pytest.mark.parametrize("keys", [(b"k",), [b"k", "k"], [bytearray(b"k")], [None], b"k"])
def test_keys_are_a_list_of_bytes(keys: Any) -> None:
    with pytest.raises(TypeError):
        memtables.lasts(bytearray(64), bytearray(b"kk"), ENDS, keys, 0)
