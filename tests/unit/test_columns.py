"""Columns and values that somebody else packed: what is sound is what msgpack makes of it, however
it is unpacked; what is not raises ValueError."""

import os
import random
from collections.abc import Callable
from typing import Any

import msgpack
import pytest

from lognode.client.protocol import limits, packed
from lognode.client.protocol.columns import HeaderColumn, column, fields
from lognode.client.protocol.packed import Census


@pytest.fixture
def rng() -> random.Random:
    seed = int.from_bytes(os.urandom(4), "big")
    print("seed", seed)
    return random.Random(seed)


def is_refused(unpack: Callable[..., object], *arguments: Any, **options: Any) -> bool:
    try:
        unpack(*arguments, **options)
    except ValueError:
        return True
    return False


COUNTS = (0, 1, 15, 16, 40, 65, 300, 1_024, 1_025, 3_000)
LENGTHS = ((0, 3), (0, 300), (40_000, 70_000), (300_000, 300_001))


@pytest.mark.parametrize(
    ("count", "lengths"),
    [(count, each) for count in COUNTS for each in LENGTHS if count * each[1] < 4 * limits.MIB],
)
def test_a_column_is_what_was_packed(
    count: int, lengths: tuple[int, int], rng: random.Random
) -> None:
    values = [rng.randbytes(rng.randint(*lengths)) for _ in range(count)]
    assert column(msgpack.packb(values), count) == values
    some: list[bytes | None] = [None if rng.random() < 0.3 else value for value in values]
    assert column(msgpack.packb(some), count, none=True) == some
    if None in some:
        with pytest.raises(ValueError, match="another type"):
            column(msgpack.packb(some), count)


@pytest.mark.parametrize("count", [3, 300, 3_000])
@pytest.mark.parametrize("wrong", [[], {}, [b"x"], {b"a": b"b"}, "text", "", 5, 1.5, True])
def test_a_column_holds_bytes_alone(count: int, wrong: object, rng: random.Random) -> None:
    values: list[object] = [rng.randbytes(30) for _ in range(count)]
    values[rng.randrange(count)] = wrong
    for none in (False, True):
        assert is_refused(column, msgpack.packb(values), count, none=none)


@pytest.mark.parametrize("count", [3, 300, 3_000])
def test_a_column_has_the_count_that_was_announced_and_nothing_behind_it(count: int) -> None:
    data = msgpack.packb([b"value"] * count)
    for bad in (data[:-1], data + b"\xc0", data[: len(data) // 2], b"", b"\xc0", b"\xdd\0\0"):
        assert is_refused(column, bad, count)
    for other in (0, count - 1, count + 1, 1 << 40):
        assert is_refused(column, data, other)


@pytest.mark.parametrize("count", [1, 255, 256, 257, 1_000])
def test_headers_come_in_steps_and_are_what_was_packed(count: int, rng: random.Random) -> None:
    headers = [
        None if rng.random() < 0.5 else {rng.randbytes(9): rng.randbytes(9) for _ in range(3)}
        for _ in range(count)
    ]
    found = HeaderColumn(msgpack.packb(headers), count)
    while len(found.maps) < count:
        before = len(found.maps)
        maps = found.step()
        assert maps == [each for each in headers[before : len(found.maps)] if each is not None]
        assert len(found.maps) - before <= HeaderColumn.step_records
    assert found.maps == headers


@pytest.mark.parametrize(
    "wrong",
    [
        [], [b"a"], b"a", 5, {b"a": None}, {b"a": {}}, {b"a": []}, {"a": b"b"}, {1: b"b"},
        {b"a": {b"b": b"c"}}, {b"%d" % n: b"" for n in range(33)},
    ],
)  # fmt: skip
def test_headers_are_maps_of_bytes_to_bytes(wrong: object) -> None:
    for count in (1, 400):
        headers: list[object] = [{b"name": b"value"}] * count
        headers[-1] = wrong
        assert is_refused(_all_headers, msgpack.packb(headers), count)


def _all_headers(data: bytes, count: int) -> None:
    found = HeaderColumn(data, count)
    while len(found.maps) < count:
        found.step()


def _value(rng: random.Random, depth: int) -> Any:
    kind = rng.randrange(9 if depth else 7)
    if kind == 7:
        return [_value(rng, depth - 1) for _ in range(rng.choice((0, 1, 5, 20)))]
    if kind == 8:
        return {rng.randrange(100): _value(rng, depth - 1) for _ in range(rng.choice((0, 2, 20)))}
    return (
        None, rng.random() < 0.5, rng.randrange(-(1 << rng.randrange(64)), 1 << rng.randrange(65)),
        rng.random(), rng.randbytes(rng.choice((0, 3, 300, 80_000))), "x" * rng.randrange(300),
        rng.randrange(128),
    )[kind]  # fmt: skip


def _in_steps(data: bytes, census: Census) -> Any:
    steps = packed.unpack_steps(data, census, array_max=1 << 17)
    while True:
        try:
            next(steps)
        except StopIteration as done:
            return done.value


def test_a_value_is_the_same_at_once_and_in_steps(rng: random.Random) -> None:
    for _ in range(150):
        value = [_value(rng, 4) for _ in range(rng.choice((1, 6)))]
        data = msgpack.packb(value)
        censuses = Census(1 << 40), Census(1 << 40)
        assert packed.unpack(data, censuses[0], array_max=1 << 17) == value
        assert _in_steps(data, censuses[1]) == value
        assert censuses[0].memory == censuses[1].memory
        packed.check_whole(data)
        assert packed.is_short(data, 1 << 17)
        assert not packed.is_short(data + b"\xc0", 1 << 17)
        assert not packed.is_short(data[:-1], 1 << 17)


def test_damaged_columns_are_refused_at_once_and_in_steps(rng: random.Random) -> None:
    for _ in range(400):
        data = bytearray(msgpack.packb([_value(rng, 3) for _ in range(4)]))
        for _ in range(rng.randrange(1, 4)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        results = []
        for unpack in (lambda d, c: packed.unpack(d, c, array_max=1 << 17), _in_steps):
            try:
                results.append(repr(unpack(bytes(data), Census(1 << 20))))
            except ValueError:
                results.append("refused")
        assert results[0] == results[1]
        if packed.is_short(bytes(data), 1 << 17):
            packed.check_whole(bytes(data))


def test_more_memory_than_allowed_is_refused() -> None:
    data = msgpack.packb([[n] for n in range(100)])
    exact = 101 * packed.container_bytes + 200 * packed.element_bytes
    assert packed.unpack(data, Census(exact), array_max=100)
    with pytest.raises(ValueError, match="memory"):
        packed.unpack(data, Census(exact - 1), array_max=100)


def test_fields_are_read_one_by_one(rng: random.Random) -> None:
    for count in (0, 1, 15, 16, 1_024, 1_025, 5_000):
        numbers = [rng.randrange(1 << rng.randrange(1, 64)) for _ in range(count)]
        row = [1, count, 1 << 60, numbers, None, rng.randbytes(rng.choice((3, 300, 70_000))), 7]
        assert fields(msgpack.packb(row), width_min=7, array_max=5_000) == row
        assert fields(msgpack.packb([*row, numbers]), width_min=7, array_max=5_000)[:7] == row
    for bad in ([1, 2], [1] * 16, [1, 2, {1: 2}], [1, 2, [0] * 5_001], [1, 2, [[1]] * 2_000]):
        assert is_refused(fields, msgpack.packb(bad), width_min=3, array_max=5_000)
    good = msgpack.packb([1, 2, b"three"])
    for bad_data in (*(good[:cut] for cut in range(len(good))), good + b"\1"):
        assert is_refused(fields, bad_data, width_min=3, array_max=10)


@pytest.mark.parametrize("extension", [b"\xc7\0\5", b"\xd4\5\1", b"\xd6\xff\0\0\0\1", b"\xc1"])
def test_extension_types_are_refused(extension: bytes) -> None:
    data = b"\x91" + extension
    assert not packed.is_short(data, 100)
    assert is_refused(column, data, 1)
    assert is_refused(fields, data, width_min=1, array_max=10)
    if extension != b"\xc7\0\5":  # one without data becomes a tuple, which nobody takes
        assert is_refused(packed.unpack, data, Census(1 << 20), array_max=10)
