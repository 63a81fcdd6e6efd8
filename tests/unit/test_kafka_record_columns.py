"""Records of Kafka as columns: the compiled way does what the way record by record does."""

import os
from collections.abc import Sequence
from typing import Any

import kafka_wire as wire
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lognode.client.appends import Columns
from lognode.client.protocol import limits
from lognode.client.protocol.chunks import Chunk
from lognode.client.protocol.columns import column
from lognode.client.protocol.types import Headers
from lognode.node.kafka import batches, record_columns, stored_records
from lognode.node.kafka.record_columns import Packed, decoded, packed, written
from lognode.node.kafka.refused import Refused
from lognode.statemachine.page import Page

PREFIX = b"\0\3"
needs_codec = pytest.mark.skipif(record_columns.codec is None, reason="no compiled module is here")

keys = st.none() | st.binary(max_size=20) | st.sampled_from([b"k" * 127, b"k" * 478, b"k" * 479])
texts = st.binary(max_size=20) | st.sampled_from([b"v" * 63, b"v" * 64, b"v" * 8_192])
values = st.none() | texts
lists = st.lists(st.tuples(st.binary(max_size=9), st.none() | st.binary(max_size=9)), max_size=2)
rows = st.lists(st.tuples(keys, values) | st.tuples(keys, values, lists), min_size=1, max_size=9)


def taken(steps: Any) -> Any:
    """The result of work in steps."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            return done.value


def test_the_module_is_compiled_where_it_is_tested() -> None:
    wanted = os.environ.get("CI") == "true" and not os.environ.get("LOGNODE_PURE")
    assert not wanted or record_columns.codec is not None


# Of producers.


def by_records(data: bytes, count: int, *, keyed: bool = False) -> Columns:
    found = taken(batches.records(data, count))
    return Columns(list(stored_records.rows(PREFIX, found, keyed=keyed)))


def shown(columns: Columns) -> Any:
    return columns.keys, columns.values, columns.headers, columns.sizes, columns.each


def check_same(data: bytes, count: int, *, keyed: bool = False) -> None:
    """Whatever the columns are, they are those of the way record by record; so are packed ones."""
    found = decoded(PREFIX, data, count, keyed=keyed)
    if found is not None:
        assert shown(found) == shown(by_records(data, count, keyed=keyed))
    wanted = None if found is None else Packed.of(found)
    assert packed(PREFIX, data, count, keyed=keyed) == wanted


def body(found: Sequence[Any]) -> bytes:
    return b"".join(wire.record(at, row) for at, row in enumerate(found))


@needs_codec
@given(st.lists(st.tuples(st.none() | st.binary(min_size=1, max_size=9), values), min_size=1))
def test_plain_records_become_columns(found: list[Any]) -> None:
    columns = decoded(PREFIX, body(found), len(found), keyed=False)
    assert columns is not None
    assert shown(columns) == shown(by_records(body(found), len(found)))


@needs_codec
def test_the_largest_record_becomes_columns_and_a_larger_one_does_not() -> None:
    for size, is_plain in ((limits.value_bytes_max, True), (limits.value_bytes_max + 1, False)):
        found = decoded(PREFIX, body([(b"k" * 478, b"v" * size)]), 1, keyed=True)
        assert (found is not None) is is_plain
    assert decoded(PREFIX, body([(b"k" * 479, b"v")]), 1, keyed=True) is None


@needs_codec
@pytest.mark.parametrize("count", [1, 15, 16, 65_535, 65_536])
@pytest.mark.parametrize("size", [0, 255, 256])
def test_packed_records_are_packed_columns(count: int, size: int) -> None:
    data = body([(b"k" * (size or 1), None if at % 3 else b"v" * size) for at in range(count)])
    columns = decoded(PREFIX, data, count, keyed=True)
    assert columns is not None
    assert packed(PREFIX, data, count, keyed=True) == Packed.of(columns)
    assert column(Packed.of(columns).keys, count) == columns.keys


@needs_codec
def test_a_value_of_64_kib_is_packed_alike() -> None:
    for size in ((1 << 16) - 1, 1 << 16, limits.value_bytes_max):
        check_same(body([(None, b"v" * size), (b"k" * 478, b"")]), 2)
    for size in (limits.value_bytes_max, limits.value_bytes_max + 1):
        found = packed(PREFIX, body([(b"k", b"v" * size)]), 1, keyed=True)
        assert (found is not None) is (size == limits.value_bytes_max)


@given(rows, st.booleans())
def test_any_records_are_the_same_both_ways(found: list[Any], keyed: bool) -> None:
    data = body(found)
    for count in (len(found), len(found) - 1, len(found) + 1, 1 << 30):
        check_same(data, count, keyed=keyed)
    is_plain = all(len(row) == 2 and row[0] != b"" and len(row[0] or b"") < 479 for row in found)
    if record_columns.codec is not None and is_plain and not keyed:
        assert decoded(PREFIX, data, len(found), keyed=False) is not None


@given(rows, st.data())
def test_damaged_records_are_left_to_the_way_record_by_record(
    found: list[Any], data: st.DataObject
) -> None:
    damaged = bytearray(body(found))
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(damaged[: data.draw(st.integers(0, len(damaged)))])
    for each in (bytes(damaged), cut):
        check_same(each, len(found))


@given(st.binary(max_size=80), st.integers(-1, 9))
def test_any_bytes_are_the_same_both_ways(data: bytes, count: int) -> None:
    check_same(data, count)


@needs_codec
@pytest.mark.parametrize("count", [-1, 0, 2, 1 << 62])
def test_a_count_that_does_not_fit_makes_no_columns(count: int) -> None:
    assert decoded(PREFIX, body([(b"k", b"v")]), count, keyed=False) is None


@needs_codec
def test_numbers_in_more_bytes_than_they_need_are_read_alike() -> None:
    plain = wire.record(0, (b"k", b"v"))
    at = plain.index(b"\x02k")
    longer = bytes((plain[0] + 4,)) + plain[1:at] + b"\x82\x80\0k" + plain[at + 2 :]
    check_same(longer, 1)
    assert decoded(PREFIX, longer, 1, keyed=False) is not None
    wide = bytes((plain[0] + 12,)) + plain[1:at] + b"\x82\x80\x80\x80\x80\x80\0k" + plain[at + 2 :]
    assert decoded(PREFIX, wide, 1, keyed=False) is None
    assert by_records(wide, 1).keys == [PREFIX + b"k"]


# For consumers.

stored = st.sampled_from([PREFIX, PREFIX + b"k", PREFIX + b"x" * 300]) | st.binary(
    min_size=3, max_size=9
)
headers = st.none() | st.dictionaries(st.binary(max_size=5), st.binary(max_size=5), max_size=2)
reserved = st.just({stored_records.RESERVED: b"\x92\xc3\x90"})
entries = st.lists(
    st.tuples(stored, values, headers | reserved, st.integers(1, 3), st.integers(0, 1)),
    min_size=1, max_size=20,
)  # fmt: skip


def page_of(found: Sequence[tuple[bytes, bytes | None, Headers | None, int, int]]) -> Page:
    page, seq, at_ms = Page(next=1), 1 << 40, 1_700_000_000_000
    for key, value, more, step, later in found:
        seq, at_ms = seq + step, at_ms + later
        if more:
            page.headers[len(page.seqs)] = more
        page.keys.append(key)
        page.seqs.append(seq)
        page.timestamps.append(at_ms)
        page.values.append(value)
    return page


def on_wire(page: Page) -> dict[str, Any]:
    """The page as the door gets it, once it has travelled."""
    body = page.to_chunks()
    return {**body, "chunks": [[*chunk] for chunk in body["chunks"]]}


def check_written(page: Page) -> None:
    expected = taken(batches.written(page.to_wire(), stored_records.record))
    assert taken(written(on_wire(page))) == (expected, page.seqs[-1])


@given(entries)
def test_a_page_of_chunks_is_written_as_a_page_of_entries(found: list[Any]) -> None:
    check_written(page_of(found))


def test_a_page_of_an_earlier_version_is_written_too() -> None:
    page = page_of([(PREFIX + b"k", b"v", None, 1, 0)] * 3)
    expected = taken(batches.written(page.to_wire(), stored_records.record))
    assert taken(written({**page.to_wire(), "chunks": None})) == (expected, page.seqs[-1])


@settings(max_examples=5)
@given(st.integers(0, limits.value_bytes_max))
def test_values_of_all_sizes_are_written(size: int) -> None:
    check_written(page_of([(PREFIX + b"k", b"v" * size, None, 1, 0)] * 2))
    check_written(page_of([(PREFIX + b"k", b"v" * limits.value_bytes_max, None, 1, 0)]))


@given(entries)
def test_the_repeats_of_keys_are_written(found: list[Any]) -> None:
    """Blocks of files hold a key once for all of its entries."""
    page = page_of([(found[0][0], *rest) for _, *rest in found])
    body = on_wire(page)
    (chunk,) = map(Chunk.from_wire, body["chunks"])
    count = len(page.seqs).to_bytes(4, "little")
    one = chunk._replace(
        key_lengths=chunk.key_lengths[:2], keys=found[0][0], repeats=count, first_seq=0
    )
    expected = taken(batches.written(page.to_wire(), stored_records.record))
    assert taken(written({**body, "chunks": [[*one]]}))[0] == expected


def test_entries_with_headers_are_written_in_steps() -> None:
    page = page_of([(PREFIX + b"k", b"v", {b"a": b"b"}, 1, 0)] * 640)
    if record_columns.codec is not None:
        assert sum(1 for _ in written(on_wire(page))) >= 10
    check_written(page)


@needs_codec
def test_numbers_that_lead_outside_the_columns_are_not_followed() -> None:
    import numpy as np

    good = np.array([[1], [3], [3], [1], [1]], np.int64)
    assert record_columns.codec.encoded(good, b"\0\0k", b"v", 0, 1, 1, 2) is not None
    small = [(1, 4), (1, 2), (1, -1), (2, 4), (2, -1), (3, 2), (3, 0), (3, -1), (4, 2), (4, -2)]
    for row, wrong in [*small, *((row, 1 << 62) for row in range(1, 5))]:
        bad = good.copy()
        bad[row] = wrong
        assert record_columns.codec.encoded(bad, b"\0\0k", b"v", 0, 1, 1, 2) is None
    for begin, end in ((0, 2), (-1, 1), (1, 0)):
        assert record_columns.codec.encoded(good, b"\0\0k", b"v", begin, end, 1, 2) is None
    assert record_columns.codec.encoded(good[:4].copy(), b"\0\0k", b"v", 0, 1, 1, 2) is None


def test_refusals_stay_what_they_are() -> None:
    for row in ((None, b"v"), (b"k" * 479, b"v")):
        assert decoded(PREFIX, body([row]), 1, keyed=True) is None
        with pytest.raises(Refused):
            by_records(body([row]), 1, keyed=True)


def test_columns_of_plain_records_are_those_of_rows() -> None:
    made = Columns.of([b"k", b"key"], [b"v", None])
    assert shown(made) == shown(Columns([(b"k", b"v"), (b"key", None)]))
