"""Pages become batches of the very schema that Spark asks for, in one order; batches records."""

import random
import subprocess
import sys
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from lognode.client.protocol.errors import InvalidArgument, RemoteProtocolError, Unsupported
from lognode.client.protocol.types import ABSENT, ANY, Entry
from lognode.client.span_pages import SpanPage
from lognode.client.spark import arrow
from lognode.client.spark.arrow import LatestRows, Rows, records
from lognode.client.spark.options import COLUMNS
from lognode.client.spark.schema import (
    check_libraries,
    check_sink_schema,
    check_source_schema,
    source_schema,
)
from lognode.statemachine.block_slices import Portion

EVERY = (*COLUMNS, "headers", "rangeStart")


def page(entries: list[Entry], settled: tuple[bytes, int] | None = None) -> SpanPage:
    built = Portion()
    for entry in entries:
        built.add(entry)
    return SpanPage(built.chunks(), settled)


def schema(*columns: str) -> pa.Schema:
    return to_arrow_schema(source_schema(columns), timezone="UTC")


def entry(key: bytes, seq: int, value: bytes | None = b"v", **more: Any) -> Entry:
    return Entry(key, seq, 1_000 + seq, more.get("headers"), value)


def fed(rows: Rows, *pages: SpanPage) -> list[dict[str, Any]]:
    batches = [batch for each in pages for batch in rows.feed(each)]
    batches += rows.finish()
    for batch in batches:
        assert batch.schema.equals(rows._schema)
        batch.validate(full=True)
    return [row for batch in batches for row in batch.to_pylist()]


def test_trap_4_a_batch_has_the_schema_that_spark_checks_and_what_the_page_has() -> None:
    entries = [entry(b"a", 1, headers={b"h": b"1", b"i": b"2"}), entry(b"b", 2, None)]
    rows = Rows(schema(*EVERY), log="flights", range_start=b"")
    found = fed(rows, page(entries))
    assert [row.pop("timestamp").timestamp() for row in found] == [1.001, 1.002]
    assert found == [
        {"key": b"a", "value": b"v", "log": "flights", "seq": 1, "rangeStart": b"",
         "headers": [{"key": b"h", "value": b"1"}, {"key": b"i", "value": b"2"}]},
        {"key": b"b", "value": None, "log": "flights", "seq": 2, "rangeStart": b"",
         "headers": None},
    ]  # fmt: skip


def test_trap_15_columns_come_in_the_order_asked_for_and_no_others() -> None:
    rows = Rows(schema("seq", "key"), log="flights", range_start=b"")
    assert fed(rows, page([entry(b"a", 1)], (b"a", 2)), page([entry(b"a", 2)])) == [
        {"seq": 1, "key": b"a"}, {"seq": 2, "key": b"a"},
    ]  # fmt: skip


def bands(rng: random.Random, entries: list[Entry]) -> list[SpanPage]:
    """Pages of files of some seqs each, read side by side, as `span_pages` gives them."""
    edges = [0, *sorted(rng.sample(range(1, 60), rng.randrange(5))), 1 << 20]
    files = [sorted((e for e in entries if low <= e.seq < high), key=lambda e: (e.key, e.seq))
             for low, high in pairwise(edges)]  # fmt: skip
    files = [file for file in files if file]
    pages = []
    while files:
        one = min(files, key=lambda file: (file[0].key, file[0].seq))
        count = rng.randrange(1, 20)
        some = one[:count]
        del one[:count]
        files = [file for file in files if file]
        places = [(file[0].key, file[0].seq) for file in files]
        pages.append(page(some, min(places, default=None)))
    return pages


def test_rows_are_in_the_order_of_key_and_seq_whatever_the_files(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    entries = [entry(b"k%d" % (seq * 3 % 7), seq) for seq in range(1, 60)]
    entries += [entry(b"z%d" % (seq % 4), seq) for seq in range(20, 50)]  # another chain
    expected = sorted((e.key, e.seq) for e in entries)
    for seed in range(100):
        rng = random.Random(seed)
        monkeypatch.setattr(arrow, "_HELD_BYTES", rng.choice([0, 300, 1 << 20]))
        rows = Rows(schema("seq", "key"), log="l", range_start=b"")
        found = fed(rows, *bands(rng, entries))
        assert [(row["key"], row["seq"]) for row in found] == expected, f"seed={seed}"


def test_settled_records_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow, "_HELD_BYTES", 1_000)
    rows, most, shown = Rows(schema("seq", "key"), log="l", range_start=b""), 0, 0
    for seq in range(1, 5_000):
        shown += sum(b.num_rows for b in rows.feed(page([entry(b"a", seq)], (b"a", seq + 1))))
        most = max(most, sum(table.num_rows for table in rows._held))
    assert 20 < most < 200
    assert shown > 4_700


def test_only_pages_that_overlap_are_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow, "_HELD_BYTES", 1 << 20)
    rows = Rows(schema("key", "seq"), log="l", range_start=b"")
    alone, first, second = (
        page([entry(key, seq) for key, seq in given], (b"a", 0))
        for given in (
            [(b"c", 7), (b"d", 1)], [(b"a", 2), (b"b", 3), (b"b", 6)], [(b"b", 4), (b"c", 5)]
        )
    )  # fmt: skip
    batches = [batch for each in (alone, first, second) for batch in rows.feed(each)]
    assert batches == []
    batches = list(rows.feed(page([])))
    assert [tuple(row.values()) for batch in batches for row in batch.to_pylist()] == [
        (b"a", 2), (b"b", 3), (b"b", 4), (b"b", 6), (b"c", 5), (b"c", 7), (b"d", 1)
    ]  # fmt: skip
    places = {batch.column("key").buffers()[2].address for batch in batches}
    theirs = [pa.py_buffer(each.chunks[0].keys).address for each in (alone, first, second)]
    assert [place in places for place in theirs] == [True, False, False]


def test_a_page_that_is_out_of_order_is_sorted() -> None:
    rows = Rows(schema("key", "seq"), log="l", range_start=b"")
    for given in (
        [(b"b", 1), (b"a", 2)],
        [(b"a", 2), (b"a", 1)],
        [(b"a", 3), (b"b", 3), (b"b", 2)],
    ):
        found = fed(rows, page([entry(key, seq) for key, seq in given]))
        assert [(row["key"], row["seq"]) for row in found] == sorted(given)


def test_the_latest_of_each_key_without_tombstones(monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(50):
        rng = random.Random(seed)
        monkeypatch.setattr(arrow, "_HELD_BYTES", rng.choice([0, 300, 1 << 20]))
        entries = [
            entry(b"k%d" % rng.randrange(20), seq, rng.choice([None, b"%d" % seq, b"%d" % seq]))
            for seq in range(1, rng.randrange(2, 200))
        ]
        last = {e.key: e for e in entries}
        rows = LatestRows(schema("key", "seq"), log="l", range_start=b"")
        assert [(row["key"], row["seq"]) for row in fed(rows, *bands(rng, entries))] == [
            (key, e.seq) for key, e in sorted(last.items()) if e.value is not None
        ], f"seed={seed}"
    assert fed(LatestRows(schema("key"), log="l", range_start=b"")) == []
    assert fed(LatestRows(schema("key"), log="l", range_start=b""), page([])) == []


def test_a_task_imports_no_pandas() -> None:
    """The import takes longer than a small read, and each worker of Spark would repeat it."""
    program = """
import sys
from pyspark.sql.pandas.types import to_arrow_schema
from lognode.client.protocol.chunks import Chunk
from lognode.client.span_pages import SpanPage
from lognode.client.spark import arrow, options, reader
from lognode.client.spark.schema import source_schema

schema = to_arrow_schema(
    source_schema((*options.COLUMNS, "headers", "rangeStart", "snapshot")), timezone="UTC"
)
keys, values, headers = [b"a", b"a", b"b"], [b"1", b"2", None], {0: {b"h": b"1"}, 2: {}}
for make in (arrow.Rows, arrow.LatestRows):
    rows = make(schema, log="l", range_start=b"")
    for seqs in ([1, 2, 3], [4, 5, 6]):
        chunk = Chunk.of(keys, seqs, [7, 7, 8], values, headers, [1])
        batches = list(rows.feed(SpanPage([chunk], None)))
    assert sum(batch.num_rows for batch in [*batches, *rows.finish()])
print("pandas" in sys.modules)
"""
    found = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert found.stdout == "False\n"


def test_empty_headers_differ_from_missing_headers() -> None:
    given: list[Any] = [{}, None, {b"h": b"1", b"g": b""}, None, {b"": b"2"}]
    chunk = page([entry(b"k", 1 + at, headers=each) for at, each in enumerate(given)]).chunks[0]
    chunk = chunk._replace(headers={4: given[4], 0: given[0], 2: given[2]})
    found = fed(Rows(schema("headers"), log="l", range_start=b""), SpanPage([chunk], None))
    pairs = [row["headers"] and [(each["key"], each["value"]) for each in row["headers"]]
             for row in found]  # fmt: skip
    assert pairs == [each if each is None else list(each.items()) for each in given]


def test_malformed_headers_are_refused() -> None:
    chunk = page([entry(b"a", 1)]).chunks[0]._replace(headers={0: {b"h": 7}})  # type: ignore[dict-item]
    rows = Rows(schema(*EVERY), log="l", range_start=b"")
    with pytest.raises(RemoteProtocolError):
        fed(rows, SpanPage([chunk], None))


def test_records_of_binary_and_of_text() -> None:
    headers = pa.array(
        [[{"key": "h", "value": b"1"}], None, []],
        pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
    )
    batch = pa.record_batch([pa.array(["a", "ä", "c"]), pa.array([b"1", None, b""]), headers],
                            names=["key", "value", "headers"])  # fmt: skip
    assert records(batch, 0, "l") == [
        (b"a", b"1", {b"h": b"1"}, False, ANY, "l"), ("ä".encode(), None, None, False, ANY, "l"),
        (b"c", b"", None, False, ANY, "l"),
    ]  # fmt: skip
    found = records(batch.select(["value", "key"]), 0, "l")
    assert found[0] == (b"a", b"1", None, False, ANY, "l")
    marked = batch.append_column("snapshot", pa.array([True, None, False]))
    assert [record[3] for record in records(marked, 0, "l")] == [True, False, False]
    conditions = batch.append_column("expect", pa.array([7, None, 0]))
    assert [record[4] for record in records(conditions, 0, "l")] == [7, ANY, ABSENT]
    logs = batch.append_column("log", pa.array(["a", "b", "a"]))
    assert [record[5] for record in records(logs, 0, None)] == ["a", "b", "a"]
    assert [record[5] for record in records(logs, 0, "l")] == ["l", "l", "l"]


def test_headers_keep_their_order() -> None:
    names = [b"z", b"a", b"m", b"b"]
    rows = pa.array(
        [[{"key": name, "value": b"1"} for name in names]],
        pa.list_(pa.struct([("key", pa.binary()), ("value", pa.binary())])),
    )
    batch = pa.record_batch([pa.array([b"a"]), pa.array([b"1"]), rows],
                            names=["key", "value", "headers"])  # fmt: skip
    assert list(records(batch, 0, "l")[0][2] or ()) == names


def test_rows_of_a_wrong_shape_are_refused() -> None:
    batch = pa.record_batch(
        [pa.array([b"a", None]), pa.array([b"1", b"2"])], names=["key", "value"]
    )
    with pytest.raises(InvalidArgument, match="the key of row 11 of the task is null"):
        records(batch, 10, "l")
    plain = pa.record_batch([pa.array([b"a", b"b"]), pa.array([b"1", b"2"])],
                            names=["key", "value"])  # fmt: skip
    with pytest.raises(InvalidArgument, match="the log of row 11 of the task is null"):
        records(plain.append_column("log", pa.array(["l", None])), 10, None)
    with pytest.raises(InvalidArgument, match="expect of row 11 of the task is -1; give the key's"):
        records(plain.append_column("expect", pa.array([3, -1])), 10, "l")
    for rows, said in (
        (
            [[{"key": b"h", "value": b"1"}, {"key": b"h", "value": b"2"}]],
            "two headers with the same name; a log keeps one",
        ),
        ([[{"key": b"h", "value": None}]], "a null name or a null value"),
    ):
        headers = pa.array(
            rows, pa.list_(pa.struct([("key", pa.binary()), ("value", pa.binary())]))
        )
        batch = pa.record_batch([pa.array([b"a"]), pa.array([b"1"]), headers],
                                names=["key", "value", "headers"])  # fmt: skip
        with pytest.raises(InvalidArgument, match=said):
            records(batch, 0, "l")


def struct(*fields: tuple[str, DataType]) -> StructType:
    return StructType([StructField(name, kind) for name, kind in fields])


KEY, VALUE = ("key", BinaryType()), ("value", BinaryType())


def test_schemas_are_checked_before_anything_runs() -> None:
    check_source_schema(source_schema(EVERY), EVERY)
    with pytest.raises(InvalidArgument, match=r"leave \.schema\(\) out"):
        check_source_schema(struct(KEY), EVERY)
    text = struct(("key", StringType()), VALUE)
    check_sink_schema(struct(VALUE, ("key", StringType())), "l")
    check_sink_schema(struct(KEY, VALUE, ("headers", ArrayType(text))), "l")
    check_sink_schema(struct(KEY, VALUE, ("snapshot", BooleanType())), "l")
    check_sink_schema(struct(KEY, VALUE, ("expect", LongType()), ("log", StringType())), None)
    with pytest.raises(InvalidArgument, match="option log: is not given, and the rows have no"):
        check_sink_schema(struct(KEY, VALUE), None)
    for given, said in (
        (struct(KEY), "no column 'value'"),
        (struct(KEY, VALUE, ("snapshot", LongType())), "snapshot is bigint; cast the column to b"),
        (struct(KEY, VALUE, ("expect", StringType())), "expect is string; cast the column to big"),
        (struct(KEY, VALUE, ("log", BinaryType())), "log is binary; cast the column to string"),
        (struct(KEY, VALUE, ("seq", LongType())), "a column 'seq'"),
        (struct(("key", LongType()), VALUE), "the column key is bigint; cast it"),
        (struct(KEY, VALUE, ("headers", StringType())), "is string; cast the column to array"),
        (struct(KEY, VALUE, ("headers", ArrayType(struct(KEY, ("value", LongType()))))),
         "headers.value is bigint"),
    ):  # fmt: skip
        with pytest.raises(InvalidArgument, match=said):
            check_sink_schema(given, "l")


def test_libraries_that_do_not_fit_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    check_libraries()
    versions = {"pyspark": "4.3.0", "pyarrow": "25.0.0", "pandas": "2.3.1"}
    monkeypatch.setattr("importlib.metadata.version", versions.__getitem__)
    check_libraries()
    for name, found, wanted in (
        ("pyspark", "4.1.9", "pyspark>=4.2"), ("pandas", "3.0.0", "pandas>=2,<3"),
        ("pyarrow", "17.0.0", "pyarrow>=18"),
    ):  # fmt: skip
        monkeypatch.setitem(versions, name, found)
        with pytest.raises(Unsupported, match=f"{name} is {found}; .*needs {wanted}"):
            check_libraries()
        monkeypatch.setitem(versions, name, "99.0" if name != "pandas" else "2.9")
